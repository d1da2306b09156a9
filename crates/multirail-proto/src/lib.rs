#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

pub mod admission;
pub mod background;
mod channels;
pub mod ledger;
pub mod multicast;
pub mod names;
pub mod pacer;
pub mod pipeline;
pub mod placement;
pub mod rng;
pub mod session;
pub mod streams;
pub mod striping;
pub mod topology;
pub mod units;
pub mod wire;
