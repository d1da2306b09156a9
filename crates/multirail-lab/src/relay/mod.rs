//! The process that carries the packets of rails with a delay, a jitter or a loss, where the kernel
//! has no netem.
//!
//! `link` decides when each packet leaves, `segment` cuts GSO packets, `ring` keeps packets in
//! flight, `forwarder` is the loop that reads and writes them, `shared` is the memory through which
//! other processes set parameters and read counters, and `process` starts and ends the process.

mod direction;
pub(crate) mod forwarder;
mod link;
pub(crate) mod process;
mod ring;
mod segment;
pub(crate) mod shared;
mod switch;
