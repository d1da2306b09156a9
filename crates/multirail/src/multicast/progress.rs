//! A broadcast as it goes on, for whoever watches.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Follows a broadcast from elsewhere (a progress display).
#[derive(Debug, Default)]
pub struct Progress {
    state: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    snapshot: Snapshot,
    started: Option<Instant>,
}

/// A broadcast at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Length of the data; 0 while the source is still being read.
    pub total_bytes: u64,
    /// Bytes of the source that were read and hashed, before anything is sent.
    pub hashed_bytes: u64,
    /// Since the first invitation.
    pub elapsed: Duration,
    /// The hosts, in the order in which they were given. The root is not among them.
    pub hosts: Vec<HostProgress>,
    /// Payload that went from the cluster of the row to the cluster of the column, counted by its receivers, in bytes.
    pub wan_bytes: Vec<Vec<u64>>,
}

/// How far a host is.
#[derive(Debug, Clone)]
pub struct HostProgress {
    /// As it was given.
    pub address: String,
    /// Its cluster.
    pub cluster: u32,
    /// What it has, verified.
    pub held_bytes: u64,
    /// Its state.
    pub state: HostState,
}

/// What a host is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostState {
    /// It was not reached yet, or was lost and is tried again; with the last error.
    Waiting(Option<String>),
    /// It takes part.
    Running,
    /// It has everything, under its final name.
    Complete,
    /// It is left out, and why.
    Failed(String),
}

impl Progress {
    /// How far it is now.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let elapsed = state.started.map_or(Duration::ZERO, |s| s.elapsed());
        Snapshot { elapsed, ..state.snapshot.clone() }
    }

    /// The first invitation goes out.
    pub(super) fn start(&self, total_bytes: u64, hosts: Vec<HostProgress>, clusters: usize) {
        let mut state = self.lock();
        state.started = Some(Instant::now());
        state.snapshot.total_bytes = total_bytes;
        state.snapshot.hosts = hosts;
        state.snapshot.wan_bytes = vec![vec![0; clusters]; clusters];
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.lock().snapshot);
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
