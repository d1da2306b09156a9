//! A child in a tree: the pieces it lacks, the pieces on their way, and the tree whose turn it is.

use super::routes::Routes;
use crate::multicast::pieces::{PieceSet, Pieces};

/// How much may be queued for a child: enough to keep it busy, and little enough that the choice
/// can still change.
pub(super) const WINDOW_BYTES: u64 = 512 << 10;
/// The fewest pieces in the queue: one on its way and one behind it.
const WINDOW_PIECES: usize = 2;
/// How much a tree with a rate may catch up when it could not send, as time at its rate. Two pieces
/// if they take longer.
const BURST_US: f64 = 100_000.0;

/// The state of the link to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The first state: a session was asked for. Then `Up` or `Down`.
    Asked,
    /// Pieces are sent. Then `Down`.
    Up,
    /// The child is back and has not announced its pieces. From `Down`; then `Up` or `Down`.
    Returned,
    /// From any state; then `Returned`.
    Down {
        /// When a session is asked for again; `None` while the answer is awaited.
        retry_us: Option<u64>,
    },
}

#[derive(Debug)]
pub(super) struct Child {
    pub link: LinkState,
    /// Whether the child and all hosts below it in the first tree hold every piece.
    pub branch_done: bool,
    /// How often a session was asked for since there was one.
    pub attempts: u32,
    /// When to look at the child again, as in the node's list of times.
    pub wake_us: Option<u64>,
    /// The pieces that the child holds or gets from this host.
    has: PieceSet,
    queued: Vec<u32>,
    queued_bytes: u64,
    lanes: Vec<Lane>,
    /// The virtual times of the trees with something to send: start-time fair queueing (Goyal, Vin
    /// and Cheng 1996).
    served: f64,
}

/// The part of one tree.
#[derive(Debug)]
struct Lane {
    tree: usize,
    rate_bytes_s: Option<f64>,
    /// How many of the pieces that arrived for this tree the child holds or gets.
    cursor: usize,
    /// When the rate allows the next piece.
    allowed_us: f64,
    /// The virtual time of this tree.
    finish: f64,
}

impl Child {
    /// The child of a host that sends to it in these trees.
    pub(super) fn new(routes: &Routes, trees: impl Iterator<Item = usize>) -> Self {
        let lane = |tree: usize| Lane {
            tree,
            rate_bytes_s: routes.plan().trees[tree].rate_bytes_s,
            cursor: 0,
            allowed_us: f64::MIN,
            finish: 0.0,
        };
        Self {
            link: LinkState::Asked,
            branch_done: false,
            attempts: 0,
            wake_us: None,
            has: PieceSet::none(routes.pieces().count()),
            queued: Vec::new(),
            queued_bytes: 0,
            lanes: trees.map(lane).collect(),
            served: 0.0,
        }
    }

    /// The next piece to queue now. `arrived`: the pieces of this host by tree, in the order of
    /// arrival. After `None`, `wake_us` says when a rate allows more.
    pub(super) fn next(&mut self, now_us: u64, arrived: &[Vec<u32>], pieces: &Pieces) -> Option<u32> {
        self.wake_us = None;
        let full = self.queued_bytes >= WINDOW_BYTES && self.queued.len() >= WINDOW_PIECES;
        if self.link != LinkState::Up || full {
            return None;
        }
        let (mut best, mut soonest) = (None, f64::INFINITY);
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            let Some(piece) = lane.peek(&arrived[lane.tree], &self.has) else { continue };
            if lane.allowed_us > now_us as f64 {
                soonest = soonest.min(lane.allowed_us);
                continue;
            }
            let start = self.served.max(lane.finish);
            if best.is_none_or(|(_, _, least)| start < least) {
                best = Some((place, piece, start));
            }
        }
        let Some((place, piece, start)) = best else {
            self.wake_us = soonest.is_finite().then_some(soonest.ceil() as u64);
            return None;
        };
        let bytes = piece_bytes(pieces, piece);
        self.served = start;
        self.lanes[place].take(now_us, bytes, start);
        self.has.insert(piece);
        self.queued.push(piece);
        self.queued_bytes += bytes;
        Some(piece)
    }

    /// A piece has left the queue.
    pub(super) fn sent(&mut self, piece: u32, pieces: &Pieces) {
        if let Some(place) = self.queued.iter().position(|queued| *queued == piece) {
            self.queued.remove(place);
            self.queued_bytes -= piece_bytes(pieces, piece);
        }
    }

    /// The child holds these pieces, from any sender. Queued copies of them are not needed any
    /// more.
    pub(super) fn has_got(&mut self, got: impl Iterator<Item = u32>, pieces: &Pieces) -> Vec<u32> {
        let mut needless = Vec::new();
        for piece in got {
            if !self.has.insert(piece) && self.queued.contains(&piece) {
                self.sent(piece, pieces);
                needless.push(piece);
            }
        }
        needless
    }

    /// The queue and all knowledge of the child are lost.
    pub(super) fn forget(&mut self) {
        self.has = PieceSet::none(self.has.pieces());
        self.queued.clear();
        self.queued_bytes = 0;
        self.branch_done = false;
        self.lanes.iter_mut().for_each(|lane| lane.cursor = 0);
    }
}

impl Lane {
    /// The first piece that the child lacks.
    fn peek(&mut self, arrived: &[u32], has: &PieceSet) -> Option<u32> {
        let lacks = arrived.get(self.cursor..)?.iter().position(|piece| !has.contains(*piece));
        self.cursor = lacks.map_or(arrived.len(), |skipped| self.cursor + skipped);
        arrived.get(self.cursor).copied()
    }

    fn take(&mut self, now_us: u64, bytes: u64, start: f64) {
        self.finish = start + bytes as f64 / self.rate_bytes_s.unwrap_or(1.0);
        if let Some(rate) = self.rate_bytes_s {
            let takes_us = bytes as f64 / rate * 1e6;
            let earliest = now_us as f64 - BURST_US.max(2.0 * takes_us);
            self.allowed_us = self.allowed_us.max(earliest) + takes_us;
        }
    }
}

fn piece_bytes(pieces: &Pieces, piece: u32) -> u64 {
    let range = pieces.range(piece);
    range.end - range.start
}
