//! Future events in the order of time; events of the same time in the order in which they were
//! entered.

use super::ids::{ChunkId, LinkId};
use multirail_proto::multicast::members::MemberId;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A link has served its chunk. Void if the link has another version by now.
    Served { link: LinkId, version: u32 },
    /// A chunk arrives at its next link.
    Arrive { chunk: ChunkId },
    /// A control message arrives. Carries its index among those under way.
    Message { place: u32 },
    /// The timer of a host.
    Wake { host: MemberId },
    /// A host's request for a session arrives.
    Knock { from: MemberId, to: MemberId, attempt: u32 },
    /// The answer arrives.
    Answer { from: MemberId, to: MemberId, attempt: u32 },
    /// A host notices that another is dead.
    Detect { by: MemberId, dead: MemberId, attempt: u32 },
    /// An entry of the schedule.
    Change { index: u32 },
}

/// The events and the time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
    now_ns: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at_ns: u64,
    number: u64,
    event: Event,
}

impl Queue {
    pub(super) fn push(&mut self, at_ns: u64, event: Event) {
        self.entered += 1;
        self.heap.push(Reverse(Entry { at_ns: at_ns.max(self.now_ns), number: self.entered, event }));
    }

    /// Moves time to the next event.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let Reverse(entry) = self.heap.pop()?;
        self.now_ns = entry.at_ns;
        Some(entry.event)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn now_us(&self) -> u64 {
        self.now_ns / 1000
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
