//! `shared-counter`: every channel takes the next fragment from one counter (basic MuniSocket,
//! section 3.1).
//!
//! The load balances itself, because a channel on a slow network asks less often. The cost is a
//! header for each fragment. The paper's second cost, threads that contend for the counter, is
//! absent: one caller owns it.

use super::equal_partition::MAX_HEADER_RUN_BYTES;
use super::run::{Framing, Next, Run};
use super::scheme::Scheme;
use super::view::{Channel, ChannelView};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct SharedCounter {
    total_bytes: u64,
    fragment_bytes: u64,
    /// The paper's counter, in bytes: everything before it is claimed.
    cursor: u64,
    /// Whether the one empty run that announces an empty message is still to be claimed.
    announce: bool,
}

impl SharedCounter {
    pub(super) fn new(total_bytes: u64, fragment_bytes: u64) -> Self {
        let fragment_bytes = fragment_bytes.min(MAX_HEADER_RUN_BYTES);
        Self { total_bytes, fragment_bytes, cursor: 0, announce: total_bytes == 0 }
    }
}

impl Scheme for SharedCounter {
    fn next(&mut self, _: Channel, _: &[ChannelView]) -> Next {
        if self.unclaimed_bytes() == 0 && !std::mem::take(&mut self.announce) {
            return Next::Done;
        }
        let start = self.cursor;
        self.cursor = self.total_bytes.min(start.saturating_add(self.fragment_bytes));
        Next::Run(Run { range: start..self.cursor, framing: Framing::Header })
    }

    fn lost(&mut self, _: Channel, _: &[ChannelView]) -> Vec<Range<u64>> {
        // The counter belongs to no channel.
        Vec::new()
    }

    fn unclaimed_bytes(&self) -> u64 {
        self.total_bytes - self.cursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_gets_the_next_fragment_and_the_last_may_be_short() {
        let mut s = SharedCounter::new(25, 10);
        let mut claim = |c| match s.next(c, &[]) {
            Next::Run(run) => run.range,
            other => panic!("{other:?}"),
        };
        assert_eq!([claim(1), claim(1), claim(0)], [0..10, 10..20, 20..25]);
        assert_eq!(s.next(0, &[]), Next::Done);
    }

    #[test]
    fn an_empty_message_is_announced_once() {
        let mut s = SharedCounter::new(0, 10);
        assert_eq!(s.next(1, &[]), Next::Run(Run { range: 0..0, framing: Framing::Header }));
        assert_eq!(s.next(0, &[]), Next::Done);
    }
}
