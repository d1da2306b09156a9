//! Tells the tasks of the hosts that there are other clusters, or more hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Joins within this time are told to the hosts together.
const GATHER: Duration = Duration::from_millis(100);

/// Counts what the hosts are to be told of. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Grouping {
    version: Arc<watch::Sender<u64>>,
    /// Whether an announcement is waiting.
    waits: Arc<AtomicBool>,
}

impl Grouping {
    pub(super) fn new() -> Self {
        Self { version: Arc::new(watch::Sender::new(0)), waits: Arc::default() }
    }

    /// The number of announcements so far.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Has all hosts told now.
    pub(super) fn announce(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Has all hosts told soon, and of what else happens until then.
    pub(super) fn announce_soon(&self) {
        if self.waits.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(GATHER).await;
            this.waits.store(false, Ordering::Release);
            this.announce();
        });
    }
}
