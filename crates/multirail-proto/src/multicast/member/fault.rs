//! What a peer does against the rules. A fault ends the peer's link and bans the peer.

/// Why a peer is disconnected. The text continues a sentence about the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A message names a piece that does not exist.
    #[error("it names piece {piece}; the data has {count} pieces")]
    NoSuchPiece {
        /// The piece.
        piece: u32,
        /// The number of pieces.
        count: u32,
    },
    /// A bit field does not have one bit for each piece.
    #[error("it sent a bit field of the wrong length")]
    BitfieldLength,
    /// The control messages exceed `MESSAGES_AT_START` and the rates that add to it.
    #[error("it floods this host with control messages")]
    MessageFlood,
    /// Too many requests for pieces that were already requested.
    #[error("it floods this host with repeated requests")]
    RequestFlood,
    /// Too many pieces that this host did not request.
    #[error("it floods this host with pieces that were not requested")]
    PieceFlood,
    /// More than `MAX_TRANSFERS` broadcasts.
    #[error("it takes part in too many broadcasts at a time")]
    TooManyTransfers,
    /// A manifest came with more tree positions than the cluster has hosts.
    #[error("it sent a manifest for more hosts than the cluster has")]
    TooManyPositions,
    /// The peer has left requests or its heartbeat out for too long, a second time.
    #[error("it is connected but does not answer")]
    Silent,
}
