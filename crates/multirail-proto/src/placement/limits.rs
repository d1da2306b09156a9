//! Limits of placement.

/// The largest number of ports of a host.
pub const MAX_PORTS: usize = 16;
/// The largest number of other hosts that a host can know.
pub const MAX_PEERS: usize = 1024;
