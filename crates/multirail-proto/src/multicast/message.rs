//! The messages between the nodes of a broadcast.

use serde::{Deserialize, Serialize};

/// A control message. The driver of a node checks piece numbers with `Message::largest_piece`.
///
/// The order of the variants is part of the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The pieces that the sender holds, as far as they concern the peer. Bits are as in
    /// [`super::PieceSet::to_bytes`].
    Bitfield(Vec<u8>),
    /// The sender now also holds these pieces.
    Have(Vec<u32>),
    /// The sender requests these pieces.
    Request(Vec<u32>),
    /// The sender no longer needs these pieces.
    Cancel(Vec<u32>),
    /// The sender is fetching these pieces; the peer prefers other pieces (`adaptive`).
    Fetching(Vec<u32>),
    /// The sender can fetch this many more pieces from other clusters, and asks for a part of the
    /// peer's share (`adaptive`).
    Spare(u32),
    /// These pieces move from the sender's share to the peer's (`adaptive`).
    Take(Vec<u32>),
    /// The sender wants to be told about these pieces, although they are not in its share
    /// (`adaptive`).
    Watch(Vec<u32>),
    /// Every requested piece was sent: a larger request would have been possible (`adaptive`).
    Starved,
    /// The sender holds every piece (`adaptive`).
    Complete,
    /// BitTorrent: the peer holds pieces that the sender needs.
    Interested,
    /// BitTorrent: the peer holds no pieces that the sender needs.
    NotInterested,
    /// BitTorrent: the sender discards requests from now on.
    Choke,
    /// BitTorrent: the sender answers requests from now on.
    Unchoke,
    /// Final synchronization (MOB, section 3.1, phase 4), up the tree: the sender and all hosts
    /// below it hold every piece.
    BranchDone,
    /// Final synchronization, down the tree: all hosts hold every piece.
    AllDone,
}

impl Message {
    /// The largest piece number in a list. Bit fields are checked by their length.
    pub(crate) fn largest_piece(&self) -> Option<u32> {
        match self {
            Message::Have(pieces)
            | Message::Request(pieces)
            | Message::Cancel(pieces)
            | Message::Fetching(pieces)
            | Message::Take(pieces)
            | Message::Watch(pieces) => pieces.iter().copied().max(),
            _ => None,
        }
    }
}
