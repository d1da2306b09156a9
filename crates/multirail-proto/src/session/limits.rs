//! Limits that both halves of a session share.

/// Messages of up to 64 KiB are copied, so that sending returns as soon as their channels have
/// claimed them, as with TCP.
///
/// A longer message is sent from the caller's memory, and sending returns when the peer has
/// confirmed it: with several channels, a copy would cost more than the half round trip.
pub const COPY_LIMIT_BYTES: u64 = 64 << 10;

/// At most 4 MiB are copied and not confirmed, or one message that is longer. Sending waits at this
/// limit.
///
/// This is also the most that the peer must keep of messages that overtook an earlier one. It
/// covers 100 Mbit/s over a round trip of 300 ms.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// At most this many messages are copied and not confirmed, however short they are.
pub(crate) const MAX_HELD_MESSAGES: usize = 4096;

/// Padding that a new channel sends first, and an unused one from time to time, so that the peer
/// can measure its rate.
pub const PROBE_BYTES: u32 = 32 << 10;
