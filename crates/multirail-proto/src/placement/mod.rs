//! Placement: which port of a host carries which stream, and what hosts must know of each other for it.

mod adaptive;
pub mod exchange;
pub mod hello;
pub mod hosts;
mod mac;
mod model;
mod policy;
mod ports;
#[cfg(test)]
mod tests;

pub use mac::{Mac, MacError};
pub use model::{Decision, Host, Packet, Peer, Stream, Why};
pub use policy::{Policy, UnknownPolicy};
pub use ports::{Look, Mask, Port};

/// Ports that a host may have.
pub const MAX_PORTS: usize = 16;
/// Busy streams to another host that are told apart.
pub const SLOTS: usize = 64;
/// Other hosts that a host may know.
pub const MAX_PEERS: usize = 1024;
/// An Ethernet frame without its checksum.
const FRAME_BYTES: u64 = 1514;
const MS: u64 = 1_000_000;
