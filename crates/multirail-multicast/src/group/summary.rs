//! The outcome of a broadcast.

use std::time::Duration;

/// The outcome of a broadcast.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// The length of the data in bytes.
    pub total_bytes: u64,
    /// The size of a piece in bytes.
    pub piece_bytes: u32,
    /// The number of pieces; 0 if the data travelled with its manifest.
    pub pieces: u32,
    /// The hosts without the root: those that were given, in that order, then those that joined by a
    /// ticket.
    pub hosts: Vec<HostSummary>,
    /// The cluster of the root, as it is known at the end.
    pub root_cluster: u32,
    /// Payload bytes from the cluster of the row to the cluster of the column, as the receivers
    /// counted them.
    pub wan_bytes: Vec<Vec<u64>>,
    /// The time for reading and hashing the source.
    pub prepared: Duration,
    /// The time from the first invitation until all hosts had answered or were not waited for any
    /// longer.
    pub setup: Duration,
    /// The time from the start of the command ([`Options::began`](crate::Options::began)) until the last
    /// complete host had reported.
    pub elapsed: Duration,
}

/// The outcome of one host.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HostSummary {
    /// The given address.
    pub address: String,
    /// Whether the host was not given, and joined by a ticket.
    pub has_joined_later: bool,
    /// The cluster, as it is known at the end.
    pub cluster: u32,
    /// Whether the host is complete.
    pub outcome: Outcome,
    /// Bytes that an earlier attempt left behind.
    pub resumed_bytes: u64,
    /// Bytes of verified pieces.
    pub held_bytes: u64,
    /// The time from the start of the command until the host reported that it is complete.
    pub complete_after: Option<Duration>,
    /// Complaints of other hosts, for example about wrong pieces. The peer is banned by these
    /// hosts.
    pub complaints: Vec<String>,
}

/// Whether a host is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The host holds every piece, verified and under its final name.
    Complete,
    /// The host is incomplete: the cause, and what to do.
    Failed(String),
}

impl Summary {
    /// Whether every host that was given is complete.
    pub fn is_complete(&self) -> bool {
        self.hosts.iter().all(|h| h.has_joined_later || h.outcome == Outcome::Complete)
    }
}
