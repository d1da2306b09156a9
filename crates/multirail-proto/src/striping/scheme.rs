//! The interface of the strategies.

use super::run::Next;
use super::view::{Channel, ChannelView};
use std::fmt;
use std::ops::Range;

/// One strategy for one message.
pub(super) trait Scheme: fmt::Debug + Send {
    /// The next run for `channel`. `channels` may have grown since the message began.
    fn next(&mut self, channel: Channel, channels: &[ChannelView]) -> Next;
    /// Removes `channel`, and returns the unclaimed ranges that only this channel would have
    /// claimed.
    fn lost(&mut self, channel: Channel, channels: &[ChannelView]) -> Vec<Range<u64>>;
    /// See `Striping::more_is_behind`. The papers' strategies use all channels anyway.
    fn more_is_behind(&mut self) {}
    /// Bytes that no channel has claimed.
    fn unclaimed_bytes(&self) -> u64;
    /// A range for `idle` to send a second time; see `Striping::rescue`. The papers' strategies
    /// have none.
    fn rescue(
        &self,
        _idle: Channel,
        _channels: &[ChannelView],
        _outstanding: &[(Channel, Range<u64>)],
    ) -> Option<Range<u64>> {
        None
    }
}
