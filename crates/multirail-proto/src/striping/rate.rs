//! How fast a channel is, by what the receiver saw arrive.
//!
//! The receiver counts, per channel, bytes that arrived while it was in the middle of a run, and the time they took: a
//! channel in the middle of a run is surely busy, so the quotient is the path's rate and not the application's. Each
//! report carries both since the last one.

/// Busy time after which an old observation weighs 1/e. A short message ends with the receiver's wake-up, which is worth a
/// packet more or less: it takes this long for that to average out to a per cent.
pub const MEMORY_US: f64 = 200_000.0;
/// The same for what tells of a change: a rail that falls to a tenth is seen within a few of the receiver's reports.
const QUICK_MEMORY_US: f64 = 20_000.0;
/// Both disagree by more than this: the rail is not what it was.
const CHANGE: f64 = 0.25;
/// The quick memory's word counts once it has seen this much busy time.
const QUICK_ENOUGH_US: f64 = 10_000.0;
/// Above this, messages mostly have arrived whole when they are read: the receiver sees few of them in the middle, the slow ones.
const FAST_BYTES_S: f64 = 100e6;
/// Less busy time than this is no evidence against it: the reader was late for a probe.
const SLOW_ENOUGH_US: f64 = 1_000.0;

/// A channel's rate, averaged over its recent busy time, and from anew when it changes.
#[derive(Debug, Clone, Default)]
pub struct RateEstimator {
    steady: Average,
    quick: Average,
    /// What the sender's kernel last saw acknowledged, on a path that outruns its reader.
    delivered_bytes_s: f64,
}

impl RateEstimator {
    /// Takes one report: `bytes` arrived in `busy_us` of busy time.
    pub fn report(&mut self, bytes: u64, busy_us: u64) {
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

    /// Whether the path is faster than what the receiver can see of it.
    pub fn outruns_reader(&self) -> bool {
        let seen = self.steady.rate_bytes_s();
        self.steady.busy_us < SLOW_ENOUGH_US || seen > FAST_BYTES_S
    }

    /// Takes the rate at which the sender's kernel saw bytes acknowledged. It counts while the path outruns its reader: on a
    /// slower one it is the worse measure, since a packet that finds the wire idle passes at once.
    pub fn delivered(&mut self, rate_bytes_s: f64) {
        self.delivered_bytes_s = rate_bytes_s;
    }

    /// Bytes a second; 0 while nothing was measured.
    pub fn rate_bytes_s(&self) -> f64 {
        let seen = self.steady.rate_bytes_s();
        if self.outruns_reader() { seen.max(self.delivered_bytes_s) } else { seen }
    }
}

/// Bytes over busy time, older ones weighing less.
#[derive(Debug, Clone, Default)]
struct Average {
    bytes: f64,
    busy_us: f64,
}

impl Average {
    fn add(&mut self, bytes: u64, busy_us: u64, memory_us: f64) {
        let keep = (-(busy_us as f64) / memory_us).exp();
        // The weight of a long report is what its parts, reported one by one, would have added up to.
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
        // A packet more or less in ten, turn by turn, and the first one wrong by a fifth.
        e.report(10_000, 1_000);
        for i in 0..200 {
            e.report(if i % 2 == 0 { 11_000 } else { 14_000 }, 1_000);
        }
        assert!((e.rate_bytes_s() / 12.5e6 - 1.0).abs() < 0.02, "{}", e.rate_bytes_s());
    }

    #[test]
    fn the_senders_word_counts_where_the_path_outruns_the_reader() {
        let mut e = RateEstimator::default();
        e.delivered(3e9);
        assert_eq!(e.rate_bytes_s(), 3e9, "nothing was seen in the middle");
        e.report(400_000, 1_000);
        assert_eq!(e.rate_bytes_s(), 3e9, "only the slow ones were");
        let mut late = RateEstimator::default();
        late.delivered(3e9);
        late.report(40_000, 900);
        assert_eq!(late.rate_bytes_s(), 3e9, "one late look");
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
