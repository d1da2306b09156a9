//! Placement: what hosts must know of each other's ports.
//!
//! The decision which port a packet leaves by is made in the kernel, by the BPF program of
//! `multirail-place`. That crate also holds the model with which the program is compared.

pub mod exchange;
pub mod hello;
pub mod hosts;
mod limits;
mod mac;
mod policy;

pub use limits::{MAX_PEERS, MAX_PORTS};
pub use mac::{Mac, MacError};
pub use policy::Policy;
