//! What a copy has done so far, for whoever watches.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A copy's counters. The copy alone adds.
#[derive(Debug)]
pub(super) struct Counters {
    pub buffers_in: AtomicU64,
    pub bytes_in: AtomicU64,
    pub buffers_out: AtomicU64,
    pub bytes_out: AtomicU64,
    pub busy_ns: AtomicU64,
    pub waited_in_ns: AtomicU64,
    pub waited_out_ns: AtomicU64,
    /// Not a sum: buffers that are on the way to the next filters.
    pub queued: AtomicU64,
    /// What it is doing, and since when: a [`Doing`] in the lowest bits, and nanoseconds since `epoch`.
    doing: AtomicU64,
    epoch: Instant,
}

/// What a copy is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It has no unit of work.
    Nothing,
    /// The filter's own code runs.
    Works,
    /// It waits for input.
    Reads,
    /// It waits until somebody takes its output.
    Writes,
}

const DOING_BITS: u32 = 2;
/// Tries for a picture in which everything is of the same moment.
const SNAPSHOT_TRIES: u32 = 8;

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Buffers read.
    pub buffers_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Buffers written.
    pub buffers_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Time in the filter's own code, in nanoseconds.
    pub busy_ns: u64,
    /// Time for which it waited for input.
    pub waited_in_ns: u64,
    /// Time for which it waited until somebody took its output.
    pub waited_out_ns: u64,
    /// Buffers that are written and not yet started on, now.
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
            doing: zero(),
            epoch: Instant::now(),
        }
    }
}

impl Counters {
    /// From now on the copy does something else.
    pub fn turn_to(&self, doing: Doing) {
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        let before = self.doing.load(Ordering::Relaxed);
        if let Some(counter) = self.of(before) {
            add(counter, now_ns.saturating_sub(before >> DOING_BITS));
        }
        self.doing.store(now_ns << DOING_BITS | doing as u64, Ordering::Release);
    }

    /// Where the time goes.
    fn of(&self, doing: u64) -> Option<&AtomicU64> {
        match doing & ((1 << DOING_BITS) - 1) {
            d if d == Doing::Works as u64 => Some(&self.busy_ns),
            d if d == Doing::Reads as u64 => Some(&self.waited_in_ns),
            d if d == Doing::Writes as u64 => Some(&self.waited_out_ns),
            _ => None,
        }
    }

    /// What it has done, and is still doing: who computes or waits for long is seen to do so.
    pub fn now(&self) -> Counts {
        let mut doing = self.doing.load(Ordering::Acquire);
        let mut counts = self.finished();
        for _ in 0..SNAPSHOT_TRIES {
            let after = self.doing.load(Ordering::Acquire);
            if after == doing {
                break;
            }
            (doing, counts) = (after, self.finished());
        }
        let so_far = (self.epoch.elapsed().as_nanos() as u64).saturating_sub(doing >> DOING_BITS);
        match doing & ((1 << DOING_BITS) - 1) {
            d if d == Doing::Works as u64 => counts.busy_ns += so_far,
            d if d == Doing::Reads as u64 => counts.waited_in_ns += so_far,
            d if d == Doing::Writes as u64 => counts.waited_out_ns += so_far,
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
    /// Of several copies together.
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
