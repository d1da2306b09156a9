//! How fast a channel is, by what the receiver saw arrive.
//!
//! The receiver counts, per channel, bytes that arrived while it was in the middle of a run, and the time they took: a
//! channel in the middle of a run is surely busy, so the quotient is the path's rate and not the application's. Each
//! report carries both since the last one.

/// Busy time after which an old observation weighs 1/e. Long enough to average over the packets of a few short messages,
/// short enough that a rail which falls to a tenth is seen within two of the receiver's reports.
pub const MEMORY_US: f64 = 20_000.0;

/// A stretch of busy time that carried less says little: it begins and ends with the receiver's wake-ups, which are worth a packet.
pub const SHORT_STRETCH_BYTES: u64 = 16 << 10;
/// So short stretches count only where they contradict by more than this what longer ones have told.
const SHORT_STRETCH_ERROR: f64 = 0.25;

/// A channel's rate, averaged over its recent busy time.
#[derive(Debug, Clone, Default)]
pub struct RateEstimator {
    bytes: f64,
    busy_us: f64,
}

impl RateEstimator {
    /// Takes one report: `bytes` arrived in `busy_us` of busy time, in so many `stretches` (0: a long one goes on).
    pub fn report(&mut self, bytes: u64, busy_us: u64, stretches: u32) {
        if busy_us == 0 {
            return;
        }
        let known = self.rate_bytes_s();
        let told = bytes as f64 * 1e6 / busy_us as f64;
        let short = stretches > 0 && bytes / u64::from(stretches) < SHORT_STRETCH_BYTES;
        if short && known > 0.0 && (told / known - 1.0).abs() < SHORT_STRETCH_ERROR {
            return;
        }
        let keep = (-(busy_us as f64) / MEMORY_US).exp();
        // The weight of a long report is what its parts, reported one by one, would have added up to.
        let weight_us = MEMORY_US * (1.0 - keep);
        self.bytes = self.bytes * keep + bytes as f64 / busy_us as f64 * weight_us;
        self.busy_us = self.busy_us * keep + weight_us;
    }

    /// Bytes a second; 0 while nothing was measured.
    pub fn rate_bytes_s(&self) -> f64 {
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
            e.report(12_500, 1_000, 0);
            assert!((e.rate_bytes_s() - 12.5e6).abs() < 1.0);
        }
    }

    #[test]
    fn a_fall_to_a_tenth_is_seen_within_three_memories() {
        let mut e = RateEstimator::default();
        e.report(1_250_000, 100_000, 1);
        e.report(1_250 * 60, 60_000, 0);
        assert!(e.rate_bytes_s() < 1.25e6 * 1.6, "{}", e.rate_bytes_s());
    }

    #[test]
    fn short_stretches_tell_of_large_changes_only() {
        let mut e = RateEstimator::default();
        e.report(1_250_000, 100_000, 1);
        e.report(8_000 * 100, 70_000, 100);
        assert!((e.rate_bytes_s() - 12.5e6).abs() < 1.0, "9 % off");
        e.report(8_000 * 100, 100_000, 100);
        assert!(e.rate_bytes_s() < 9e6, "36 % off: {}", e.rate_bytes_s());
    }

    #[test]
    fn a_stall_lowers_the_rate() {
        let mut e = RateEstimator::default();
        e.report(12_500, 1_000, 1);
        e.report(0, 50_000, 0);
        assert!(e.rate_bytes_s() < 2e6);
    }
}
