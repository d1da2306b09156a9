//! What a host knows of one of its peers, and how much it asks of it.

use super::super::pieces::PieceSet;
use std::collections::VecDeque;

/// Requests under way at a peer next door.
const LOCAL_WINDOW: usize = 8;
/// Elsewhere never fewer, one on its way and one behind it, and not more before anything is known of it: of small data, all would be asked
/// of a slow link before others have it.
pub(super) const MIN_WINDOW: usize = 2;
/// Never more.
const MAX_WINDOW: usize = 512;
/// No more is asked of a peer than it brings in this time: where a link becomes slow, what was asked of it is late.
const MAX_QUEUE_S: f64 = 1.0;
/// Rates are means over about this time.
const RATE_TIME_S: f64 = 0.3;

/// A peer with a session.
#[derive(Debug)]
pub(super) struct Peer {
    pub local: bool,
    /// It is in the root's cluster, where everything is to be had next door.
    pub at_source: bool,
    pub has: PieceSet,
    /// It has not said what it has, and is next to the root: what is asked of it before it is there, is sent when it is.
    pub presumed: bool,
    /// What it gets from somebody else at this moment.
    pub fetching: PieceSet,
    /// What it wants to be told of.
    pub watch: PieceSet,
    pub complete: bool,
    /// It had nothing to spare at this time.
    pub refused_us: Option<u64>,
    /// What it asked for and has not been sent.
    pub owed: usize,
    /// What it asked for and is not here yet.
    pub waits: PieceSet,
    pub pipe: Pipe,
}

/// What was asked of a peer, and how fast it comes.
///
/// As many requests are under way as keep the sender's queue from running dry: it says so when that happens (`Starved`), and the window
/// grows. That needs no round trip time, which the queues of a shared link make meaningless.
#[derive(Debug)]
pub(super) struct Pipe {
    asked: VecDeque<u32>,
    window: usize,
    /// So many must come before the window grows again: they were asked for with the old one.
    hold: usize,
    rate_pieces_s: f64,
    /// When the last piece came, or the first of those asked was asked.
    last_us: u64,
}

impl Pipe {
    fn new(window: usize) -> Self {
        Self { asked: VecDeque::new(), window, hold: 0, rate_pieces_s: 0.0, last_us: 0 }
    }

    /// How many more can be asked.
    pub fn room(&self) -> usize {
        let most = if self.rate_pieces_s > 0.0 { (self.rate_pieces_s * MAX_QUEUE_S) as usize } else { MAX_WINDOW };
        self.window.min(most.max(MIN_WINDOW)).saturating_sub(self.asked.len())
    }

    /// How fast they come; 0 before the first.
    pub fn rate_pieces_s(&self) -> f64 {
        self.rate_pieces_s
    }

    pub fn ask(&mut self, piece: u32, now_us: u64) {
        if self.asked.is_empty() {
            self.last_us = now_us;
        }
        self.asked.push_back(piece);
    }

    /// A piece came; whether it was asked for.
    pub fn arrived(&mut self, piece: u32, now_us: u64) -> bool {
        let Some(at) = self.asked.iter().position(|p| *p == piece) else { return false };
        self.asked.remove(at);
        self.hold = self.hold.saturating_sub(1);
        let took_s = now_us.saturating_sub(self.last_us) as f64 / 1e6;
        // Of several that come at once each counts for little time, and all together for what they are.
        let weight = 1.0 - (-took_s / RATE_TIME_S).exp();
        let now_pieces_s = if took_s > 1e-6 { weight / took_s } else { 1.0 / RATE_TIME_S };
        self.rate_pieces_s += now_pieces_s - weight * self.rate_pieces_s;
        self.last_us = now_us;
        true
    }

    /// No longer wanted from this peer; whether it was.
    pub fn forget(&mut self, piece: u32) -> bool {
        match self.asked.iter().position(|p| *p == piece) {
            Some(at) => self.asked.remove(at).is_some(),
            None => false,
        }
    }

    /// The sender's queue ran dry. Its fault is the window only if that is full.
    pub fn starved(&mut self) {
        if self.hold == 0 && self.asked.len() >= self.window {
            self.window = (self.window + self.window / 2 + 1).min(MAX_WINDOW);
            self.hold = self.asked.len();
        }
    }

    /// In the order in which they were asked for.
    pub fn asked(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + '_ {
        self.asked.iter().copied()
    }

    /// How long until a piece at this place in the queue is here, in seconds. A peer of which nothing has come for long is taken to be
    /// as slow as that.
    pub fn wait_s(&self, place: usize, now_us: u64) -> f64 {
        let silent_s = if self.asked.is_empty() { 0.0 } else { now_us.saturating_sub(self.last_us) as f64 / 1e6 };
        let piece_s = if self.rate_pieces_s > 0.0 { (1.0 / self.rate_pieces_s).max(silent_s) } else { silent_s };
        piece_s * (place + 1) as f64
    }
}

impl Peer {
    /// It says what it has.
    pub fn speaks(&mut self) {
        if std::mem::take(&mut self.presumed) {
            self.has = PieceSet::none(self.has.pieces());
        }
    }

    pub fn new(local: bool, at_source: bool, watch: PieceSet) -> Self {
        let none = PieceSet::none(watch.pieces());
        Self {
            local,
            at_source,
            has: none.clone(),
            presumed: false,
            fetching: none.clone(),
            watch,
            complete: false,
            refused_us: None,
            owed: 0,
            waits: none,
            pipe: Pipe::new(if local { LOCAL_WINDOW } else { MIN_WINDOW }),
        }
    }
}
