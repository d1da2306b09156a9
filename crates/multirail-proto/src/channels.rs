//! How many connections a rail should have, found while it carries something.
//!
//! One is enough where its window covers the path and losses are rare; more only take from others. Where it is not, the rate
//! grows with the number (PSockets, section 4a), up to the path's own. So the number is doubled as long as that pays, by
//! what was measured before and after, and left alone for a while once it does not.

/// How often [`ChannelCount::observe`] is to be called.
pub const OBSERVE_EVERY_US: u64 = 250_000;
/// No more than this are tried: PSockets found the best number between 6 and 16.
pub const MAX_CHANNELS: u32 = 16;
/// On shorter round trips any window covers the path; only a window known to be the limit makes a trial worth it.
const MIN_RTT_US: u32 = 1_000;
/// Less in one interval is no bulk transfer.
const MIN_BYTES: u64 = 32 << 10;
/// Two intervals compare if the rail was about as busy in both.
const STEADY: f64 = 0.7;
/// Twice the channels must carry this much more.
const MIN_GAIN: f64 = 1.1;
/// Intervals of a trial that are not counted: the new channels start slowly ...
const RAMP_UP_INTERVALS: u32 = 1;
/// ... but if windows are small, they are open after a few of these.
const WINDOW_RAMP_UP_RTTS: u64 = 8;
/// How long the number is left alone after a trial in vain; doubled each time, up to the second number.
const REST_US: u64 = 30_000_000;
const MAX_REST_US: u64 = 600_000_000;

/// What one rail did since the last call.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Now.
    pub now_us: u64,
    /// Bytes moved, both ways.
    pub bytes: u64,
    /// In this time.
    pub elapsed_us: u64,
    /// The rail's smallest round trip.
    pub rtt_us: u32,
    /// The receiver's window or the sender's buffer was the limit for a good part of the time: more channels will surely carry
    /// more, as long as the path does.
    pub window_limited: bool,
}

impl Observation {
    fn ramp_up_intervals(&self) -> u32 {
        let quick = self.window_limited && WINDOW_RAMP_UP_RTTS * u64::from(self.rtt_us) <= self.elapsed_us;
        if quick { 0 } else { RAMP_UP_INTERVALS }
    }
}

/// The number of channels of one rail.
#[derive(Debug)]
pub struct ChannelCount {
    count: u32,
    phase: Phase,
    rest_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Waits for a bulk transfer that lasts two intervals. From everywhere; to `Trial`.
    Watching { last_bytes_us: Option<f64> },
    /// Twice as many channels as at `base_bytes_us` are open. From `Watching` or a `Trial` that paid; back to `Watching`.
    Trial { base_bytes_us: f64, intervals: u32 },
    /// After a trial in vain. To `Watching` when the time is over.
    Resting { until_us: u64 },
}

impl Default for ChannelCount {
    fn default() -> Self {
        Self { count: 1, phase: Phase::Watching { last_bytes_us: None }, rest_us: REST_US }
    }
}

impl ChannelCount {
    /// How many channels the rail should have now.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes in what the rail did; returns how many channels it should have from now on.
    pub fn observe(&mut self, seen: Observation) -> u32 {
        let bytes_us = seen.bytes as f64 / seen.elapsed_us.max(1) as f64;
        let bulk = seen.bytes >= MIN_BYTES;
        match self.phase {
            Phase::Resting { until_us } if seen.now_us < until_us => {}
            Phase::Resting { .. } => self.watch(None),
            Phase::Watching { .. } if !bulk => self.watch(None),
            Phase::Watching { last_bytes_us } => {
                let steady = last_bytes_us.is_some_and(|last| bytes_us > STEADY * last && last > STEADY * bytes_us);
                let worth_it = seen.window_limited || (steady && seen.rtt_us >= MIN_RTT_US);
                if worth_it && self.count < MAX_CHANNELS {
                    self.double(bytes_us);
                } else {
                    self.watch(Some(bytes_us));
                }
            }
            // The transfer ended: nothing was learnt, and what was opened for the trial goes.
            Phase::Trial { .. } if !bulk => self.give_up_trial(None),
            Phase::Trial { base_bytes_us, intervals } if intervals < seen.ramp_up_intervals() => {
                self.phase = Phase::Trial { base_bytes_us, intervals: intervals + 1 };
            }
            Phase::Trial { base_bytes_us, .. } if bytes_us >= MIN_GAIN * base_bytes_us => {
                self.rest_us = REST_US;
                if self.count < MAX_CHANNELS { self.double(bytes_us) } else { self.watch(Some(bytes_us)) }
            }
            Phase::Trial { .. } => self.give_up_trial(Some(seen.now_us)),
        }
        self.count
    }

    fn watch(&mut self, last_bytes_us: Option<f64>) {
        self.phase = Phase::Watching { last_bytes_us };
    }

    fn double(&mut self, base_bytes_us: f64) {
        self.count = (self.count * 2).min(MAX_CHANNELS);
        self.phase = Phase::Trial { base_bytes_us, intervals: 0 };
    }

    fn give_up_trial(&mut self, rest_from_us: Option<u64>) {
        self.count = (self.count / 2).max(1);
        match rest_from_us {
            None => self.watch(None),
            Some(now_us) => {
                self.phase = Phase::Resting { until_us: now_us + self.rest_us };
                self.rest_us = (self.rest_us * 2).min(MAX_REST_US);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a rail run for `seconds` that carries `rate(channels)` bytes per microsecond; the numbers it went through.
    fn run(count: &mut ChannelCount, seconds: u64, rtt_us: u32, rate: impl Fn(u32) -> f64) -> Vec<u32> {
        run_limited(count, seconds, rtt_us, false, rate)
    }

    fn run_limited(
        count: &mut ChannelCount,
        seconds: u64,
        rtt_us: u32,
        window_limited: bool,
        rate: impl Fn(u32) -> f64,
    ) -> Vec<u32> {
        (1..=seconds * 1_000_000 / OBSERVE_EVERY_US)
            .map(|i| {
                let bytes = (rate(count.count()) * OBSERVE_EVERY_US as f64) as u64;
                let now_us = i * OBSERVE_EVERY_US;
                count.observe(Observation { now_us, bytes, elapsed_us: OBSERVE_EVERY_US, rtt_us, window_limited })
            })
            .collect()
    }

    #[test]
    fn windows_of_64_kib_on_20_ms_want_four_channels_on_100_mbit_s() {
        let mut count = ChannelCount::default();
        // 64 KiB per 20 ms is 3.3 bytes per microsecond; the link carries 12.5.
        let seen = run(&mut count, 10, 20_000, |n| (3.3 * f64::from(n)).min(12.5));
        assert_eq!(*seen.last().unwrap(), 4);
        let found = seen.iter().position(|n| *n == 4).unwrap() as u64 * OBSERVE_EVERY_US;
        assert!(found <= 3_000_000, "found after {found} us: {seen:?}");
    }

    #[test]
    fn known_windows_are_filled_in_a_second() {
        let mut count = ChannelCount::default();
        let seen = run_limited(&mut count, 10, 20_000, true, |n| (1.6 * f64::from(n)).min(12.5));
        assert_eq!(*seen.last().unwrap(), 8);
        let found = seen.iter().position(|n| *n == 8).unwrap() as u64 * OBSERVE_EVERY_US;
        assert!(found <= 1_000_000, "found after {found} us: {seen:?}");
    }

    #[test]
    fn one_stays_one_where_one_is_enough() {
        let mut count = ChannelCount::default();
        let seen = run(&mut count, 60, 20_000, |_| 12.5);
        let extra = seen.iter().filter(|n| **n > 1).count();
        assert!(extra <= 6 && *seen.last().unwrap() == 1, "two trials at most: {seen:?}");
        let mut near = ChannelCount::default();
        assert!(run(&mut near, 60, MIN_RTT_US - 1, |_| 12.5).iter().all(|n| *n == 1), "never tried on a LAN");
        let mut at_limit = ChannelCount::default();
        assert!(run(&mut at_limit, 5, MIN_RTT_US, |_| 12.5).contains(&2));
    }

    #[test]
    fn never_more_than_the_most() {
        let mut count = ChannelCount::default();
        assert_eq!(run(&mut count, 20, 20_000, f64::from).into_iter().max(), Some(MAX_CHANNELS));
    }

    #[test]
    fn a_trial_without_traffic_is_taken_back() {
        let mut count = ChannelCount::default();
        run(&mut count, 1, 20_000, |_| 12.5);
        let idle = Observation {
            now_us: 9_000_000,
            bytes: 0,
            elapsed_us: OBSERVE_EVERY_US,
            rtt_us: 20_000,
            window_limited: false,
        };
        count.observe(idle);
        assert_eq!(count.observe(idle), 1);
    }
}
