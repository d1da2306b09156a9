//! Whether a receiver should spin for its next message instead of sleeping.

use std::time::Duration;

/// The longest spin for one message. This is the cost of an unsuccessful spin.
pub const SPIN: Duration = Duration::from_micros(50);
/// Messages that take longer than this are not worth spinning for: it would fail too often.
const WORTH_US: f64 = 25.0;
/// One message in 32 is slept for, so that the runtime's other tasks run. One in 32 is spun for in
/// any case: a receiver that sleeps measures a longer wait, and would never start to spin.
const ROUND: u32 = 32;
/// With more channels, asking each of them takes longer than being woken.
const MAX_SPINNING_CHANNELS: usize = 4;

/// Decides between spinning and sleeping by how long recent messages took to arrive.
///
/// Sleeping and waking cost tens of microseconds if the peer sits on another core or is as fast
/// as this side, which is more than the rest of a small message's way.
#[derive(Debug)]
pub(super) struct SpinPolicy {
    /// Moving average of the wait for a message's first bytes.
    usual_wait_us: f64,
    messages: u32,
}

impl Default for SpinPolicy {
    /// A policy that sleeps until a trial shows that spinning is worth it.
    fn default() -> Self {
        Self { usual_wait_us: f64::from(u16::MAX), messages: 0 }
    }
}

impl SpinPolicy {
    /// Learns that a message's first bytes took `wait`.
    pub(super) fn learn(&mut self, wait: Duration) {
        let wait_us = wait.as_secs_f64() * 1e6;
        let weight = if self.is_trial() && wait_us < WORTH_US { 1.0 } else { 1.0 / 8.0 };
        self.usual_wait_us += (wait_us - self.usual_wait_us) * weight;
    }

    /// Whether to spin for the next message of a session with this many channels.
    pub(super) fn spin(&mut self, channels: usize) -> bool {
        self.messages = (self.messages + 1) % ROUND;
        let worth_it = self.is_trial() || (self.messages != 0 && self.usual_wait_us < WORTH_US);
        worth_it && channels <= MAX_SPINNING_CHANNELS
    }

    fn is_trial(&self) -> bool {
        self.messages == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the next `ROUND` messages are spun for if each takes `wait_us`.
    fn spins(policy: &mut SpinPolicy, wait_us: u64, channels: usize) -> usize {
        (0..ROUND)
            .filter(|_| {
                let spin = policy.spin(channels);
                policy.learn(Duration::from_micros(wait_us));
                spin
            })
            .count()
    }

    #[test]
    fn messages_that_come_soon_are_spun_for_and_others_are_not() {
        let mut policy = SpinPolicy::default();
        assert_eq!(spins(&mut policy, 24, 1), ROUND as usize - 1);
        spins(&mut policy, 100, 1);
        assert_eq!(spins(&mut policy, 26, 1), 1, "only the trial");
    }

    #[test]
    fn many_channels_are_never_spun_for() {
        let mut policy = SpinPolicy::default();
        assert_eq!(spins(&mut policy, 1, MAX_SPINNING_CHANNELS + 1), 0);
        assert!(spins(&mut policy, 1, MAX_SPINNING_CHANNELS) > 0);
    }
}
