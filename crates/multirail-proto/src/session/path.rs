//! What the machine asks of the paths that its channels take.

use crate::striping::Channel;

/// What a connection's kernel side knows of its path.
#[derive(Debug, Clone, Copy, Default)]
pub struct PathInfo {
    /// Whether the connection still exists: false once it timed out or was reset, or while the
    /// peer does not answer window probes.
    pub alive: bool,
    /// The peer has ended the connection.
    pub ended: bool,
    /// Something was sent, or asked for by a probe, and the peer has not acknowledged it in time.
    pub unanswered: bool,
    /// The peer's receive window is closed: its application does not read at the moment.
    pub window_closed: bool,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Smallest round-trip time seen; 0 if unknown.
    pub min_rtt_us: u32,
    /// The rate at which bytes were last acknowledged. It is less than the path's rate while
    /// there was little to send.
    pub delivery_bytes_s: f64,
    /// Total time during which the receiver's window or the send buffer was the limit.
    pub window_limited_us: u64,
    /// Total number of retransmitted segments.
    pub resent_segments: u64,
    /// Total time during which there was something to send.
    pub busy_us: u64,
}

/// Facts about the paths of a session's channels, which the machine asks for when it needs them.
///
/// Each answer costs the I/O crate a system call. The machine asks only about channels that are
/// up.
pub trait Paths {
    /// What the kernel knows of the path.
    fn info(&self, channel: Channel) -> PathInfo;
    /// Bytes written and not acknowledged by the peer's kernel.
    fn unacknowledged_bytes(&self, channel: Channel) -> u64;
    /// Bytes that have arrived and were not read.
    fn unread_bytes(&self, channel: Channel) -> u64;
    /// Size of the send buffer, if known.
    fn send_buffer_bytes(&self, channel: Channel) -> Option<u64>;
    /// Whether the congestion control takes losses for congestion.
    fn losses_mean_congestion(&self, channel: Channel) -> bool;
}
