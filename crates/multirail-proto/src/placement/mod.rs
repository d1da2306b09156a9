//! Placement: which port of a host carries which stream, and what hosts must know of each other for it.

pub mod hosts;
mod mac;
mod policy;

pub use mac::{Mac, MacError};
pub use policy::{Policy, UnknownPolicy};

/// Ports that a host may have.
pub const MAX_PORTS: usize = 16;
/// Other hosts that a host may know.
pub const MAX_PEERS: usize = 1024;
