//! What came of a simulated multicast.

use crate::multicast::members::Members;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All that was wanted has happened.
    Done,
    /// Nothing will happen any more, and it is not done.
    Stalled,
    /// [`Scenario::max_us`](super::Scenario::max_us) is over.
    TimeLimit,
    /// [`Scenario::max_steps`](super::Scenario::max_steps) were made.
    StepLimit,
}

/// What went from one cluster to another, or stayed in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes of pieces that arrived, headers included.
    pub piece_bytes: u64,
    /// Bytes of control messages that were sent, headers included.
    pub control_bytes: u64,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// When.
    pub end_us: u64,
    /// When each host had every piece, for the first time.
    pub complete_us: Vec<Option<u64>>,
    /// When each host told that everyone has everything.
    pub finished_us: Vec<Option<u64>>,
    /// Whether each host lives at the end.
    pub alive: Vec<bool>,
    /// `traffic[i][j]`: from cluster `i` to cluster `j`.
    pub traffic: Vec<Vec<Traffic>>,
    /// Control messages sent.
    pub control_messages: u64,
    /// Their bytes, headers included.
    pub control_bytes: u64,
    /// Bytes of pieces that left a sender's port, or were about to.
    pub sent_bytes: u64,
    /// Bytes of pieces that arrived.
    pub arrived_bytes: u64,
    /// Bytes of pieces that were under way to or from a host that died.
    pub lost_bytes: u64,
    /// Bytes of pieces that are under way at the end.
    pub under_way_bytes: u64,
    /// Pieces that came to a host that had them.
    pub duplicate_pieces: u64,
    /// How often a piece entered a cluster that it had already entered, or begun in.
    pub repeated_entries: u64,
    /// Things sent to hosts that there was no session with, and pieces that the sender had not: mistakes of a node.
    pub mistakes: u64,
    /// Events and outputs.
    pub steps: u64,
}

impl Outcome {
    /// When the last of the hosts that live had everything; `None` if one has not.
    pub fn makespan_us(&self) -> Option<u64> {
        let living = self.complete_us.iter().zip(&self.alive).filter(|(_, alive)| **alive);
        living.map(|(at, _)| *at).try_fold(0, |last, at| at.map(|at| last.max(at)))
    }

    /// Bytes of pieces and control messages that went from one cluster to another.
    pub fn wan_bytes(&self) -> u64 {
        let pairs =
            self.traffic.iter().enumerate().flat_map(|(from, row)| row.iter().enumerate().map(move |t| (from, t)));
        pairs.filter(|(from, (to, _))| from != to).map(|(_, (_, t))| t.piece_bytes + t.control_bytes).sum()
    }

    /// How many of the living hosts have everything, and how many live.
    pub fn counts(&self, members: &Members) -> (usize, usize) {
        let living = (0..members.count()).filter(|m| self.alive[*m]);
        living.fold((0, 0), |(complete, all), m| (complete + usize::from(self.complete_us[m].is_some()), all + 1))
    }
}
