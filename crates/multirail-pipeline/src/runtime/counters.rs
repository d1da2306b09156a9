//! What a copy has done so far, for observers on other threads.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A copy's counters. Only the copy's thread changes them.
#[derive(Debug)]
pub(crate) struct Counters {
    pub buffers_in: AtomicU64,
    pub bytes_in: AtomicU64,
    pub buffers_out: AtomicU64,
    pub bytes_out: AtomicU64,
    pub busy_ns: AtomicU64,
    pub waited_in_ns: AtomicU64,
    pub waited_out_ns: AtomicU64,
    /// Buffers that were sent and that no consumer has started on. A level, not a sum.
    pub queued: AtomicU64,
    /// The current [`Activity`] in the lowest bits, and its start in nanoseconds since `epoch`.
    activity: AtomicU64,
    epoch: Instant,
}

/// What a copy is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The copy has no unit of work.
    Idle,
    /// The filter's own code runs.
    Working,
    /// The copy waits for input.
    Reading,
    /// The copy waits until a consumer takes its output.
    Writing,
}

const ACTIVITY_BITS: u32 = 2;
/// Attempts to read all counters within one activity.
const SNAPSHOT_TRIES: u32 = 8;

/// A copy's counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Buffers read.
    pub buffers_in: u64,
    /// Bytes of the buffers that were read.
    pub bytes_in: u64,
    /// Buffers written.
    pub buffers_out: u64,
    /// Bytes of the buffers that were written.
    pub bytes_out: u64,
    /// Nanoseconds in the filter's own code.
    pub busy_ns: u64,
    /// Nanoseconds of waiting for input.
    pub waited_in_ns: u64,
    /// Nanoseconds of waiting until a consumer took output.
    pub waited_out_ns: u64,
    /// Buffers that are sent at this moment and that no consumer has started on.
    pub queued: u64,
}

pub(super) fn add(counter: &AtomicU64, what: u64) {
    counter.fetch_add(what, Ordering::Relaxed);
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            buffers_in: zero(),
            bytes_in: zero(),
            buffers_out: zero(),
            bytes_out: zero(),
            busy_ns: zero(),
            waited_in_ns: zero(),
            waited_out_ns: zero(),
            queued: zero(),
            activity: zero(),
            epoch: Instant::now(),
        }
    }
}

impl Counters {
    /// Notes that the copy does something else from now on.
    pub(crate) fn switch_to(&self, activity: Activity) {
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        let before = self.activity.load(Ordering::Relaxed);
        if let Some(counter) = self.time_of(before) {
            add(counter, now_ns.saturating_sub(before >> ACTIVITY_BITS));
        }
        self.activity.store(now_ns << ACTIVITY_BITS | activity as u64, Ordering::Release);
    }

    /// The counter for the time of an activity.
    fn time_of(&self, activity: u64) -> Option<&AtomicU64> {
        match activity & ((1 << ACTIVITY_BITS) - 1) {
            a if a == Activity::Working as u64 => Some(&self.busy_ns),
            a if a == Activity::Reading as u64 => Some(&self.waited_in_ns),
            a if a == Activity::Writing as u64 => Some(&self.waited_out_ns),
            _ => None,
        }
    }

    /// The counters, including the time of the current activity so far.
    pub(crate) fn snapshot(&self) -> Counts {
        let mut activity = self.activity.load(Ordering::Acquire);
        let mut counts = self.finished();
        for _ in 0..SNAPSHOT_TRIES {
            let after = self.activity.load(Ordering::Acquire);
            if after == activity {
                break;
            }
            (activity, counts) = (after, self.finished());
        }
        let so_far = (self.epoch.elapsed().as_nanos() as u64).saturating_sub(activity >> ACTIVITY_BITS);
        match activity & ((1 << ACTIVITY_BITS) - 1) {
            a if a == Activity::Working as u64 => counts.busy_ns += so_far,
            a if a == Activity::Reading as u64 => counts.waited_in_ns += so_far,
            a if a == Activity::Writing as u64 => counts.waited_out_ns += so_far,
            _ => {}
        }
        counts
    }

    fn finished(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            buffers_in: get(&self.buffers_in),
            bytes_in: get(&self.bytes_in),
            buffers_out: get(&self.buffers_out),
            bytes_out: get(&self.bytes_out),
            busy_ns: get(&self.busy_ns),
            waited_in_ns: get(&self.waited_in_ns),
            waited_out_ns: get(&self.waited_out_ns),
            queued: get(&self.queued),
        }
    }
}

impl Counts {
    /// The sum of two copies' counters.
    pub fn plus(self, other: Self) -> Self {
        Self {
            buffers_in: self.buffers_in + other.buffers_in,
            bytes_in: self.bytes_in + other.bytes_in,
            buffers_out: self.buffers_out + other.buffers_out,
            bytes_out: self.bytes_out + other.bytes_out,
            busy_ns: self.busy_ns + other.busy_ns,
            waited_in_ns: self.waited_in_ns + other.waited_in_ns,
            waited_out_ns: self.waited_out_ns + other.waited_out_ns,
            queued: self.queued + other.queued,
        }
    }
}
