//! One broadcast within a group, as one host sees it.

use super::store::Store;
use multirail_proto::multicast::{MemberId, Message, Node, PieceSet, Pieces};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests for what is asked for already, and pieces that nobody asked for, beyond twice the number of pieces: who sends more
/// is not making mistakes but a flood.
const SPARE_REPEATS: u64 = 1024;
/// Numbers of pieces that a peer may tell or ask: so many for every piece ...
const CHATTER_A_PIECE: u64 = 64;
/// ... and so many in any case, and a second.
const CHATTER_AT_FIRST: u64 = 64 << 10;
const CHATTER_A_SECOND: u64 = 1000;

/// One broadcast.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The manifest as it travels, and the data if it travels with it.
    pub manifest: Arc<Vec<u8>>,
    pub data: Arc<Vec<u8>>,
    pub pieces: Pieces,
    pub phase: Phase,
    /// From [`Phase::Running`] on.
    pub store: Option<Arc<dyn Store>>,
    /// While there is something to decide: never where the data came with the manifest.
    pub node: Option<Box<dyn Node>>,
    pub held: PieceSet,
    pub held_bytes: u64,
    pub resumed_bytes: u64,
    /// Payload that came, by the cluster it came from.
    pub received_bytes: Vec<u64>,
    /// The method's own final synchronization is over.
    pub synchronized: bool,
    pub peers: BTreeMap<MemberId, Account>,
}

/// How far a transfer is, in this order. A failure ends the host's part in the group, so there is no phase for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The store is being opened, and what it has from earlier looked at.
    Opening,
    /// Pieces come and go.
    Running,
    /// All is here; files get their names.
    Finishing,
    /// All is in its place. Pieces still go.
    Done,
}

/// What is between this host and one peer.
#[derive(Debug)]
pub(super) struct Account {
    /// What was asked of the peer and has not come, taken back or not.
    asked: PieceSet,
    /// The part of it that was not taken back, and since when nothing has come of it.
    awaited: PieceSet,
    awaited_since: Instant,
    /// What the peer has asked for and has not got.
    wanted: PieceSet,
    repeats: u64,
    unasked: u64,
    chatter: u64,
}

impl Transfer {
    pub fn new(manifest: Arc<Vec<u8>>, data: Arc<Vec<u8>>, pieces: Pieces, clusters: usize) -> Self {
        Self {
            manifest,
            data,
            pieces,
            phase: Phase::Opening,
            store: None,
            node: None,
            held: PieceSet::none(pieces.count()),
            held_bytes: 0,
            resumed_bytes: 0,
            received_bytes: vec![0; clusters],
            synchronized: false,
            peers: BTreeMap::new(),
        }
    }

    /// Notes that `piece` is here; whether it was not.
    pub fn hold(&mut self, piece: u32) -> bool {
        let new = self.held.insert(piece);
        if new {
            let range = self.pieces.range(piece);
            self.held_bytes += range.end - range.start;
        }
        new
    }

    fn account(&mut self, peer: MemberId) -> &mut Account {
        let count = self.pieces.count();
        self.peers.entry(peer).or_insert_with(|| Account {
            asked: PieceSet::none(count),
            awaited: PieceSet::none(count),
            awaited_since: Instant::now(),
            wanted: PieceSet::none(count),
            repeats: 0,
            unasked: 0,
            chatter: 0,
        })
    }

    /// The link is gone, and with it what was under way.
    pub fn forget_requests(&mut self, peer: MemberId) {
        let count = self.pieces.count();
        if let Some(account) = self.peers.get_mut(&peer) {
            account.asked = PieceSet::none(count);
            account.awaited = PieceSet::none(count);
            account.wanted = PieceSet::none(count);
        }
    }

    /// Notes what goes to `peer`.
    pub fn says(&mut self, peer: MemberId, message: &Message) {
        match message {
            Message::Request(list) => {
                let account = self.account(peer);
                if account.awaited.is_empty() {
                    account.awaited_since = Instant::now();
                }
                for piece in list {
                    account.asked.insert(*piece);
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

    /// Checks what `peer` says `seconds` after the begin; an error is the peer's fault.
    pub fn hears(&mut self, peer: MemberId, message: &Message, seconds: u64) -> Result<(), String> {
        let count = self.pieces.count();
        if let Some(piece) = message.largest_piece().filter(|p| *p >= count) {
            return Err(format!("it speaks of piece {piece} of {count}"));
        }
        let numbers = match message {
            Message::Bitfield(bits) => {
                PieceSet::from_bytes(count, bits).ok_or_else(|| "it sends a bit set of another length".to_owned())?;
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
        account.chatter += 1 + numbers as u64;
        let allowed = CHATTER_AT_FIRST + CHATTER_A_PIECE * u64::from(count) + CHATTER_A_SECOND * seconds;
        if account.chatter > allowed {
            return Err("it floods this host with control messages".to_owned());
        }
        match message {
            Message::Request(list) => {
                let repeats = list.iter().filter(|p| !account.wanted.insert(**p)).count();
                account.repeats += repeats as u64;
                if account.repeats > 2 * u64::from(count) + SPARE_REPEATS {
                    return Err("it floods this host with requests".to_owned());
                }
            }
            Message::Cancel(list) => {
                for piece in list {
                    account.wanted.remove(*piece);
                }
            }
            // It forgets what was asked of it.
            Message::Choke => account.awaited = PieceSet::none(count),
            _ => {}
        }
        Ok(())
    }

    /// `bytes` of some piece came from `peer`, of `cluster`.
    pub fn receives(&mut self, peer: MemberId, cluster: u32, bytes: u64) {
        self.received_bytes[cluster as usize] += bytes;
        self.account(peer).awaited_since = Instant::now();
    }

    /// How long `peer` has sent nothing although it was asked for something.
    pub fn silence(&self, peer: MemberId) -> Duration {
        let account = self.peers.get(&peer).filter(|a| !a.awaited.is_empty());
        account.map_or(Duration::ZERO, |a| a.awaited_since.elapsed())
    }

    /// A piece has left for `peer`, or will not.
    pub fn settled(&mut self, peer: MemberId, piece: u32) {
        self.account(peer).wanted.remove(piece);
    }

    /// `peer` begins to send `piece`: whether it is to be kept. An error is the peer's fault.
    pub fn comes(&mut self, peer: MemberId, piece: u32, only_asked: bool) -> Result<bool, String> {
        let count = self.pieces.count();
        if piece >= count {
            return Err(format!("it sends piece {piece} of {count}"));
        }
        let held = self.held.contains(piece);
        let account = self.account(peer);
        account.awaited.remove(piece);
        if account.asked.remove(piece) {
            return Ok(true);
        }
        if only_asked || held {
            account.unasked += 1;
            if account.unasked > 2 * u64::from(count) + SPARE_REPEATS {
                return Err("it floods this host with pieces that were not asked for".to_owned());
            }
        }
        Ok(!only_asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer() -> Transfer {
        Transfer::new(Arc::default(), Arc::default(), Pieces { total_bytes: 100 << 10, piece_bytes: 16 << 10 }, 1)
    }

    #[test]
    fn numbers_beyond_the_end_are_the_peers_fault() {
        let mut t = transfer();
        assert!(t.hears(1, &Message::Request(vec![6]), 0).is_ok());
        assert!(t.hears(1, &Message::Request(vec![7]), 0).is_err());
        assert!(t.hears(1, &Message::Have(vec![u32::MAX]), 0).is_err());
        assert!(t.hears(1, &Message::Bitfield(vec![0x7f]), 0).is_ok());
        assert!(t.hears(1, &Message::Bitfield(vec![0xff]), 0).is_err());
        assert!(t.hears(1, &Message::Bitfield(vec![0, 0]), 0).is_err());
        assert!(t.comes(1, 6, false).is_ok());
        assert!(t.comes(1, 7, false).is_err());
    }

    #[test]
    fn repeated_requests_are_a_flood_in_the_end() {
        let mut t = transfer();
        let allowed = 1 + 2 * 7 + SPARE_REPEATS;
        for _ in 0..allowed {
            assert!(t.hears(1, &Message::Request(vec![3]), 0).is_ok());
        }
        assert!(t.hears(1, &Message::Request(vec![3]), 0).is_err());
        assert!(t.hears(2, &Message::Request(vec![3]), 0).is_ok(), "another peer's account");
        for _ in 0..2 * allowed {
            assert!(t.hears(3, &Message::Request(vec![3]), 0).is_ok());
            t.settled(3, 3);
        }
    }

    #[test]
    fn chatter_has_an_end_that_moves_with_time() {
        let mut t = transfer();
        let allowed = CHATTER_AT_FIRST + CHATTER_A_PIECE * 7;
        for _ in 0..allowed {
            assert!(t.hears(1, &Message::Interested, 0).is_ok());
        }
        assert!(t.hears(1, &Message::Interested, 0).is_err());
        assert!(t.hears(1, &Message::Interested, 1).is_ok());
    }

    #[test]
    fn what_was_not_asked_for_is_not_taken() {
        let mut t = transfer();
        t.says(1, &Message::Request(vec![2]));
        assert_eq!(t.comes(1, 2, true), Ok(true));
        assert_eq!(t.comes(1, 2, true), Ok(false), "once");
        assert_eq!(t.comes(1, 3, false), Ok(true), "pushed");
        for _ in 0..2 * 7 + SPARE_REPEATS - 1 {
            assert_eq!(t.comes(1, 4, true), Ok(false));
        }
        assert!(t.comes(1, 4, true).is_err());
    }
}
