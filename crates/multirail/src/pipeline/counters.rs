//! What a copy has done so far, for whoever watches.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A copy's counters. The copy alone adds.
#[derive(Debug, Default)]
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
}

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

pub(super) fn add_time(counter: &AtomicU64, time: Duration) {
    add(counter, time.as_nanos() as u64);
}

impl Counters {
    pub fn now(&self) -> Counts {
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
