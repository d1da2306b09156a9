//! The number of connections for a rail, found while the rail carries data.
//!
//! One connection is enough where its window covers the path and losses are rare; more would only
//! take bandwidth from others. Otherwise the rate grows with the number (PSockets, section 4a), up
//! to the path's own. So the number is doubled while the measured rate grows. Then it rests for a
//! while, unless the rail falls behind the rate that it has reached before.

/// The interval between two calls of [`ChannelCount::observe`].
pub(crate) const OBSERVE_EVERY_US: u64 = 200_000;
/// The highest number that is tried: PSockets found the best one between 6 and 16.
pub(crate) const MAX_CHANNELS_PER_RAIL: u32 = 16;
/// On shorter round trips any window covers the path, so only a window that is the known limit
/// justifies a trial.
const MIN_RTT_US: u32 = 1_000;
/// An interval with fewer bytes does not belong to a bulk transfer.
const MIN_BYTES: u64 = 8 << 10;
/// Two intervals are compared if the rail was about as busy in both.
const STEADY: f64 = 0.7;
/// The least gain of a trial, which has twice the channels.
const MIN_GAIN: f64 = 1.2;
/// The least gain where the kernel reports that a window is the limit.
const MIN_WINDOW_GAIN: f64 = 1.1;
/// A rail that had fallen behind is filled if it reaches its best rate up to this deviation.
const FILLED: f64 = 0.05;
/// Below this share of its best rate, a rail with losses has fallen behind, and a trial begins at
/// once.
const FALLEN: f64 = 0.85;
/// Packets were lost in each of the last three intervals.
const ALL_LOST: u8 = 0b111;
/// The factor of the best rate in each interval, since paths change.
const FADE: f64 = 0.999;
/// The round trips in which new channels are not measured, since they start slowly.
const RAMP_UP_RTTS: u64 = 8;
/// The intervals whose mean is the result of a trial, unless a window is the known limit. Single
/// ones are noisy.
const MEASURED_INTERVALS: u32 = 2;
/// The rest after a failed trial. It doubles each time, up to the maximum.
const REST_US: u64 = 30_000_000;
const MAX_REST_US: u64 = 600_000_000;

/// The measurements of one rail since the last call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation {
    /// The current time.
    pub now_us: u64,
    /// Bytes carried in both directions.
    pub bytes: u64,
    /// The time since the last call.
    pub elapsed_us: u64,
    /// The rail's smallest round trip.
    pub rtt_us: u32,
    /// The receiver's window or the sender's buffer was the limit for much of the time: more
    /// channels will carry more, if the path can.
    pub window_limited: bool,
    /// Packets were lost, and the congestion control treats losses as congestion: more channels may
    /// carry more.
    pub lost: bool,
}

/// The number of channels of one rail.
#[derive(Debug)]
pub(crate) struct ChannelCount {
    count: u32,
    phase: Phase,
    rest_us: u64,
    /// The last intervals of a bulk transfer, in bytes per microsecond.
    recent: [f64; 3],
    recent_count: usize,
    /// One bit for each of them: whether packets were lost.
    recent_lost: u8,
    /// The best rate of the rail. It uses medians of three intervals, since single ones have peaks.
    best_bytes_us: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Waits for a bulk transfer that justifies a trial. From every phase; to `Trial`.
    Watching { last_bytes_us: Option<f64> },
    /// Twice as many channels as at `base_bytes_us` are open. `sum_bytes_us` is the sum since they
    /// had started; `best_bytes_us` is the rail's earlier best. From `Watching`, `Resting` or a
    /// successful `Trial`; to `Resting`.
    Trial { base_bytes_us: f64, best_bytes_us: f64, intervals: u32, sum_bytes_us: f64 },
    /// The number stays. To `Watching` when the time is over, to `Trial` when the rail falls
    /// behind.
    Resting { until_us: u64 },
}

impl Default for ChannelCount {
    fn default() -> Self {
        Self {
            count: 1,
            phase: Phase::Watching { last_bytes_us: None },
            rest_us: REST_US,
            recent: [0.0; 3],
            recent_count: 0,
            recent_lost: 0,
            best_bytes_us: 0.0,
        }
    }
}

impl ChannelCount {
    /// Takes the measurements of a rail and returns the number of channels that it should have now.
    pub(crate) fn observe(&mut self, seen: Observation) -> u32 {
        let bytes_us = seen.bytes as f64 / seen.elapsed_us.max(1) as f64;
        let bulk = seen.bytes >= MIN_BYTES;
        let fallen_to = if bulk { self.remember(bytes_us, seen.lost) } else { None };
        match (self.phase, fallen_to) {
            (Phase::Resting { .. }, Some(now_bytes_us))
                if self.count < MAX_CHANNELS_PER_RAIL && seen.rtt_us >= MIN_RTT_US =>
            {
                self.double(now_bytes_us);
            }
            _ => self.step(seen, bytes_us, bulk),
        }
        self.count
    }

    fn step(&mut self, seen: Observation, bytes_us: f64, bulk: bool) {
        match self.phase {
            Phase::Resting { until_us } if seen.now_us < until_us => {}
            Phase::Resting { .. } => self.watch(None),
            Phase::Watching { .. } if !bulk => self.watch(None),
            Phase::Watching { last_bytes_us } => {
                let steady = last_bytes_us.is_some_and(|last| bytes_us > STEADY * last && last > STEADY * bytes_us);
                let lost = seen.lost && last_bytes_us.is_some();
                let worth_it = seen.window_limited || (seen.rtt_us >= MIN_RTT_US && (steady || lost));
                if worth_it && self.count < MAX_CHANNELS_PER_RAIL {
                    self.double((bytes_us + last_bytes_us.unwrap_or(bytes_us)) / 2.0);
                } else {
                    self.watch(Some(bytes_us));
                }
            }
            // The transfer ended before a result, so the channels of the trial are closed.
            Phase::Trial { .. } if !bulk => {
                self.count = (self.count / 2).max(1);
                self.watch(None);
            }
            Phase::Trial { base_bytes_us, best_bytes_us, intervals, sum_bytes_us } => {
                let ramp_up = (RAMP_UP_RTTS * u64::from(seen.rtt_us) / seen.elapsed_us.max(1)).max(1) as u32;
                let wanted = if seen.window_limited { 1 } else { MEASURED_INTERVALS };
                let intervals = intervals + 1;
                let sum_bytes_us = if intervals > ramp_up { sum_bytes_us + bytes_us } else { 0.0 };
                if intervals < ramp_up + wanted {
                    self.phase = Phase::Trial { base_bytes_us, best_bytes_us, intervals, sum_bytes_us };
                } else {
                    self.judge(base_bytes_us, sum_bytes_us / f64::from(wanted), best_bytes_us, &seen);
                }
            }
        }
    }

    /// Ends a trial, which carried `bytes_us`.
    fn judge(&mut self, base_bytes_us: f64, bytes_us: f64, best_bytes_us: f64, seen: &Observation) {
        let gained = bytes_us >= base_bytes_us * if seen.window_limited { MIN_WINDOW_GAIN } else { MIN_GAIN };
        // A rail with constant losses will soon fall behind with fewer channels, even if it has not
        // yet.
        let needed = base_bytes_us < FALLEN * best_bytes_us || self.recent_lost == ALL_LOST;
        let filled = needed && (bytes_us / best_bytes_us - 1.0).abs() <= FILLED;
        if gained && self.count < MAX_CHANNELS_PER_RAIL && (seen.window_limited || !filled) {
            self.rest_us = REST_US;
            self.double(bytes_us);
        } else if gained || filled {
            self.rest_us = REST_US;
            self.rest(seen.now_us);
        } else if self.recent_lost == ALL_LOST && bytes_us < (1.0 - FILLED) * base_bytes_us {
            // Losses began during the trial, so the earlier rate cannot be compared.
            self.watch(Some(bytes_us));
        } else {
            self.count = (self.count / 2).max(1);
            // The rail cannot carry more now, even if it did before.
            self.best_bytes_us = base_bytes_us;
            self.rest(seen.now_us);
            self.rest_us = (self.rest_us * 2).min(MAX_REST_US);
        }
    }

    /// Records an interval of a bulk transfer. Returns the current rate if the rail has fallen
    /// behind its best.
    fn remember(&mut self, bytes_us: f64, lost: bool) -> Option<f64> {
        self.recent[self.recent_count % 3] = bytes_us;
        self.recent_count += 1;
        self.recent_lost = (self.recent_lost << 1 | u8::from(lost)) & ALL_LOST;
        if self.recent_count < 3 {
            return None;
        }
        let mut sorted = self.recent;
        sorted.sort_by(f64::total_cmp);
        self.best_bytes_us = (FADE * self.best_bytes_us).max(sorted[1]);
        (self.recent_lost != 0 && sorted[1] < FALLEN * self.best_bytes_us).then_some(sorted[1])
    }

    fn watch(&mut self, last_bytes_us: Option<f64>) {
        self.phase = Phase::Watching { last_bytes_us };
    }

    fn rest(&mut self, now_us: u64) {
        self.recent_count = 0;
        self.phase = Phase::Resting { until_us: now_us + self.rest_us };
    }

    fn double(&mut self, base_bytes_us: f64) {
        self.count = (self.count * 2).min(MAX_CHANNELS_PER_RAIL);
        let best_bytes_us = self.best_bytes_us;
        self.phase = Phase::Trial { base_bytes_us, best_bytes_us, intervals: 0, sum_bytes_us: 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a rail for `seconds` that carries `rate(channels)` bytes per microsecond. Returns the
    /// numbers of channels.
    fn run(count: &mut ChannelCount, seconds: u64, rtt_us: u32, rate: impl Fn(u32) -> f64) -> Vec<u32> {
        run_limited(count, seconds, rtt_us, (false, false), rate)
    }

    fn run_limited(
        count: &mut ChannelCount,
        seconds: u64,
        rtt_us: u32,
        (window_limited, lost): (bool, bool),
        rate: impl Fn(u32) -> f64,
    ) -> Vec<u32> {
        (1..=seconds * 1_000_000 / OBSERVE_EVERY_US)
            .map(|i| {
                let bytes = (rate(count.count) * OBSERVE_EVERY_US as f64) as u64;
                let now_us = i * OBSERVE_EVERY_US;
                count.observe(Observation { now_us, bytes, elapsed_us: OBSERVE_EVERY_US, rtt_us, window_limited, lost })
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
    fn known_windows_are_filled_in_a_second_and_a_half() {
        let mut count = ChannelCount::default();
        let seen = run_limited(&mut count, 10, 20_000, (true, false), |n| (1.6 * f64::from(n)).min(12.5));
        assert_eq!(*seen.last().unwrap(), 8);
        let found = seen.iter().position(|n| *n == 8).unwrap() as u64 * OBSERVE_EVERY_US;
        assert!(found <= 1_500_000, "found after {found} us: {seen:?}");
    }

    #[test]
    fn one_stays_one_where_one_is_enough() {
        let mut count = ChannelCount::default();
        let seen = run(&mut count, 60, 20_000, |_| 12.5);
        let extra = seen.iter().filter(|n| **n > 1).count();
        assert!(extra <= 8 && *seen.last().unwrap() == 1, "two trials at most: {seen:?}");
        let mut near = ChannelCount::default();
        assert!(run(&mut near, 60, MIN_RTT_US - 1, |_| 12.5).iter().all(|n| *n == 1), "never tried on a LAN");
        let mut at_limit = ChannelCount::default();
        assert!(run(&mut at_limit, 5, MIN_RTT_US, |_| 12.5).contains(&2));
    }

    #[test]
    fn a_rail_that_falls_behind_gets_more_before_its_rest_is_over() {
        let mut count = ChannelCount::default();
        let seen = run(&mut count, 4, 20_000, |_| 12.0);
        assert_eq!(*seen.last().unwrap(), 1, "full from the start, and the trial fails");
        // Losses have begun: each connection carries a quarter.
        let seen = run_limited(&mut count, 4, 20_000, (false, true), |n| (3.0 * f64::from(n)).min(12.0));
        assert_eq!(*seen.last().unwrap(), 4, "{seen:?}");
        assert!(!seen.contains(&8), "four fill it, as the earlier rate shows: {seen:?}");
        // A path that has become slower causes no further trials.
        let seen = run_limited(&mut count, 20, 20_000, (false, true), |_| 6.0);
        assert_eq!(*seen.last().unwrap(), 4);
        assert!(seen.iter().filter(|n| **n == 8).count() <= 4, "one trial: {seen:?}");
    }

    #[test]
    fn never_more_than_the_most() {
        let mut count = ChannelCount::default();
        assert_eq!(run(&mut count, 20, 20_000, f64::from).into_iter().max(), Some(MAX_CHANNELS_PER_RAIL));
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
            lost: false,
        };
        count.observe(idle);
        assert_eq!(count.observe(idle), 1);
    }
}
