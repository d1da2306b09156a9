//! What a session needs while no call drives it: dead channels, probes, and channels that do not
//! pay off.

use super::channel::SessionChannel;
use super::time::Time;
use super::tune::Tuner;
use std::time::Duration;

/// How often the machine looks after the session. Late reports and dead rails wait at most this
/// long.
pub(super) const MAINTAIN_EVERY: Duration = Duration::from_millis(100);
/// A channel that carries nothing is measured again this often while others carry messages, so
/// that an improvement is noticed.
const PROBE_EVERY: Duration = Duration::from_secs(2);

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

    /// Probes channels that carried nothing while others did.
    pub(super) fn probe_unused(&mut self, channels: &mut [SessionChannel], now: Time) {
        if now.since(self.probed_at) < PROBE_EVERY {
            return;
        }
        self.probed_at = now;
        let sent: Vec<(u32, u64)> = channels.iter().map(|c| (c.id, c.tx.payload_bytes)).collect();
        let before = |id: u32| self.sent_before.iter().find(|(i, _)| *i == id).map_or(0, |(_, bytes)| *bytes);
        if sent.iter().any(|(id, bytes)| *bytes > before(*id)) {
            for (channel, (id, bytes)) in channels.iter_mut().zip(&sent) {
                if *bytes == before(*id) && channel.up {
                    channel.tx.probe = true;
                }
            }
        }
        self.sent_before = sent;
    }
}
