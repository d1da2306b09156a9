//! What a host knows of a peer, and how much it requests of the peer.

use crate::multicast::pieces::PieceSet;
use std::collections::VecDeque;

/// The requests under way at a peer of the same cluster, if the cluster is a full mesh.
pub(super) const MESH_WINDOW: usize = 8;
/// The same with more peers, since what waits at one peer could come from another one.
pub(super) const CHORD_WINDOW: usize = 4;
/// The fewest requests under way at a peer of another cluster: one piece on its way and one behind
/// it. Also the first request, so that small data is not all requested over one slow link.
pub(super) const MIN_WINDOW: usize = 2;
/// The most requests under way at a peer.
const MAX_WINDOW: usize = 512;
/// No more is requested of a peer than it brings in this time. Where a link becomes slow, its
/// pieces are late.
const MAX_QUEUE_S: f64 = 1.0;
/// The time constant of the mean rate.
const RATE_TIME_S: f64 = 0.3;

/// A peer with a session.
#[derive(Debug)]
pub(super) struct AdaptivePeer {
    pub local: bool,
    /// Whether the peer is in the cluster of the root, where every piece is to be had.
    pub at_source: bool,
    pub has: PieceSet,
    /// Whether the peer is next to the root and `has` includes pieces that it has not announced. It sends a
    /// requested piece as soon as it holds it.
    pub presumed: bool,
    pub announced: PieceSet,
    /// The pieces to request of this peer, a relay, before others.
    pub first: PieceSet,
    /// The pieces that this host is not to get from the peer, a neighbour ([`super::spread`]).
    pub for_others: PieceSet,
    /// The pieces that the peer is fetching from others.
    pub fetching: PieceSet,
    /// The pieces that the peer wants to be told of.
    pub watch: PieceSet,
    pub complete: bool,
    /// When the peer last had nothing to spare.
    pub refused_us: Option<u64>,
    /// The pieces that the peer requested and was not sent.
    pub owed: usize,
    /// The pieces that the peer requested and this host does not hold yet.
    pub waits: PieceSet,
    pub pipe: Pipe,
}

/// The requests under way at a peer, and the rate of the answers.
///
/// The number of requests keeps the sender's queue from running empty. The sender reports an empty
/// queue (`Starved`), and the window grows. This needs no round-trip time, which the queues of a
/// shared link make meaningless.
#[derive(Debug)]
pub(super) struct Pipe {
    asked: VecDeque<u32>,
    window: usize,
    /// The number of pieces to arrive before the window grows again: they were requested with the
    /// old window.
    hold: usize,
    rate_pieces_s: f64,
    /// When the last piece arrived, or the first open request was made.
    last_us: u64,
}

impl Pipe {
    fn new(window: usize) -> Self {
        Self { asked: VecDeque::new(), window, hold: 0, rate_pieces_s: 0.0, last_us: 0 }
    }

    /// How many more pieces may be requested.
    pub(super) fn room(&self) -> usize {
        let most = if self.rate_pieces_s > 0.0 { (self.rate_pieces_s * MAX_QUEUE_S) as usize } else { MAX_WINDOW };
        self.window.min(most.max(MIN_WINDOW)).saturating_sub(self.asked.len())
    }

    /// The rate in pieces/s; 0 before the first piece.
    pub(super) fn rate_pieces_s(&self) -> f64 {
        self.rate_pieces_s
    }

    pub(super) fn ask(&mut self, piece: u32, now_us: u64) {
        if self.asked.is_empty() {
            self.last_us = now_us;
        }
        self.asked.push_back(piece);
    }

    /// A piece arrived; whether it was requested.
    pub(super) fn arrived(&mut self, piece: u32, now_us: u64) -> bool {
        let Some(at) = self.asked.iter().position(|p| *p == piece) else { return false };
        self.asked.remove(at);
        self.hold = self.hold.saturating_sub(1);
        let took_s = now_us.saturating_sub(self.last_us) as f64 / 1e6;
        // Of several pieces that arrive at once, each counts for a short time, and all together for
        // their true rate.
        let weight = 1.0 - (-took_s / RATE_TIME_S).exp();
        let now_pieces_s = if took_s > 1e-6 { weight / took_s } else { 1.0 / RATE_TIME_S };
        self.rate_pieces_s += now_pieces_s - weight * self.rate_pieces_s;
        self.last_us = now_us;
        true
    }

    /// The piece is no longer wanted from this peer; whether it was.
    pub(super) fn forget(&mut self, piece: u32) -> bool {
        match self.asked.iter().position(|p| *p == piece) {
            Some(at) => self.asked.remove(at).is_some(),
            None => false,
        }
    }

    /// The sender's queue is empty. The window is the cause only if it is full.
    pub(super) fn starved(&mut self) {
        if self.hold == 0 && self.asked.len() >= self.window {
            self.window = (self.window + self.window / 2 + 1).min(MAX_WINDOW);
            self.hold = self.asked.len();
        }
    }

    /// The open requests, in the order in which they were made.
    pub(super) fn asked(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + '_ {
        self.asked.iter().copied()
    }

    /// The time until the piece at this position of the queue arrives, in seconds. A peer that has
    /// sent nothing for long counts as that slow.
    pub(super) fn wait_s(&self, place: usize, now_us: u64) -> f64 {
        let silent_s = if self.asked.is_empty() { 0.0 } else { now_us.saturating_sub(self.last_us) as f64 / 1e6 };
        let piece_s = if self.rate_pieces_s > 0.0 { (1.0 / self.rate_pieces_s).max(silent_s) } else { silent_s };
        piece_s * (place + 1) as f64
    }
}

impl AdaptivePeer {
    /// The peer will soon hold every piece.
    pub(super) fn presume(&mut self) {
        if !self.complete {
            self.presumed = true;
            self.has = PieceSet::all(self.has.pieces());
        }
    }

    /// The peer holds what it has announced, and nothing else.
    pub(super) fn stop_presuming(&mut self) {
        if std::mem::take(&mut self.presumed) {
            self.has = self.announced.clone();
        }
    }

    /// The peer holds these pieces.
    pub(super) fn announces(&mut self, pieces: impl Iterator<Item = u32>) {
        for piece in pieces {
            self.has.insert(piece);
            self.announced.insert(piece);
            self.fetching.remove(piece);
        }
    }

    /// The peer is in this or another cluster than was thought. With `presumes`, a peer that has announced
    /// nothing will soon hold every piece. Returns the requests that the peer may never answer.
    pub(super) fn regroup(&mut self, local: bool, at_source: bool, watch: &PieceSet, presumes: bool) -> Vec<u32> {
        (self.local, self.at_source) = (local, at_source);
        watch.iter().for_each(|piece| {
            self.watch.insert(piece);
        });
        if local {
            self.pipe.window = self.pipe.window.max(CHORD_WINDOW);
        }
        if presumes {
            if self.announced.is_empty() {
                self.presume();
            }
            return Vec::new();
        }
        self.stop_presuming();
        let has = &self.has;
        let (here, vain) = std::mem::take(&mut self.pipe.asked).into_iter().partition(|piece| has.contains(*piece));
        self.pipe.asked = here;
        Vec::from(vain)
    }

    pub(super) fn new(local: bool, at_source: bool, watch: PieceSet, window: usize) -> Self {
        let none = PieceSet::none(watch.pieces());
        Self {
            local,
            at_source,
            has: none.clone(),
            presumed: false,
            announced: none.clone(),
            first: none.clone(),
            for_others: none.clone(),
            fetching: none.clone(),
            watch,
            complete: false,
            refused_us: None,
            owed: 0,
            waits: none,
            pipe: Pipe::new(window),
        }
    }
}
