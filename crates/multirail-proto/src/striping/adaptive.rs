//! `adaptive`: each channel gets the bytes that it can deliver until all channels finish together.
//!
//! The earliest common finish follows from the channels' rates and backlogs by water filling: a
//! channel is a vessel whose floor is the time at which it can begin to deliver (its latency and
//! its backlog) and whose width is its rate. A channel's share is its water. A claim is half a
//! share, so that a wrong rate is corrected while bytes are left (guided self-scheduling,
//! Polychronopoulos and Kuck 1987). A message therefore costs O(k log n) headers on k channels. A
//! rail that would not bring the finish forward gets nothing. If more messages are behind one, what
//! finishes early is all of them together, so that a rail with a long delay is used as well.

use super::run::{Framing, Next, Run};
use super::scheme::Scheme;
use super::view::{Channel, ChannelView};
use std::ops::Range;

/// The longest run, in bytes. Other channels cannot carry what one channel has claimed.
pub(crate) const MAX_RUN_BYTES: u64 = 1 << 20;
/// Messages below this length, in bytes, go over one channel: they fit into one packet.
pub(crate) const MIN_STRIPE_BYTES: u64 = 1449;
/// The longest time that a run takes on its channel, in microseconds.
const MAX_RUN_US: f64 = 10_000.0;
/// The shortest time that a run takes on its channel, in microseconds. Below it, headers would cost
/// more than the correction gains.
const MIN_RUN_US: f64 = 1_000.0;
/// The first run of an idle channel, in microseconds. It keeps the channel busy while the others
/// get their first runs. It was measured on four rails of 100 Mbit/s, where writing 16 KiB took the
/// host up to a millisecond.
const FIRST_RUN_US: f64 = 350.0;
/// The hosts' time for one more channel in a message, in microseconds: a write, a wake-up and a
/// read.
const EXTRA_CHANNEL_US: f64 = 40.0;
/// A channel that brings the finish forward by a smaller share is left out, since rates are not
/// known more precisely.
const MIN_GAIN: f64 = 0.02;
/// The rate of every channel while none has been measured, in bytes per microsecond: 100 Mbit/s.
const UNKNOWN_RATE_BYTES_US: f64 = 12.5;
/// Bytes that are sent a second time come in whole packets of this size.
const PACKET_BYTES: u64 = 1448;
/// What is assumed to follow a message if more is behind it, in bytes. It takes longer than rails differ
/// in delay.
const BEHIND_BYTES: u64 = 16 << 20;
/// Bytes are sent a second time if that brings the finish forward by at least this, in
/// microseconds.
const MIN_RESCUE_GAIN_US: f64 = 500.0;

#[derive(Debug)]
pub(super) struct Adaptive {
    total_bytes: u64,
    /// All bytes before this position are claimed.
    cursor: u64,
    grain_bytes: u64,
    /// `Some` if the whole message goes over one channel. The channel is chosen when the first one
    /// asks.
    single: Option<Option<Channel>>,
    /// Bytes of further messages that are to finish together with this one.
    behind_bytes: u64,
    /// Whether late ranges are sent a second time.
    resends: bool,
}

impl Adaptive {
    pub(super) fn new(total_bytes: u64, grain_bytes: u64, channels: &[ChannelView]) -> Self {
        // Channels can be added while a long message is under way.
        let alone = total_bytes < MIN_STRIPE_BYTES || (channels.len() == 1 && total_bytes <= MAX_RUN_BYTES);
        Self { total_bytes, cursor: 0, grain_bytes, single: alone.then_some(None), behind_bytes: 0, resends: true }
    }

    pub(super) fn single(total_bytes: u64) -> Self {
        Self { total_bytes, cursor: 0, grain_bytes: 1, single: Some(None), behind_bytes: 0, resends: false }
    }

    fn claim(&mut self, want_bytes: u64) -> Next {
        // To the nearest grain. Rounding up would turn a share of little more than one grain into
        // two.
        let grain = self.grain_bytes;
        let grains = (self.cursor.saturating_add(want_bytes + grain / 2) / grain).max(self.cursor / grain + 1);
        let end = grains.saturating_mul(grain).min(self.total_bytes).min(self.cursor + MAX_RUN_BYTES.max(grain));
        let run = Run { range: self.cursor..end, framing: Framing::Header };
        self.cursor = end;
        Next::Run(run)
    }
}

impl Scheme for Adaptive {
    fn next(&mut self, channel: Channel, channels: &[ChannelView]) -> Next {
        let remaining = self.total_bytes - self.cursor;
        if let Some(chosen) = &mut self.single {
            let best = *chosen.get_or_insert_with(|| fastest(channels, remaining).unwrap_or(channel));
            return if best != channel || (remaining == 0 && self.total_bytes > 0) {
                Next::Done
            } else if self.total_bytes == 0 {
                // One empty run announces an empty message.
                self.single = Some(Some(usize::MAX));
                Next::Run(Run { range: 0..0, framing: Framing::Header })
            } else {
                self.claim(MAX_RUN_BYTES)
            };
        }
        if remaining == 0 {
            return Next::Done;
        }
        let share = share_bytes(channel, channels, remaining + self.behind_bytes);
        // The shares add up to the remaining bytes, so with fewer bytes than channels every share
        // can be below one byte.
        let dregs = remaining <= channels.len() as u64;
        if share <= 0.0 || (share < 1.0 && !dregs) {
            return Next::Wait;
        }
        let rate = rates_bytes_us(channels)[channel];
        // An idle channel gets a short run first. A long write to one channel would leave the
        // others idle.
        let first = channels[channel].backlog_bytes == 0 && share > 2.0 * rate * FIRST_RUN_US;
        let claim = if first {
            rate * FIRST_RUN_US
        } else {
            (share / 2.0).clamp(rate * MIN_RUN_US, rate * MAX_RUN_US).min(share)
        };
        self.claim((claim.ceil() as u64).min(channels[channel].max_run_bytes))
    }

    fn lost(&mut self, channel: Channel, _: &[ChannelView]) -> Vec<Range<u64>> {
        if self.single == Some(Some(channel)) {
            self.single = Some(None);
        }
        Vec::new()
    }

    fn more_is_behind(&mut self) {
        self.behind_bytes = BEHIND_BYTES;
    }

    fn unclaimed_bytes(&self) -> u64 {
        self.total_bytes - self.cursor
    }

    fn rescue(
        &self,
        idle: Channel,
        channels: &[ChannelView],
        outstanding: &[(Channel, Range<u64>)],
    ) -> Option<Range<u64>> {
        if self.resends { rescue(idle, channels, outstanding) } else { None }
    }
}

/// Rates in bytes per microsecond. An unmeasured channel gets the mean of the measured ones.
fn rates_bytes_us(channels: &[ChannelView]) -> Vec<f64> {
    let known = channels.iter().filter(|c| c.up && c.rate_bytes_s > 0.0);
    let (sum, count) = known.fold((0.0, 0), |(s, n), c| (s + c.rate_bytes_s, n + 1));
    let unknown = if count == 0 { UNKNOWN_RATE_BYTES_US } else { sum / count as f64 / 1e6 };
    channels.iter().map(|c| if c.rate_bytes_s > 0.0 { c.rate_bytes_s / 1e6 } else { unknown }).collect()
}

/// The time at which a channel could begin to deliver new data.
fn start_us(channel: &ChannelView, rate_bytes_us: f64) -> f64 {
    channel.latency_us + channel.backlog_bytes as f64 / rate_bytes_us
}

/// The channel that alone would deliver `bytes` first.
fn fastest(channels: &[ChannelView], bytes: u64) -> Option<Channel> {
    let rates = rates_bytes_us(channels);
    let alone = |i: Channel| start_us(&channels[i], rates[i]) + bytes as f64 / rates[i];
    (0..channels.len()).filter(|&i| channels[i].up).min_by(|&a, &b| alone(a).total_cmp(&alone(b)))
}

/// How many of the `remaining` bytes `channel` should carry; 0 if the others finish sooner without
/// it.
fn share_bytes(channel: Channel, channels: &[ChannelView], remaining: u64) -> f64 {
    let rates = rates_bytes_us(channels);
    let starts: Vec<f64> = channels.iter().zip(&rates).map(|(c, &r)| start_us(c, r)).collect();
    let bytes = remaining as f64;
    let mut order: Vec<Channel> = (0..channels.len()).filter(|&i| channels[i].up).collect();
    order.sort_by(|&a, &b| (starts[a] + bytes / rates[a]).total_cmp(&(starts[b] + bytes / rates[b])));
    let mut used: Vec<Channel> = Vec::with_capacity(order.len());
    let mut finish = f64::INFINITY;
    for candidate in order {
        used.push(candidate);
        let with = water_level(&used, &starts, &rates, bytes);
        let cost = EXTRA_CHANNEL_US * (used.len() - 1) as f64;
        if with + cost <= finish * (1.0 - MIN_GAIN) {
            finish = with + cost;
        } else {
            used.pop();
        }
    }
    if !used.contains(&channel) {
        return 0.0;
    }
    let level = water_level(&used, &starts, &rates, bytes);
    ((level - starts[channel]) * rates[channel]).clamp(0.0, bytes)
}

/// The earliest time at which the `used` channels together have delivered `bytes`.
fn water_level(used: &[Channel], starts: &[f64], rates: &[f64], bytes: f64) -> f64 {
    let mut by_start: Vec<Channel> = used.to_vec();
    by_start.sort_by(|&a, &b| starts[a].total_cmp(&starts[b]));
    let (mut width, mut floor) = (0.0, 0.0);
    let mut level = f64::INFINITY;
    for c in by_start {
        if starts[c] >= level {
            break;
        }
        width += rates[c];
        floor += starts[c] * rates[c];
        level = (bytes + floor) / width;
    }
    level
}

/// See [`super::Striping::rescue`].
fn rescue(idle: Channel, channels: &[ChannelView], outstanding: &[(Channel, Range<u64>)]) -> Option<Range<u64>> {
    if !channels[idle].up {
        return None;
    }
    let rates = rates_bytes_us(channels);
    let finish = |c: Channel| start_us(&channels[c], rates[c]);
    let (stuck, last) = outstanding
        .iter()
        .rev()
        .filter(|(c, r)| *c != idle && !r.is_empty())
        .max_by(|(a, _), (b, _)| finish(*a).total_cmp(&finish(*b)))?;
    // The newest range of the channel that would finish last, which it has not begun to send.
    let last = outstanding.iter().rev().find(|(c, r)| c == stuck && !r.is_empty()).map_or(last, |(_, r)| r);
    let begin = start_us(&channels[idle], rates[idle]);
    let late = finish(*stuck);
    let move_bytes = (late - begin) / (1.0 / rates[idle] + 1.0 / rates[*stuck]);
    let gain_us = late - (begin + move_bytes / rates[idle]);
    if !(move_bytes > 0.0 && gain_us > MIN_RESCUE_GAIN_US.max(channels[idle].latency_us)) {
        return None;
    }
    // Whole packets: one byte that stays on a stalled channel delays the message as much as all of
    // them.
    let length = (move_bytes as u64 / PACKET_BYTES + 1) * PACKET_BYTES;
    let length = length.min(last.end - last.start).min(MAX_RUN_BYTES);
    Some(last.end - length..last.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail(mbit_s: f64, backlog_bytes: u64) -> ChannelView {
        ChannelView {
            up: true,
            rate_bytes_s: mbit_s * 125_000.0,
            latency_us: 50.0,
            backlog_bytes,
            max_run_bytes: u64::MAX,
        }
    }

    #[test]
    fn a_rail_with_a_long_delay_is_used_if_more_is_behind() {
        let far = ChannelView { latency_us: 30_000.0, ..rail(100.0, 0) };
        let rails = [rail(100.0, 0), far];
        let mut last = Adaptive::new(64 << 10, 1, &rails);
        assert_eq!(last.next(1, &rails), Next::Wait, "it would come late");
        let mut followed = Adaptive::new(64 << 10, 1, &rails);
        followed.more_is_behind();
        assert!(matches!(followed.next(1, &rails), Next::Run(_)));
    }

    #[test]
    fn equal_rails_share_equally() {
        let rails = [rail(100.0, 0), rail(100.0, 0)];
        assert!((share_bytes(0, &rails, 65536) - 32768.0).abs() < 1.0);
    }

    #[test]
    fn shares_follow_rates_and_backlogs() {
        let rails = [rail(100.0, 0), rail(25.0, 0)];
        assert!((share_bytes(0, &rails, 100_000) - 80_000.0).abs() < 1.0);
        let rails = [rail(100.0, 10_000), rail(100.0, 0)];
        assert!((share_bytes(1, &rails, 20_000) - 15_000.0).abs() < 1.0);
    }

    #[test]
    fn a_rail_without_a_gain_is_left_out() {
        let rails = [rail(100.0, 0), rail(1.0, 0)];
        assert_eq!(share_bytes(1, &rails, 65536), 0.0);
        let rails = [rail(100.0, 0), rail(10.0, 0)];
        assert!(share_bytes(1, &rails, 65536) > 1000.0);
    }

    #[test]
    fn a_far_rail_is_left_out_if_the_near_one_finishes_first() {
        let far = ChannelView { latency_us: 30_000.0, ..rail(100.0, 0) };
        assert_eq!(share_bytes(1, &[rail(100.0, 0), far], 65536), 0.0);
        assert!(share_bytes(1, &[rail(100.0, 0), far], 8 << 20) > 3e6);
    }

    #[test]
    fn small_messages_take_one_channel() {
        let rails = [rail(100.0, 0), rail(100.0, 0)];
        let mut at = Adaptive::new(MIN_STRIPE_BYTES - 1, 1, &rails);
        assert!(matches!(at.next(0, &rails), Next::Run(_)));
        assert_eq!(at.next(1, &rails), Next::Done);
        let mut above = Adaptive::new(MIN_STRIPE_BYTES, 1, &rails);
        assert!(matches!(above.next(0, &rails), Next::Run(r) if r.range.end < MIN_STRIPE_BYTES));
    }

    #[test]
    fn a_long_message_uses_channels_that_are_added() {
        let mut s = Adaptive::new(MAX_RUN_BYTES + 1, 1, &[rail(100.0, 0)]);
        assert!(matches!(s.next(0, &[rail(100.0, 0)]), Next::Run(r) if r.range.end < MAX_RUN_BYTES));
        assert!(matches!(s.next(1, &[rail(100.0, 0); 2]), Next::Run(_)));
        let mut short = Adaptive::new(MAX_RUN_BYTES, 1, &[rail(100.0, 0)]);
        assert!(matches!(short.next(0, &[rail(100.0, 0)]), Next::Run(r) if r.range == (0..MAX_RUN_BYTES)));
    }

    #[test]
    fn empty_message_is_one_empty_run() {
        let rails = [rail(100.0, 0)];
        let mut s = Adaptive::new(0, 1, &rails);
        assert!(matches!(s.next(0, &rails), Next::Run(r) if r.range == (0..0)));
        assert_eq!(s.next(0, &rails), Next::Done);
    }

    #[test]
    fn rescue_takes_the_tail_of_the_stuck_channel() {
        let rails = [rail(100.0, 0), rail(1.0, 100_000)];
        let out = [(1, 0..50_000), (1, 50_000..100_000)];
        let r = rescue(0, &rails, &out).unwrap();
        assert_eq!(r.end, 100_000);
        assert!(rescue(0, &[rail(100.0, 0), rail(100.0, 3_000)], &out).is_none());
    }

    #[test]
    fn the_last_byte_of_a_stalled_channel_is_rescued() {
        let rails = [rail(100.0, 0), rail(0.000_1, 1)];
        assert_eq!(rescue(0, &rails, &[(1, 99..100)]), Some(99..100));
        let rails = [rail(100.0, 0), rail(0.1, 2 * PACKET_BYTES)];
        let rescued = rescue(0, &rails, &[(1, 0..2 * PACKET_BYTES)]).unwrap();
        assert_eq!(rescued, 0..2 * PACKET_BYTES, "nothing is left");
    }

    #[test]
    fn cuts_are_to_the_nearest_grain_and_at_least_one() {
        let mut s = Adaptive::new(1 << 20, 2048, &[rail(100.0, 0); 2]);
        let mut claim = |bytes| match s.claim(bytes) {
            Next::Run(run) => run.range.end - run.range.start,
            other => panic!("{other:?}"),
        };
        assert_eq!([1, 2049, 3071, 3072, 0].map(&mut claim), [2048, 2048, 2048, 4096, 2048]);
    }

    #[test]
    fn the_last_byte_is_claimed_on_slow_rails() {
        // Two channels are worth it even for one byte, and half of it would round down to nothing.
        let rails = [rail(0.05, 0), rail(0.05, 0)];
        let mut s = Adaptive::new(MIN_STRIPE_BYTES, 1, &rails);
        s.cursor = MIN_STRIPE_BYTES - 1;
        assert_eq!(share_bytes(0, &rails, 1), 0.5);
        assert!(matches!(s.next(0, &rails), Next::Run(_)));
        assert_eq!(s.unclaimed_bytes(), 0);
    }
}
