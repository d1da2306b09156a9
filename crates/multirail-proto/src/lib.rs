//! What to do, never how: the decisions of multirail as pure logic.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number. Time comes in as an argument
//! (`now_us`, microseconds since any fixed point), so the same code runs on sockets, in property tests and in [`sim`].

pub mod channels;
pub mod ledger;
pub mod multicast;
pub mod pipeline;
pub mod placement;
pub mod rng;
pub mod sim;
pub mod striping;
pub mod topology;
pub mod units;
pub mod wire;
