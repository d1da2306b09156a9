//! What the kernel reports of this host's network interfaces.

use std::net::IpAddr;

/// An interface, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Link {
    pub index: u32,
    pub name: String,
    /// The type of a software interface; `None` for hardware.
    pub kind: Option<String>,
    pub loopback: bool,
    pub up: bool,
    pub carrier: bool,
    pub ethernet: bool,
    pub controller: Option<u32>,
}

/// An address, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub index: u32,
    pub address: IpAddr,
    pub prefix_bits: u8,
    pub tentative: bool,
    pub deprecated: bool,
}
