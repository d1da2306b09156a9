//! A token bucket.

use crate::session::Time;

/// Tokens are counted in billionths, so that no time is lost to rounding.
const UNIT: u64 = 1_000_000_000;

/// Allows a number of events a second, and a number of them at once after a pause.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    capacity: u64,
    per_second: u64,
    /// In billionths of a token.
    level: u64,
    filled_at: Time,
}

impl TokenBucket {
    /// A full bucket of `capacity` tokens that gets `per_second` of them.
    pub fn new(capacity: u32, per_second: u32, now: Time) -> Self {
        let capacity = u64::from(capacity) * UNIT;
        Self { capacity, per_second: per_second.into(), level: capacity, filled_at: now }
    }

    /// Takes a token if `keep` tokens are left then.
    pub fn take(&mut self, now: Time, keep: u32) -> bool {
        self.fill(now);
        let enough = self.level >= (u64::from(keep) + 1) * UNIT;
        if enough {
            self.level -= UNIT;
        }
        enough
    }

    /// Whether no token is missing.
    pub fn is_full(&mut self, now: Time) -> bool {
        self.fill(now);
        self.level == self.capacity
    }

    fn fill(&mut self, now: Time) {
        let nanoseconds = u64::try_from(now.since(self.filled_at).as_nanos()).unwrap_or(u64::MAX);
        // A billionth of a token a nanosecond is a token a second.
        self.level = self.level.saturating_add(nanoseconds.saturating_mul(self.per_second)).min(self.capacity);
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(microseconds: u64) -> Time {
        Time::after(Duration::from_micros(microseconds))
    }

    #[test]
    fn a_full_bucket_gives_its_capacity_and_then_its_rate() {
        let mut bucket = TokenBucket::new(5, 1000, at(0));
        assert_eq!((0..10).filter(|_| bucket.take(at(0), 0)).count(), 5);
        assert!(!bucket.take(at(999), 0), "just too early");
        assert!(bucket.take(at(1000), 0) && !bucket.take(at(1000), 0));
        assert!(!bucket.is_full(at(5999)) && bucket.is_full(at(6000)));
        assert_eq!((0..10).filter(|_| bucket.take(at(1_000_000), 0)).count(), 5, "a pause fills it, and no more");
    }

    #[test]
    fn tokens_that_are_to_be_kept_are_kept() {
        let mut bucket = TokenBucket::new(5, 1, at(0));
        assert_eq!((0..10).filter(|_| bucket.take(at(0), 3)).count(), 2);
        assert_eq!((0..10).filter(|_| bucket.take(at(0), 0)).count(), 3);
    }

    #[test]
    fn time_that_goes_back_gives_nothing() {
        let mut bucket = TokenBucket::new(1, 1, at(2_000_000));
        assert!(bucket.take(at(2_000_000), 0));
        assert!(!bucket.take(at(0), 0) && !bucket.take(at(2_500_000), 0) && bucket.take(at(3_000_000), 0));
    }
}
