//! What became of a broadcast.

use std::time::Duration;

/// What became of a broadcast.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Length of the data.
    pub total_bytes: u64,
    /// Size of a piece.
    pub piece_bytes: u32,
    /// How many pieces there were; 0 if the data was so little that it went with the invitation's list of hashes.
    pub pieces: u32,
    /// The hosts, in the order in which they were given. The root is not among them.
    pub hosts: Vec<HostSummary>,
    /// Payload that went from the cluster of the row to the cluster of the column, counted by its receivers, in bytes.
    pub wan_bytes: Vec<Vec<u64>>,
    /// Reading and hashing the source.
    pub prepared: Duration,
    /// From the first invitation until all hosts had answered, or those that did not were waited for long enough.
    pub setup: Duration,
    /// From the begin of the broadcast itself until the last host that completed had told so.
    pub elapsed: Duration,
}

/// What became of one host.
#[derive(Debug, Clone)]
pub struct HostSummary {
    /// As it was given.
    pub address: String,
    /// Its cluster.
    pub cluster: u32,
    /// Whether it has the whole.
    pub outcome: Outcome,
    /// What it had from an earlier attempt, in bytes.
    pub resumed_bytes: u64,
    /// What it has, verified, in bytes.
    pub held_bytes: u64,
    /// From the begin of the broadcast itself until it had told that it is complete.
    pub complete_after: Option<Duration>,
    /// What other hosts complain of: wrong pieces, floods. One who sends them is no longer listened to.
    pub complaints: Vec<String>,
}

/// Whether a host has the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It has everything, verified, under its final name.
    Complete,
    /// It has not: who caused it, and what to do.
    Failed(String),
}

impl Summary {
    /// Whether every host has the whole.
    pub fn is_complete(&self) -> bool {
        self.hosts.iter().all(|h| h.outcome == Outcome::Complete)
    }
}
