//! One broadcast within a group, as one member sees it, and its accounts with every peer.

use super::fault::Fault;
use crate::multicast::members::MemberId;
use crate::multicast::message::Message;
use crate::multicast::node::Node;
use crate::multicast::pieces::{PieceSet, Pieces};
use std::collections::BTreeMap;

/// A peer may repeat requests, or send pieces that were not requested, twice for every piece and
/// this many times more. Cancelled requests and lost links explain some; more is a flood.
pub(super) const SPARE_REPEATS: u64 = 1024;
/// How many messages and piece numbers a peer may send at once, whatever the size of the data.
pub(super) const MESSAGES_AT_START: u64 = 64 << 10;
/// How many messages and piece numbers a peer may send for every piece.
pub(super) const MESSAGES_PER_PIECE: u64 = 64;
/// How many messages and piece numbers a peer may send for every second since the group began.
pub(super) const MESSAGES_PER_SECOND: u64 = 1000;

/// How far a transfer is. The phases follow each other in this order. A failure ends the host's
/// part in the group, so no phase stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The first phase: the driver opens the store. Pieces of an earlier attempt may be found.
    Opening,
    /// After `Opening`: pieces come and go.
    Running,
    /// After `Running`, when every piece is stored: files get their final names.
    Finishing,
    /// After `Finishing`. The host still sends pieces to others.
    Done,
}

/// One broadcast.
#[derive(Debug)]
pub(super) struct Transfer {
    pub pieces: Pieces,
    /// Whether the data came with the manifest. Such a transfer has no node.
    pub is_inline: bool,
    pub phase: Phase,
    /// Whether the peers were told that this host holds every piece.
    pub told_complete: bool,
    /// Present from [`Phase::Running`] on, until the host fails.
    pub node: Option<Box<dyn Node>>,
    pub held: PieceSet,
    pub held_bytes: u64,
    pub resumed_bytes: u64,
    /// Payload bytes received, by sender.
    pub received_bytes: BTreeMap<MemberId, u64>,
    accounts: BTreeMap<MemberId, PeerAccount>,
}

/// The requests and messages between this host and one peer. Its size is bounded by the number of
/// pieces.
#[derive(Debug)]
struct PeerAccount {
    /// Pieces that were requested of the peer and have not arrived, including cancelled requests.
    requested: PieceSet,
    /// The part of `requested` that was not cancelled.
    awaited: PieceSet,
    /// The time of the latest arrival of any byte, or of the first awaited request.
    awaited_since_us: u64,
    /// Pieces that the peer requested and that were not sent.
    wanted: PieceSet,
    /// Requests for pieces in `wanted`.
    repeats: u64,
    /// Pieces that arrived without a request.
    unrequested: u64,
    /// Messages, and piece numbers in them.
    messages: u64,
}

impl Transfer {
    pub(super) fn new(pieces: Pieces, is_inline: bool) -> Self {
        Self {
            pieces,
            is_inline,
            phase: Phase::Opening,
            told_complete: false,
            node: None,
            held: PieceSet::none(pieces.count()),
            held_bytes: 0,
            resumed_bytes: 0,
            received_bytes: BTreeMap::new(),
            accounts: BTreeMap::new(),
        }
    }

    /// Starts with the pieces that the store holds.
    pub(super) fn open(&mut self, held: PieceSet) {
        self.held_bytes = held.iter().map(|piece| self.piece_bytes(piece)).sum();
        self.held = held;
        self.phase = Phase::Running;
        if !self.is_inline {
            self.resumed_bytes = self.held_bytes;
        }
    }

    /// Notes that `piece` is stored; whether it was not.
    pub(super) fn hold(&mut self, piece: u32) -> bool {
        let is_new = self.held.insert(piece);
        if is_new {
            self.held_bytes += self.piece_bytes(piece);
        }
        is_new
    }

    fn piece_bytes(&self, piece: u32) -> u64 {
        let range = self.pieces.range(piece);
        range.end - range.start
    }

    fn account(&mut self, peer: MemberId) -> &mut PeerAccount {
        let count = self.pieces.count();
        self.accounts.entry(peer).or_insert_with(|| PeerAccount {
            requested: PieceSet::none(count),
            awaited: PieceSet::none(count),
            awaited_since_us: 0,
            wanted: PieceSet::none(count),
            repeats: 0,
            unrequested: 0,
            messages: 0,
        })
    }

    /// Notes that the link to `peer` is lost, and with it all requests in both directions.
    pub(super) fn forget_requests(&mut self, peer: MemberId) {
        let count = self.pieces.count();
        if let Some(account) = self.accounts.get_mut(&peer) {
            account.requested = PieceSet::none(count);
            account.awaited = PieceSet::none(count);
            account.wanted = PieceSet::none(count);
        }
    }

    /// Notes a message from this host's node to `peer`.
    pub(super) fn on_sent(&mut self, now_us: u64, peer: MemberId, message: &Message) {
        match message {
            Message::Request(list) => {
                let account = self.account(peer);
                if account.awaited.is_empty() {
                    account.awaited_since_us = now_us;
                }
                for piece in list {
                    account.requested.insert(*piece);
                    account.awaited.insert(*piece);
                }
            }
            Message::Cancel(list) => {
                let account = self.account(peer);
                for piece in list {
                    account.awaited.remove(*piece);
                }
            }
            Message::Choke => self.account(peer).wanted = PieceSet::none(self.pieces.count()),
            _ => {}
        }
    }

    /// Checks a message from `peer`, `seconds` after the group began.
    pub(super) fn on_message(&mut self, peer: MemberId, message: &Message, seconds: u64) -> Result<(), Fault> {
        let count = self.pieces.count();
        if let Some(piece) = message.largest_piece().filter(|p| *p >= count) {
            return Err(Fault::NoSuchPiece { piece, count });
        }
        let numbers = match message {
            Message::Bitfield(bits) => {
                PieceSet::from_bytes(count, bits).ok_or(Fault::BitfieldLength)?;
                count as usize
            }
            Message::Have(list)
            | Message::Request(list)
            | Message::Cancel(list)
            | Message::Fetching(list)
            | Message::Take(list)
            | Message::Watch(list) => list.len(),
            _ => 0,
        };
        let account = self.account(peer);
        account.messages += 1 + numbers as u64;
        let allowed = MESSAGES_AT_START + MESSAGES_PER_PIECE * u64::from(count) + MESSAGES_PER_SECOND * seconds;
        if account.messages > allowed {
            return Err(Fault::MessageFlood);
        }
        match message {
            Message::Request(list) => {
                let repeats = list.iter().filter(|p| !account.wanted.insert(**p)).count();
                account.repeats += repeats as u64;
                if account.repeats > 2 * u64::from(count) + SPARE_REPEATS {
                    return Err(Fault::RequestFlood);
                }
            }
            Message::Cancel(list) => {
                for piece in list {
                    account.wanted.remove(*piece);
                }
            }
            // A peer that chokes this host discards its requests.
            Message::Choke => account.awaited = PieceSet::none(count),
            _ => {}
        }
        Ok(())
    }

    /// Notes `bytes` of a piece from `peer`.
    pub(super) fn on_bytes(&mut self, now_us: u64, peer: MemberId, bytes: u64) {
        *self.received_bytes.entry(peer).or_default() += bytes;
        self.account(peer).awaited_since_us = now_us;
    }

    /// How long `peer` has sent nothing of this transfer although a request is open, in
    /// microseconds.
    pub(super) fn silence_us(&self, now_us: u64, peer: MemberId) -> u64 {
        let account = self.accounts.get(&peer).filter(|a| !a.awaited.is_empty());
        account.map_or(0, |a| now_us.saturating_sub(a.awaited_since_us))
    }

    /// Notes that a piece was sent to `peer`, or that it will not be.
    pub(super) fn on_settled(&mut self, peer: MemberId, piece: u32) {
        self.account(peer).wanted.remove(piece);
    }

    /// Checks the start of a piece from `peer`; whether to keep the piece. With `only_requested`, a
    /// piece that was not requested is discarded; without, peers may push pieces.
    pub(super) fn on_piece_start(&mut self, peer: MemberId, piece: u32, only_requested: bool) -> Result<bool, Fault> {
        let count = self.pieces.count();
        if piece >= count {
            return Err(Fault::NoSuchPiece { piece, count });
        }
        let is_held = self.held.contains(piece);
        let account = self.account(peer);
        account.awaited.remove(piece);
        if account.requested.remove(piece) {
            return Ok(true);
        }
        if only_requested || is_held {
            account.unrequested += 1;
            if account.unrequested > 2 * u64::from(count) + SPARE_REPEATS {
                return Err(Fault::PieceFlood);
            }
        }
        Ok(!only_requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer() -> Transfer {
        Transfer::new(Pieces { total_bytes: 100 << 10, piece_bytes: 16 << 10 }, false)
    }

    #[test]
    fn numbers_beyond_the_end_are_the_peers_fault() {
        let mut t = transfer();
        assert!(t.on_message(1, &Message::Request(vec![6]), 0).is_ok());
        assert!(t.on_message(1, &Message::Request(vec![7]), 0).is_err());
        assert!(t.on_message(1, &Message::Have(vec![u32::MAX]), 0).is_err());
        assert!(t.on_message(1, &Message::Bitfield(vec![0x7f]), 0).is_ok());
        assert!(t.on_message(1, &Message::Bitfield(vec![0xff]), 0).is_err());
        assert!(t.on_message(1, &Message::Bitfield(vec![0, 0]), 0).is_err());
        assert!(t.on_piece_start(1, 6, false).is_ok());
        assert!(t.on_piece_start(1, 7, false).is_err());
    }

    #[test]
    fn repeated_requests_are_a_flood_in_the_end() {
        let mut t = transfer();
        let allowed = 1 + 2 * 7 + SPARE_REPEATS;
        for _ in 0..allowed {
            assert!(t.on_message(1, &Message::Request(vec![3]), 0).is_ok());
        }
        assert_eq!(t.on_message(1, &Message::Request(vec![3]), 0), Err(Fault::RequestFlood));
        assert!(t.on_message(2, &Message::Request(vec![3]), 0).is_ok(), "another peer's account");
        for _ in 0..2 * allowed {
            assert!(t.on_message(3, &Message::Request(vec![3]), 0).is_ok());
            t.on_settled(3, 3);
        }
    }

    #[test]
    fn the_limit_of_messages_grows_with_time() {
        let mut t = transfer();
        let allowed = MESSAGES_AT_START + MESSAGES_PER_PIECE * 7;
        for _ in 0..allowed {
            assert!(t.on_message(1, &Message::Interested, 0).is_ok());
        }
        assert_eq!(t.on_message(1, &Message::Interested, 0), Err(Fault::MessageFlood));
        assert!(t.on_message(1, &Message::Interested, 1).is_ok());
    }

    #[test]
    fn unrequested_data_is_discarded() {
        let mut t = transfer();
        t.on_sent(0, 1, &Message::Request(vec![2]));
        assert_eq!(t.on_piece_start(1, 2, true), Ok(true));
        assert_eq!(t.on_piece_start(1, 2, true), Ok(false), "once");
        assert_eq!(t.on_piece_start(1, 3, false), Ok(true), "pushed");
        for _ in 0..2 * 7 + SPARE_REPEATS - 1 {
            assert_eq!(t.on_piece_start(1, 4, true), Ok(false));
        }
        assert_eq!(t.on_piece_start(1, 4, true), Err(Fault::PieceFlood));
    }

    #[test]
    fn silence_counts_from_the_first_open_request() {
        let mut t = transfer();
        t.on_sent(5, 1, &Message::Request(vec![2]));
        t.on_sent(7, 1, &Message::Request(vec![3]));
        assert_eq!((t.silence_us(10, 1), t.silence_us(10, 2)), (5, 0));
        t.on_bytes(9, 1, 100);
        assert_eq!(t.silence_us(10, 1), 1);
        t.on_sent(10, 1, &Message::Cancel(vec![2, 3]));
        assert_eq!(t.silence_us(99, 1), 0);
    }
}
