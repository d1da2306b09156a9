//! To be written.
use super::{Channel, ChannelView, Next, Scheme};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct TwoEnded;
impl TwoEnded { pub(super) fn new(_total: u64, _f: u64, _c: &[ChannelView]) -> Self { Self } }
impl Scheme for TwoEnded {
    fn next(&mut self, _: Channel, _: &[ChannelView]) -> Next { Next::Done }
    fn lost(&mut self, _: Channel, _: &[ChannelView]) -> Vec<Range<u64>> { Vec::new() }
    fn unclaimed_bytes(&self) -> u64 { 0 }
}
