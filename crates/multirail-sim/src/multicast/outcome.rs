//! The outcome of a simulated multicast.

use multirail_proto::multicast::members::Members;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The goal of the run was reached.
    Done,
    /// No event is left, but the goal was not reached.
    Stalled,
    /// [`Scenario::max_us`](super::Scenario::max_us) was reached.
    TimeLimit,
    /// [`Scenario::max_steps`](super::Scenario::max_steps) was reached.
    StepLimit,
}

/// The traffic from one cluster to another, or within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes of pieces that arrived, with headers.
    pub piece_bytes: u64,
    /// Bytes of control messages that were sent, with headers.
    pub control_bytes: u64,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// The time of the end.
    pub end_us: u64,
    /// When each host held every piece for the first time.
    pub complete_us: Vec<Option<u64>>,
    /// When each host reported that all hosts are complete.
    pub finished_us: Vec<Option<u64>>,
    /// Whether each host is alive at the end.
    pub alive: Vec<bool>,
    /// The number of hosts with which each host ever had, or asked for, a session.
    pub peers: Vec<u32>,
    /// `traffic[i][j]`: from cluster `i` to cluster `j`.
    pub traffic: Vec<Vec<Traffic>>,
    /// Control messages sent.
    pub control_messages: u64,
    /// Their bytes, with headers.
    pub control_bytes: u64,
    /// Bytes of pieces that left a sender's port, or were about to.
    pub sent_bytes: u64,
    /// Bytes of pieces that arrived.
    pub arrived_bytes: u64,
    /// Bytes of pieces that were under way to or from a host that died.
    pub lost_bytes: u64,
    /// Bytes of pieces that are under way at the end.
    pub under_way_bytes: u64,
    /// Pieces that arrived at a host that held them.
    pub duplicate_pieces: u64,
    /// How often a piece entered a cluster that it had entered, or begun to enter, before.
    pub repeated_entries: u64,
    /// Mistakes of a node: messages to hosts without a session, and pieces that the sender does not
    /// hold.
    pub mistakes: u64,
    /// Events and outputs.
    pub steps: u64,
}

impl Outcome {
    /// When the last living host was complete; `None` if one is not.
    pub fn makespan_us(&self) -> Option<u64> {
        let living = self.complete_us.iter().zip(&self.alive).filter(|(_, alive)| **alive);
        living.map(|(at, _)| *at).try_fold(0, |last, at| at.map(|at| last.max(at)))
    }

    /// Bytes of pieces and control messages between clusters.
    pub fn wan_bytes(&self) -> u64 {
        let pairs =
            self.traffic.iter().enumerate().flat_map(|(from, row)| row.iter().enumerate().map(move |t| (from, t)));
        pairs.filter(|(from, (to, _))| from != to).map(|(_, (_, t))| t.piece_bytes + t.control_bytes).sum()
    }

    /// The number of living hosts that are complete, and of living hosts.
    pub fn counts(&self, members: &Members) -> (usize, usize) {
        let living = (0..members.count()).filter(|m| self.alive[*m]);
        living.fold((0, 0), |(complete, all), m| (complete + usize::from(self.complete_us[m].is_some()), all + 1))
    }
}
