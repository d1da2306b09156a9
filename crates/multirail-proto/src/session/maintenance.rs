//! What a session needs while no call drives it: dead channels, probes, and channels that do not
//! pay off.

use super::channel::SessionChannel;
use super::limits::PROBE_BYTES;
use super::time::Time;
use super::tune::Tuner;
use std::time::Duration;

/// How often the machine looks after the session. Late reports and dead rails wait at most this
/// long.
pub(super) const MAINTAIN_EVERY: Duration = Duration::from_millis(100);
/// A channel that carries nothing is measured again this often while others carry messages, so
/// that an improvement is noticed.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// A session carries at least this multiple of the bytes of its probes. Else the probes of the sessions of a
/// broadcast, most of which only announce pieces to each other, fill slow rails.
const CARRIED_OVER_PROBES: u64 = 16;

/// What maintenance remembers.
#[derive(Debug)]
pub(super) struct Maintenance {
    /// When the machine next looks after the session.
    pub(super) next_at: Time,
    /// `None` if this side does not choose the number of channels.
    pub(super) tuner: Option<Tuner>,
    probed_at: Time,
    /// Payload bytes that each channel, by its id, had sent at the last probe.
    sent_before: Vec<(u32, u64)>,
}

impl Maintenance {
    pub(super) fn new(tunes: bool, now: Time) -> Self {
        let tuner = tunes.then(|| Tuner::new(now));
        Self { next_at: now + MAINTAIN_EVERY, tuner, probed_at: now, sent_before: Vec::new() }
    }

    /// Probes channels that carried nothing while others carried much.
    pub(super) fn probe_unused(&mut self, channels: &mut [SessionChannel], now: Time) {
        if now.since(self.probed_at) < PROBE_EVERY {
            return;
        }
        let carried = |c: &SessionChannel| {
            let before = self.sent_before.iter().find(|(id, _)| *id == c.id).map_or(0, |(_, bytes)| *bytes);
            c.tx.payload_bytes.saturating_sub(before)
        };
        let total: u64 = channels.iter().map(carried).sum();
        let unused: Vec<bool> = channels.iter().map(|c| c.up && carried(c) == 0).collect();
        let probes = unused.iter().filter(|unused| **unused).count() as u64;
        if total < CARRIED_OVER_PROBES * probes * u64::from(PROBE_BYTES) {
            return;
        }
        for (channel, _) in channels.iter_mut().zip(unused).filter(|(_, unused)| *unused) {
            channel.tx.probe = true;
        }
        self.probed_at = now;
        self.sent_before = channels.iter().map(|c| (c.id, c.tx.payload_bytes)).collect();
    }
}
