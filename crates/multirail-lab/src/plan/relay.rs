//! What the relay has to do, as data.

use crate::spec::wan::Queue;

/// The properties of one direction of a relayed rail. They can change from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkParams {
    /// Zero means no limit, and no queue.
    pub(crate) rate_bit_s: u64,
    pub(crate) delay_ns: u64,
    pub(crate) jitter_ns: u64,
    pub(crate) loss_ppm: u32,
    pub(crate) queue: Queue,
}

/// One direction of a relayed rail: from a host, or, on a rail with a switch, from the switch to a
/// host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelayDirection {
    /// The index of the rail.
    pub(crate) rail: usize,
    /// The index of the host.
    pub(crate) host: usize,
    pub(crate) to_host: bool,
}
