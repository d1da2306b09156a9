//! What peers tell each other, beside the pieces themselves.

use serde::{Deserialize, Serialize};

/// A control message. Numbers of pieces are checked by whoever drives a node, see [`Message::largest_piece`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// What the sender has, as far as it concerns the peer; bits as in [`super::PieceSet::to_bytes`].
    Bitfield(Vec<u8>),
    /// The sender has these, too.
    Have(Vec<u32>),
    /// Send me these.
    Request(Vec<u32>),
    /// I do not need these any more.
    Cancel(Vec<u32>),
    /// I am getting these from somebody; take others where there are some (`adaptive`).
    Fetching(Vec<u32>),
    /// I could get more from outside: give me some of your share (`adaptive`). With the number of pieces I can take.
    Spare(u32),
    /// These pieces of my share are yours now (`adaptive`).
    Take(Vec<u32>),
    /// Tell me of these, too, although they are not in my share (`adaptive`).
    Watch(Vec<u32>),
    /// All that you asked for is sent, and you could have asked for more (`adaptive`).
    Starved,
    /// The sender has everything (`adaptive`).
    Complete,
    /// BitTorrent: you have what I want.
    Interested,
    /// BitTorrent: you do not any more.
    NotInterested,
    /// BitTorrent: requests are not answered from here on.
    Choke,
    /// BitTorrent: requests are answered from here on.
    Unchoke,
    /// Final synchronization (MOB, section 3.1, phase 4), up the tree: everyone below me and I have everything.
    BranchDone,
    /// Final synchronization, down the tree: everyone has everything.
    AllDone,
}

impl Message {
    /// The largest number of a piece in it.
    pub fn largest_piece(&self) -> Option<u32> {
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
