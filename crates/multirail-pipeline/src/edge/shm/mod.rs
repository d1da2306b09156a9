//! Edges between two processes of one host: a ring for each direction in shared memory. No system
//! call is made while both ends are awake.
//!
//! A message is its body's length, its header and its body. It goes through the ring in portions,
//! so it can be longer than the ring, and the receiver copies it out while the sender still copies
//! it in.

mod connection;
mod rendezvous;
mod ring;

pub use connection::read_any;
pub(super) use rendezvous::{Client, MachineId, MeetingPoint, Rendezvous};

#[cfg(test)]
mod tests;
