#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

pub mod dir;
pub mod extra;
pub mod filter;
pub mod journal;
pub mod meta;
pub mod names;
pub mod notes;
pub mod origin;
pub mod part;
pub mod report;
pub mod root;
pub mod space;
pub mod stat;
pub mod target;
#[cfg(test)]
mod testing;
pub mod walk;
