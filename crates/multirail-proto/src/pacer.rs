//! A limit of the rate at which bytes move, which can change at any time.

use std::time::Duration;

/// The bytes that may move at once are those of this part of a second.
const BURST_PART: u32 = 8;
const MIN_STEP_BYTES: u64 = 16 << 10;

/// Says when bytes may move. Time is that since its beginning.
///
/// Bytes are counted when they have moved, so that each step may exceed the limit by its length; the next
/// step waits for it.
#[derive(Debug, Default)]
pub struct Pacer {
    /// Bytes a second; `None`: no limit.
    bytes_s: Option<u64>,
    /// When all that has moved would have moved at the given rate.
    free_at: Duration,
}

impl Pacer {
    /// A limit in bytes a second, of at least one; `None` is no limit.
    pub fn new(bytes_s: Option<u64>) -> Self {
        Self { bytes_s: bytes_s.map(|bytes_s| bytes_s.max(1)), free_at: Duration::ZERO }
    }

    /// The limit in bytes a second.
    pub fn bytes_s(&self) -> Option<u64> {
        self.bytes_s
    }

    /// Changes the limit. What has moved too early waits at the new rate.
    pub fn set(&mut self, now: Duration, bytes_s: Option<u64>) {
        let ahead_s = self.free_at.saturating_sub(now).as_secs_f64();
        let next = Self::new(bytes_s);
        self.free_at = match (self.bytes_s, next.bytes_s) {
            (Some(before), Some(after)) => now + seconds(ahead_s * before as f64 / after as f64),
            _ => now,
        };
        self.bytes_s = next.bytes_s;
    }

    /// How long to wait before more bytes may move.
    pub fn wait(&self, now: Duration) -> Duration {
        if self.bytes_s.is_some() { self.free_at.saturating_sub(now) } else { Duration::ZERO }
    }

    /// The most bytes that should move in one step.
    pub fn step_bytes(&self) -> u64 {
        self.bytes_s.map_or(u64::MAX, |bytes_s| (bytes_s / u64::from(BURST_PART)).max(MIN_STEP_BYTES))
    }

    /// Counts bytes that have moved.
    pub fn count(&mut self, now: Duration, bytes: u64) {
        if let Some(bytes_s) = self.bytes_s {
            let burst = Duration::from_secs(1) / BURST_PART;
            let start = self.free_at.max(now.saturating_sub(burst));
            self.free_at = start + seconds(bytes as f64 / bytes_s as f64);
        }
    }
}

/// A duration of at most a year.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(365.0 * 86400.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In any interval, no more moves than the rate, one burst and one step allow. While there is
        /// always something to move, no less moves.
        #[test]
        fn the_rate_is_kept(
            bytes_s in 1000u64..1_000_000_000,
            steps in prop::collection::vec((1u64..200_000, 0u64..100), 1..100),
            is_idle: bool,
        ) {
            let mut pacer = Pacer::new(Some(bytes_s));
            let (mut now, mut moved) = (Duration::from_secs(1), Vec::new());
            for (bytes, idle_ms) in steps {
                now += pacer.wait(now);
                pacer.count(now, bytes);
                moved.push((now, bytes));
                if is_idle {
                    now += Duration::from_millis(idle_ms);
                }
            }
            for first in 0..moved.len() {
                let mut sum = 0;
                for (until, bytes) in &moved[first..] {
                    let since = *until - moved[first].0;
                    let allowed = (since.as_secs_f64() + 1.0 / f64::from(BURST_PART)) * bytes_s as f64;
                    prop_assert!(sum as f64 <= allowed + moved[first].1 as f64 + 1.0, "{sum} of {allowed}");
                    sum += bytes;
                }
            }
            let total: u64 = moved.iter().map(|(_, bytes)| bytes).sum();
            if !is_idle {
                prop_assert!(now.as_secs_f64() <= 1.0 + total as f64 / bytes_s as f64 + 1e-6);
            }
        }

        /// After a change, what is still to be waited for has the new rate.
        #[test]
        fn a_change_holds_at_once(
            before in 1000u64..1_000_000,
            after in prop::option::of(1000u64..1_000_000),
            bytes in 1u64..1_000_000,
        ) {
            let mut pacer = Pacer::new(Some(before));
            let now = Duration::from_secs(1);
            pacer.count(now, bytes + before / u64::from(BURST_PART));
            pacer.set(now, after);
            let expected = after.map_or(0.0, |after| bytes as f64 / after as f64);
            prop_assert!((pacer.wait(now).as_secs_f64() - expected).abs() < 1e-2 + expected * 1e-3);
            prop_assert_eq!(pacer.bytes_s(), after);
        }
    }
}
