#![doc = include_str!("../README.md")]

mod seeds;
mod skip;

pub use seeds::{SEED_VARIABLE, for_seeds, proptest_config};
pub use skip::{Requirement, SKIPPED_VARIABLE, skip};
