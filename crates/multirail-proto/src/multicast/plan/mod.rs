//! Plans for the methods that send along fixed trees, and the upper bound of any method's rate.
//!
//! A plan is computed once, before any data moves. It depends on nothing but its arguments, so that
//! every host computes the same plan.

mod balanced;
pub mod bound;
mod fpfr;
mod planner;
mod shapes;
mod tree;

pub use planner::Plan;
pub use tree::{PlanError, Tree};
