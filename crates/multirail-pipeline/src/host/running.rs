//! The running copies of one host.

use crate::edge::Notifier;
use crate::runtime::{Counters, Counts, QueuedUnit};
use multirail_proto::pipeline::progress::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long dropping waits for copies to end. A copy that takes longer is detached.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How often dropping looks whether a copy has ended.
const END_POLL: Duration = Duration::from_millis(1);
/// The value of [`CopyHandle::aborted_unit`] that stands for every unit of work.
const ALL_UNITS: u32 = u32::MAX;

/// The copies of one host. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct RunningHost {
    pub(super) copies: Vec<CopyHandle>,
}

/// The owner's side of a copy's thread.
#[derive(Debug)]
pub(super) struct CopyHandle {
    pub filter: usize,
    pub copy: usize,
    pub units: Option<Sender<QueuedUnit>>,
    pub aborted_unit: Arc<AtomicU32>,
    pub notifier: Arc<Notifier>,
    pub counters: Arc<Counters>,
    pub thread: Option<JoinHandle<()>>,
}

/// Called at a copy's end of a unit of work: filter, copy, unit, outcome, and the copy's counters.
pub(crate) type OnEnded = Arc<dyn Fn(usize, usize, u32, Outcome, Counts) + Send + Sync>;

impl RunningHost {
    /// Queues a unit of work for every copy.
    pub(crate) fn begin(&self, unit: &QueuedUnit) {
        for copy in &self.copies {
            // A thread that has ended has already reported it.
            let _ = copy.units.as_ref().map(|units| units.send(unit.clone()));
        }
    }

    /// Stops a unit of work in every copy.
    pub(crate) fn abort(&self, unit: u32) {
        for copy in &self.copies {
            copy.aborted_unit.store(unit, Ordering::Release);
            copy.notifier.notify();
        }
    }

    /// What the copies have done: filter, copy, counts.
    pub(crate) fn counts(&self) -> Vec<(usize, usize, Counts)> {
        self.copies.iter().map(|c| (c.filter, c.copy, c.counters.snapshot())).collect()
    }
}

impl Drop for RunningHost {
    fn drop(&mut self) {
        self.abort(ALL_UNITS);
        self.copies.iter_mut().for_each(|c| drop(c.units.take()));
        let until = Instant::now() + END_TIMEOUT;
        for copy in &mut self.copies {
            let Some(thread) = copy.thread.take() else { continue };
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(END_POLL);
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}
