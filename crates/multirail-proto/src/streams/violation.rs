//! How a peer breaks the protocol of streams.

use super::stream_id::StreamId;

/// How the peer broke the protocol of streams. The session is over then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamViolation {
    /// A frame is longer than its message.
    #[error("a frame ends after its message")]
    Cut,
    /// The kind of a frame is unknown.
    #[error("unknown frame kind {kind:#04x}")]
    UnknownKind {
        /// The kind.
        kind: u8,
    },
    /// A field has a value that its frame cannot have.
    #[error("a field of a frame of kind {kind} is out of bounds")]
    BadField {
        /// The kind.
        kind: u8,
    },
    /// A stream has the number of a stream that this side would open, and has not opened.
    #[error("stream {0} is not open")]
    NotOpen(
        /// The stream.
        StreamId,
    ),
    /// The number of a new stream is too far above those before.
    #[error("stream {0} is too far above the last one")]
    TooFarAhead(
        /// The stream.
        StreamId,
    ),
    /// Bytes beyond what the receiver has room for.
    #[error("stream {stream} has bytes up to {end}, beyond its limit of {limit}")]
    BeyondLimit {
        /// The stream.
        stream: StreamId,
        /// The offset of the last byte, plus one.
        end: u64,
        /// The offset up to which there is room.
        limit: u64,
    },
    /// Bytes that came before.
    #[error("stream {stream} has the byte at {offset} twice")]
    Twice {
        /// The stream.
        stream: StreamId,
        /// The offset of such a byte.
        offset: u64,
    },
    /// Two ends, or bytes behind the end.
    #[error("stream {0} goes on after its end")]
    BehindEnd(
        /// The stream.
        StreamId,
    ),
    /// More streams that must be refused than resets can be kept for.
    #[error("too many streams beyond the limit")]
    TooManyRefused,
    /// More bytes before their turn than a sender can have under way.
    #[error("too many bytes before their turn")]
    TooMuchEarly,
}
