//! One message on its way to the channels.

use super::adaptive::{Adaptive, MAX_RUN_BYTES};
use super::equal_partition::EqualPartition;
use super::run::{Framing, Next, Run};
use super::scheme::Scheme;
use super::shared_counter::SharedCounter;
use super::strategy::Strategy;
use super::two_ended::TwoEnded;
use super::view::{Channel, ChannelView};
use std::collections::VecDeque;
use std::ops::Range;

/// Gives the bytes of one message to channels.
#[derive(Debug)]
pub struct Striping {
    scheme: Box<dyn Scheme>,
    strategy: Strategy,
    total_bytes: u64,
    /// Ranges of lost channels. They are claimed before anything else and with a header each, since
    /// the papers have no rule for them.
    returned: VecDeque<Range<u64>>,
}

impl Striping {
    /// Begins a message of `total_bytes` over `channels`.
    ///
    /// `fragment_bytes` is the unit of `shared-counter` and `two-ended`. `adaptive` cuts at its
    /// multiples (1 for memory, a block for files); `equal-partition` and `single` ignore it.
    ///
    /// # Panics
    ///
    /// If `fragment_bytes` is 0 or there are no channels.
    pub fn new(strategy: Strategy, total_bytes: u64, fragment_bytes: u64, channels: &[ChannelView]) -> Self {
        assert!(fragment_bytes > 0 && !channels.is_empty());
        let scheme: Box<dyn Scheme> = match strategy {
            Strategy::Single => Box::new(Adaptive::single(total_bytes)),
            Strategy::EqualPartition => Box::new(EqualPartition::new(total_bytes, channels)),
            Strategy::SharedCounter => Box::new(SharedCounter::new(total_bytes, fragment_bytes)),
            Strategy::TwoEnded => Box::new(TwoEnded::new(total_bytes, fragment_bytes, channels)),
            Strategy::Adaptive => Box::new(Adaptive::new(total_bytes, fragment_bytes, channels)),
        };
        Self { scheme, strategy, total_bytes, returned: VecDeque::new() }
    }

    /// Further messages follow without a pause, and all of them are to finish early together: a channel that
    /// would bring this message late alone is used as well.
    pub fn more_is_behind(&mut self) {
        self.scheme.more_is_behind();
    }

    /// The next run for `channel`, which can take bytes now.
    pub fn next(&mut self, channel: Channel, channels: &[ChannelView]) -> Next {
        if !channels[channel].up {
            return Next::Done;
        }
        if let Some(range) = self.returned.front_mut() {
            let end = range.end.min(range.start + MAX_RUN_BYTES);
            let run = Run { range: range.start..end, framing: Framing::Header };
            range.start = end;
            if range.is_empty() {
                self.returned.pop_front();
            }
            return Next::Run(run);
        }
        self.scheme.next(channel, channels)
    }

    /// Removes `channel` for the rest of this message. The caller returns the ranges that it had
    /// claimed and the receiver has not confirmed, by [`Striping::give_back`].
    pub fn channel_lost(&mut self, channel: Channel, channels: &[ChannelView]) {
        let orphans = self.scheme.lost(channel, channels);
        self.returned.extend(orphans.into_iter().filter(|r| !r.is_empty()));
    }

    /// Offers a claimed range again. It must not be on offer already, nor be on a channel that
    /// still counts. For an empty message, the empty range may be given back.
    pub fn give_back(&mut self, range: Range<u64>) {
        if !range.is_empty() || self.total_bytes == 0 {
            self.returned.push_back(range);
        }
    }

    /// Bytes that no channel has claimed, and bytes that were given back.
    pub fn unclaimed_bytes(&self) -> u64 {
        self.scheme.unclaimed_bytes() + self.returned.iter().map(|r| r.end - r.start).sum::<u64>()
    }

    /// Whether nothing is left to claim. An empty message that was given back is left and has no
    /// bytes.
    pub(crate) fn is_claimed(&self) -> bool {
        self.scheme.unclaimed_bytes() == 0 && self.returned.is_empty()
    }

    /// The strategy this message was begun with.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// A range that another channel delays and that `idle`, which has nothing left to claim, would
    /// deliver clearly sooner. It is sent a second time; the receiver's ledger drops the second
    /// copy.
    ///
    /// `outstanding` has the ranges that are sent and not acknowledged, each with its channel, in
    /// the order of sending. Only `adaptive` sends again.
    pub fn rescue(
        &self,
        idle: Channel,
        channels: &[ChannelView],
        outstanding: &[(Channel, Range<u64>)],
    ) -> Option<Range<u64>> {
        self.scheme.rescue(idle, channels, outstanding)
    }
}
