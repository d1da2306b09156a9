//! `equal-partition`: one contiguous part of the message per channel (PSockets, section 3).
//!
//! This is how PSockets uses the sockets of one path, and the reference of the MuniSocket paper
//! ("Peak") on equal rails. Nothing is balanced: the message is done when the slowest channel has
//! sent its part.

use super::run::{Framing, Next, Run};
use super::scheme::Scheme;
use super::view::{Channel, ChannelView};
use std::ops::Range;

/// A header has 32 bits for the length; half of that avoids edge cases.
pub(super) const MAX_HEADER_RUN_BYTES: u64 = u32::MAX as u64 / 2;

#[derive(Debug)]
pub(super) struct EqualPartition {
    /// The unclaimed part of each channel; empty for one that was down when the message began.
    parts: Vec<Range<u64>>,
    /// The whole message until a channel has been up; the first channel that asks gets it.
    unowned: Range<u64>,
    /// Whether the one empty run that announces an empty message is still to be claimed.
    announce: bool,
}

impl EqualPartition {
    pub(super) fn new(total_bytes: u64, channels: &[ChannelView]) -> Self {
        let up = channels.iter().filter(|c| c.up).count() as u64;
        let mut end = 0;
        let mut rank = 0;
        let parts = channels.iter().map(|c| {
            let start = end;
            if c.up {
                // The first `total % up` parts are one byte longer.
                end += total_bytes / up + u64::from(rank < total_bytes % up);
                rank += 1;
            }
            start..end
        });
        Self { parts: parts.collect(), unowned: end..total_bytes, announce: total_bytes == 0 }
    }
}

impl Scheme for EqualPartition {
    fn next(&mut self, channel: Channel, _: &[ChannelView]) -> Next {
        if std::mem::take(&mut self.announce) {
            return Next::Run(Run { range: 0..0, framing: Framing::Header });
        }
        if !self.unowned.is_empty() {
            if self.parts.len() <= channel {
                self.parts.resize(channel + 1, 0..0);
            }
            self.parts[channel] = std::mem::take(&mut self.unowned);
        }
        match self.parts.get_mut(channel) {
            Some(part) if !part.is_empty() => {
                let start = part.start;
                part.start = part.end.min(start + MAX_HEADER_RUN_BYTES);
                Next::Run(Run { range: start..part.start, framing: Framing::Header })
            }
            _ => Next::Done,
        }
    }

    fn lost(&mut self, channel: Channel, _: &[ChannelView]) -> Vec<Range<u64>> {
        self.parts.get_mut(channel).map(std::mem::take).into_iter().collect()
    }

    fn unclaimed_bytes(&self) -> u64 {
        self.parts.iter().chain([&self.unowned]).map(|r| r.end - r.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: ChannelView =
        ChannelView { up: true, rate_bytes_s: 0.0, latency_us: 0.0, backlog_bytes: 0, max_run_bytes: u64::MAX };
    const DOWN: ChannelView = ChannelView { up: false, ..UP };

    fn range(next: Next) -> Range<u64> {
        match next {
            Next::Run(Run { range, framing: Framing::Header }) => range,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_differ_by_one_byte_at_most_and_skip_channels_that_are_down() {
        let channels = [UP, DOWN, UP, UP];
        let mut s = EqualPartition::new(11, &channels);
        assert_eq!(s.next(1, &channels), Next::Done);
        assert_eq!(range(s.next(3, &channels)), 8..11);
        assert_eq!(range(s.next(0, &channels)), 0..4);
        assert_eq!(range(s.next(2, &channels)), 4..8);
        assert_eq!(s.unclaimed_bytes(), 0);
    }

    #[test]
    fn a_part_too_long_for_a_header_takes_several_runs() {
        let mut s = EqualPartition::new(2 * MAX_HEADER_RUN_BYTES + 1, &[UP]);
        assert_eq!(range(s.next(0, &[UP])), 0..MAX_HEADER_RUN_BYTES);
        assert_eq!(range(s.next(0, &[UP])), MAX_HEADER_RUN_BYTES..2 * MAX_HEADER_RUN_BYTES);
        assert_eq!(range(s.next(0, &[UP])).end, 2 * MAX_HEADER_RUN_BYTES + 1);
        assert_eq!(s.next(0, &[UP]), Next::Done);
    }

    #[test]
    fn the_unclaimed_part_of_a_lost_channel_is_returned() {
        let mut s = EqualPartition::new(100, &[UP, UP]);
        assert_eq!(s.lost(1, &[UP, DOWN]), vec![Range { start: 50, end: 100 }]);
        assert_eq!(s.unclaimed_bytes(), 50);
    }

    #[test]
    fn with_all_channels_down_the_first_to_ask_gets_all() {
        let mut s = EqualPartition::new(100, &[DOWN, DOWN]);
        assert_eq!(s.unclaimed_bytes(), 100);
        assert_eq!(range(s.next(2, &[DOWN, DOWN, UP])), 0..100);
    }
}
