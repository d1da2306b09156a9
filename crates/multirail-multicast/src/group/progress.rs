//! The progress of a broadcast, for displays.

use multirail_net::sync::lock;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A handle that follows a broadcast from another task.
#[derive(Debug, Default)]
pub struct Progress {
    state: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    snapshot: Snapshot,
    started: Option<Instant>,
}

/// The progress at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The length of the data in bytes; 0 while the source is being read.
    pub total_bytes: u64,
    /// Bytes of the source that were read and hashed.
    pub hashed_bytes: u64,
    /// The time since the command began.
    pub elapsed: Duration,
    /// The hosts without the root, in the order in which they were given.
    pub hosts: Vec<HostProgress>,
    /// Payload bytes from the cluster of the row to the cluster of the column, as the receivers
    /// counted them.
    pub wan_bytes: Vec<Vec<u64>>,
}

/// The progress of a host.
#[derive(Debug, Clone)]
pub struct HostProgress {
    /// The given address.
    pub address: String,
    /// The cluster.
    pub cluster: u32,
    /// Bytes of verified pieces.
    pub held_bytes: u64,
    /// The state.
    pub state: HostState,
}

/// The state of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostState {
    /// The host was not reached yet, or was lost and is tried again. With the last error.
    Waiting(Option<String>),
    /// The host takes part.
    Running,
    /// The host holds every piece under its final name.
    Complete,
    /// The host is left out, and why.
    Failed(String),
}

impl Progress {
    /// The current progress.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let elapsed = state.started.map_or(Duration::ZERO, |s| s.elapsed());
        Snapshot { elapsed, ..state.snapshot.clone() }
    }

    /// A broadcast begins.
    pub(super) fn start(&self, began: Option<Instant>, total_bytes: u64, hosts: Vec<HostProgress>, clusters: usize) {
        let mut state = self.lock();
        state.started = Some(began.unwrap_or_else(Instant::now));
        state.snapshot.total_bytes = total_bytes;
        state.snapshot.hosts = hosts;
        state.snapshot.wan_bytes = vec![vec![0; clusters]; clusters];
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.lock().snapshot);
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        lock(&self.state)
    }
}
