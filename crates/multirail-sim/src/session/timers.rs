//! What will happen, in the order of time.

use multirail_proto::session::Redial;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

pub(super) enum Event {
    /// A packet reaches this host.
    Arrives { host: usize, connection: usize, bytes: Vec<u8> },
    /// Its acknowledgement reaches this host, which has sent it.
    Acknowledged { host: usize, connection: usize, bytes: u64 },
    /// Packets of the control connection reach this host.
    Control { host: usize, bytes: Vec<u8> },
    /// A rail changes: the entry of the schedule.
    Changes(usize),
    /// The kernels have noticed that a rail is down since this entry of the schedule.
    Detected { rail: usize, down: usize },
    /// A new connection stands.
    Connected(Redial),
    /// An attempt to connect has taken too long.
    Unreachable(Redial),
}

struct Timer {
    at_us: f64,
    number: u64,
    event: Event,
}

/// Events by time; those of the same time in the order in which they were set.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    set: u64,
}

impl Timers {
    pub(super) fn set(&mut self, at_us: f64, event: Event) {
        self.set += 1;
        self.heap.push(Reverse(Timer { at_us, number: self.set, event }));
    }

    /// When the next event happens.
    pub(super) fn next_us(&self) -> f64 {
        self.heap.peek().map_or(f64::INFINITY, |Reverse(timer)| timer.at_us)
    }

    /// The next event, if it happens until `now_us`.
    pub(super) fn pop(&mut self, now_us: f64) -> Option<Event> {
        if self.next_us() > now_us {
            return None;
        }
        self.heap.pop().map(|Reverse(timer)| timer.event)
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Timer {}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_us.total_cmp(&other.at_us).then(self.number.cmp(&other.number))
    }
}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
