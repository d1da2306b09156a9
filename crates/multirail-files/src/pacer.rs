//! A limit of the rate at which a sender gives bytes to its session: a token bucket.

use std::time::Duration;

/// The bytes that may be sent at once are those of this part of a second.
const BURST_PART: u64 = 8;
/// A message is at most this part of a second long, so that its bytes leave evenly.
const MESSAGE_PART: u64 = 8;
const MIN_MESSAGE_BYTES: u64 = 64 << 10;
const MAX_MESSAGE_BYTES: u64 = 16 << 20;

/// Says when bytes may be sent. Time is that since its beginning.
#[derive(Debug)]
pub(super) struct Pacer {
    bytes_s: u64,
    /// When all that was sent has left at the given rate.
    free_at: Duration,
}

impl Pacer {
    /// A limit in bytes a second, of at least one.
    pub(super) fn new(bytes_s: u64) -> Self {
        Self { bytes_s: bytes_s.max(1), free_at: Duration::ZERO }
    }

    /// The longest message that should be sent at once.
    pub(super) fn message_bytes(&self) -> u64 {
        (self.bytes_s / MESSAGE_PART).clamp(MIN_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
    }

    /// Counts `bytes` that are about to be sent, and returns how long to wait before.
    pub(super) fn wait(&mut self, now: Duration, bytes: u64) -> Duration {
        let burst = Duration::from_secs(1) / u32::try_from(BURST_PART).unwrap_or(1);
        let start = self.free_at.max(now.saturating_sub(burst));
        self.free_at = start + Duration::from_secs_f64(bytes as f64 / self.bytes_s as f64);
        start.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In any interval, no more is sent than the rate and one burst and message allow. While there
        /// is always something to send, no less is sent.
        #[test]
        fn the_rate_is_kept(
            bytes_s in 1000u64..1_000_000_000,
            steps in prop::collection::vec((1u64..200_000, 0u64..100), 1..100),
            is_idle: bool,
        ) {
            let mut pacer = Pacer::new(bytes_s);
            let (mut now, mut sent) = (Duration::ZERO, Vec::new());
            for (bytes, idle_ms) in steps {
                now += pacer.wait(now, bytes);
                sent.push((now, bytes));
                if is_idle {
                    now += Duration::from_millis(idle_ms);
                }
            }
            for (first, (from, _)) in sent.iter().enumerate() {
                let mut sum = 0;
                for (until, bytes) in &sent[first..] {
                    let allowed = (*until - *from).as_secs_f64() * bytes_s as f64 + (bytes_s / BURST_PART) as f64;
                    prop_assert!(sum as f64 <= allowed + sent[first].1 as f64 + 1.0, "{sum} of {allowed}");
                    sum += bytes;
                }
            }
            let total: u64 = sent.iter().map(|(_, bytes)| bytes).sum();
            if !is_idle {
                prop_assert!(now.as_secs_f64() <= total as f64 / bytes_s as f64 + 1e-6);
            }
        }
    }
}
