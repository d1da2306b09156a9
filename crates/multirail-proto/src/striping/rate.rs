//! The rate of a channel, as the receiver measures it.
//!
//! For each channel, the receiver counts the bytes that arrived within a run and the time they
//! took. A channel within a run is certainly busy, so the quotient is the path's rate and not the
//! application's. Each report has the counts since the last one.

/// The busy time after which an old observation weighs 1/e. A short message ends with the
/// receiver's wake-up, whose error is about one packet: over this time it averages out to one
/// percent.
pub(crate) const MEMORY_US: f64 = 200_000.0;
/// The busy time of the quick average. It shows within a few reports that a rail fell to a tenth of
/// its rate.
const QUICK_MEMORY_US: f64 = 20_000.0;
/// If the two averages differ by more than this, the rail's rate has changed.
const CHANGE: f64 = 0.25;
/// The least busy time of the quick average before it counts.
const QUICK_ENOUGH_US: f64 = 10_000.0;
/// Above this rate most messages have arrived completely when they are read, so the receiver
/// measures only the slow ones.
const FAST_BYTES_S: f64 = 100e6;
/// A shorter busy time is no evidence against that: the reader was late for a probe.
const SLOW_ENOUGH_US: f64 = 1_000.0;

/// A channel's rate, averaged over its recent busy time. The average restarts when the rate
/// changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateEstimator {
    steady: Average,
    quick: Average,
    /// The rate that the sender's kernel last saw acknowledged, on a path that is faster than its
    /// reader.
    delivered_bytes_s: f64,
}

impl RateEstimator {
    /// Takes one report: `bytes` arrived in `busy_us` of busy time.
    pub(crate) fn report(&mut self, bytes: u64, busy_us: u64) {
        if busy_us == 0 {
            return;
        }
        self.steady.add(bytes, busy_us, MEMORY_US);
        self.quick.add(bytes, busy_us, QUICK_MEMORY_US);
        let off = (self.quick.rate_bytes_s() / self.steady.rate_bytes_s().max(f64::MIN_POSITIVE) - 1.0).abs();
        if off > CHANGE && self.quick.busy_us > QUICK_ENOUGH_US {
            self.steady = self.quick.clone();
        }
    }

    /// Whether the path is faster than the receiver can measure.
    pub(crate) fn outruns_reader(&self) -> bool {
        let seen = self.steady.rate_bytes_s();
        self.steady.busy_us < SLOW_ENOUGH_US || seen > FAST_BYTES_S
    }

    /// Takes the rate at which the sender's kernel saw bytes acknowledged. It counts only while the
    /// path is faster than its reader. On a slower path it is less accurate, since a packet passes
    /// an idle wire at once.
    pub(crate) fn delivered(&mut self, rate_bytes_s: f64) {
        self.delivered_bytes_s = rate_bytes_s;
    }

    /// The rate in bytes per second; 0 before the first measurement.
    pub(crate) fn rate_bytes_s(&self) -> f64 {
        let seen = self.steady.rate_bytes_s();
        if self.outruns_reader() { seen.max(self.delivered_bytes_s) } else { seen }
    }
}

/// Bytes and busy time; older ones weigh less.
#[derive(Debug, Clone, Default)]
struct Average {
    bytes: f64,
    busy_us: f64,
}

impl Average {
    fn add(&mut self, bytes: u64, busy_us: u64, memory_us: f64) {
        let keep = (-(busy_us as f64) / memory_us).exp();
        // The weight of a long report is the sum of the weights of its parts, if they were reported
        // one by one.
        let weight_us = memory_us * (1.0 - keep);
        self.bytes = self.bytes * keep + bytes as f64 / busy_us as f64 * weight_us;
        self.busy_us = self.busy_us * keep + weight_us;
    }

    fn rate_bytes_s(&self) -> f64 {
        if self.busy_us > 0.0 { self.bytes * 1e6 / self.busy_us } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_rate_is_found_at_once_and_kept() {
        let mut e = RateEstimator::default();
        assert_eq!(e.rate_bytes_s(), 0.0);
        for _ in 0..50 {
            e.report(12_500, 1_000);
            assert!((e.rate_bytes_s() - 12.5e6).abs() < 1.0);
        }
    }

    #[test]
    fn a_fall_to_a_tenth_is_seen_within_sixty_milliseconds() {
        let mut e = RateEstimator::default();
        e.report(1_250_000, 100_000);
        e.report(1_250 * 60, 60_000);
        assert!(e.rate_bytes_s() < 1.25e6 * 1.6, "{}", e.rate_bytes_s());
    }

    #[test]
    fn the_error_of_short_messages_averages_out() {
        let mut e = RateEstimator::default();
        // One packet more or less in ten, alternating; the first one is wrong by a fifth.
        e.report(10_000, 1_000);
        for i in 0..200 {
            e.report(if i % 2 == 0 { 11_000 } else { 14_000 }, 1_000);
        }
        assert!((e.rate_bytes_s() / 12.5e6 - 1.0).abs() < 0.02, "{}", e.rate_bytes_s());
    }

    #[test]
    fn the_senders_rate_counts_if_the_path_outruns_the_reader() {
        let mut e = RateEstimator::default();
        e.delivered(3e9);
        assert_eq!(e.rate_bytes_s(), 3e9, "no bytes arrived within a run");
        e.report(400_000, 1_000);
        assert_eq!(e.rate_bytes_s(), 3e9, "only slow messages were measured");
        let mut late = RateEstimator::default();
        late.delivered(3e9);
        late.report(40_000, 900);
        assert_eq!(late.rate_bytes_s(), 3e9, "one late read");
        let mut slow = RateEstimator::default();
        slow.delivered(3e9);
        slow.report(25_000, 2_000);
        assert!((slow.rate_bytes_s() - 12.5e6).abs() < 1.0);
    }

    #[test]
    fn a_stall_lowers_the_rate() {
        let mut e = RateEstimator::default();
        e.report(12_500, 1_000);
        e.report(0, 50_000);
        assert!(e.rate_bytes_s() < 2e6);
    }
}
