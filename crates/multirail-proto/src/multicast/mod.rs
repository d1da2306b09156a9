//! One to many: who sends which piece to whom, as state machines.
//!
//! A *group* is a list of hosts in clusters ([`members`]); one, the root, has the data, which is cut into [`pieces`]. Every host
//! runs one [`Node`] of the same [`Method`]. The runtime and the simulator drive it in the same way:
//!
//! 1. [`Node::handle`] with what happened ([`Input`]), then [`Node::poll`] until it gives nothing more, doing each [`Output`].
//! 2. [`Node::handle`] with [`Input::Wake`] when [`Node::wake_at_us`] has come.
//!
//! A node never waits: what it puts out for a peer is queued there, control messages before pieces. Every piece is
//! verified before a node hears of it.

pub mod adaptive;
mod balanced;
mod balanced_candidates;
mod balanced_shortest;
pub mod bandwidths;
pub mod bittorrent;
pub mod bound;
mod bound_flow;
mod fpfr;
pub mod members;
pub mod message;
pub mod method;
pub mod mob;
pub mod node;
pub mod nodes;
pub mod pieces;
pub mod plan;
pub mod planned;
mod planned_child;
pub mod planned_routes;
pub mod sync;
#[cfg(test)]
mod tests;
mod trees;

pub use bandwidths::Bandwidths;
pub use members::{MemberId, Members};
pub use message::Message;
pub use method::Method;
pub use node::{Input, Node, Output};
pub use nodes::Nodes;
pub use pieces::{PieceSet, Pieces};
pub use plan::{Plan, Tree};
pub use planned::Planned;
pub use planned_routes::Routes;
