//! Limits of streams.

use crate::session::WINDOW_BYTES;

/// What a stream's sender may have under way before the receiver grants more.
pub const INITIAL_WINDOW_BYTES: u64 = 64 << 10;
/// The largest window of a stream: what the session itself can have under way.
pub const MAX_WINDOW_BYTES: u64 = WINDOW_BYTES;
/// The most by which the windows of all streams together exceed the initial ones.
pub const MAX_GROWTH_BYTES: u64 = 64 << 20;
/// A window grows by at most this part of what is left of [`MAX_GROWTH_BYTES`], so that something is
/// left for streams that begin later.
pub(super) const GROWTH_PART: u64 = 8;
/// What a stream keeps of written bytes that are not sent.
pub const SEND_BUFFER_BYTES: usize = 128 << 10;
/// The most streams of one opener at a time.
pub const MAX_STREAMS: usize = 4096;
/// The most resets that wait to be sent when the peer opens a further stream that must be refused.
pub(super) const MAX_RESETS: usize = 4 * MAX_STREAMS;
/// What is kept of bytes that came before their turn, with [`EARLY_PIECE_BYTES`] for each piece. A
/// sender that fills its window with frames of one byte needs 64 bytes for each 17, so that this is
/// more than any sender needs.
pub(super) const MAX_EARLY_BYTES: u64 = 5 * WINDOW_BYTES;
/// What a piece costs beside its bytes.
pub(super) const EARLY_PIECE_BYTES: u64 = 64;
/// What a stream sends before it is another stream's turn.
pub(super) const QUANTUM_BYTES: i64 = 16 << 10;
/// A buffer of at least this capacity is released when it is empty.
pub(super) const RELEASED_BYTES: usize = 4 << 10;
