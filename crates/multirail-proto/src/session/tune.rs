//! Keeps each rail at the number of channels that pays off, on the dialler's side.

use super::channel::SessionChannel;
use super::path::Paths;
use super::time::Time;
use crate::channels::{ChannelCount, OBSERVE_EVERY_US, Observation};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A window or a buffer counts as the limit if it was for this share of the time in which there
/// was something to send.
const LIMITED_SHARE: f64 = 0.2;
/// A sender that has something under way for less of the time waits for answers, and not for the
/// path.
const BULK_SHARE: f64 = 0.7;
/// This side cannot see whether the peer's transfer is a bulk transfer. It counts as one if it is
/// more than this many times as much as this side's.
const ONE_WAY: u64 = 4;

/// A rail whose number of channels should change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) rail: u32,
    /// Channels that it has.
    pub(super) from: u32,
    /// Channels that it should have.
    pub(super) to: u32,
}

/// What the channels of a session did, and how many there should be on each rail.
#[derive(Debug)]
pub(super) struct Tuner {
    observed_at: Time,
    rails: HashMap<u32, ChannelCount>,
    /// By channel id, when last observed.
    before: HashMap<u32, Counters>,
}

/// What a channel has done since it was opened, or all channels of a rail since they were last
/// observed.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    /// Bytes taken by the peer's kernel. What is in this host's buffers has not been carried.
    sent_bytes: u64,
    received_bytes: u64,
    limited_us: u64,
    busy_us: u64,
    /// Retransmissions, with a congestion control that takes losses for congestion.
    resent_segments: u64,
}

impl Counters {
    fn since(self, before: Counters) -> Counters {
        Counters {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            limited_us: self.limited_us.saturating_sub(before.limited_us),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            resent_segments: self.resent_segments.saturating_sub(before.resent_segments),
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct RailActivity {
    done: Counters,
    /// Busy time of the channel that was busy for the longest.
    busiest_us: u64,
    min_rtt_us: u32,
    /// Channels that are not retiring.
    channels: u32,
}

impl RailActivity {
    fn add(&mut self, done: Counters) {
        self.done.sent_bytes += done.sent_bytes;
        self.done.received_bytes += done.received_bytes;
        self.done.limited_us += done.limited_us;
        self.done.busy_us += done.busy_us;
        self.done.resent_segments += done.resent_segments;
        self.busiest_us = self.busiest_us.max(done.busy_us);
    }

    /// Whether the path was waited for, and not the application.
    fn is_bulk(&self, elapsed: Duration) -> bool {
        self.done.received_bytes > ONE_WAY * self.done.sent_bytes
            || self.busiest_us as f64 >= BULK_SHARE * elapsed.as_micros() as f64
    }
}

impl Tuner {
    pub(super) fn new(now: Time) -> Self {
        Self { observed_at: now, rails: HashMap::new(), before: HashMap::new() }
    }

    /// The rails whose number of channels should change now.
    pub(super) fn tune(&mut self, channels: &[SessionChannel], paths: &dyn Paths, now: Time) -> Vec<Change> {
        let elapsed = now.since(self.observed_at);
        if elapsed < Duration::from_micros(OBSERVE_EVERY_US) {
            return Vec::new();
        }
        self.observed_at = now;
        let mut changes = Vec::new();
        for (rail, activity) in self.observe(channels, paths) {
            let RailActivity { done, min_rtt_us, channels, .. } = activity;
            let to = self.rails.entry(rail).or_default().observe(Observation {
                now_us: now.as_us(),
                bytes: if activity.is_bulk(elapsed) { done.sent_bytes + done.received_bytes } else { 0 },
                elapsed_us: elapsed.as_micros() as u64,
                rtt_us: min_rtt_us,
                window_limited: done.limited_us as f64 > LIMITED_SHARE * done.busy_us.max(1) as f64,
                lost: done.resent_segments > 0,
            });
            if to != channels {
                changes.push(Change { rail, from: channels, to });
            }
        }
        changes
    }

    /// What each rail did since the last call.
    fn observe(&mut self, channels: &[SessionChannel], paths: &dyn Paths) -> BTreeMap<u32, RailActivity> {
        let mut rails: BTreeMap<u32, RailActivity> = BTreeMap::new();
        let mut now = HashMap::with_capacity(channels.len());
        for (index, channel) in channels.iter().enumerate().filter(|(_, c)| c.up) {
            let info = paths.info(index);
            let counters = Counters {
                sent_bytes: channel.tx.written.saturating_sub(paths.unacknowledged_bytes(index)),
                received_bytes: channel.rx.payload_bytes,
                limited_us: info.window_limited_us,
                busy_us: info.busy_us,
                resent_segments: if paths.losses_mean_congestion(index) { info.resent_segments } else { 0 },
            };
            now.insert(channel.id, counters);
            let before = self.before.get(&channel.id).copied().unwrap_or_default();
            let rail = rails.entry(channel.rail).or_default();
            rail.add(counters.since(before));
            if !channel.tx.retiring {
                let first = rail.channels == 0;
                rail.min_rtt_us = if first { info.min_rtt_us } else { rail.min_rtt_us.min(info.min_rtt_us) };
                rail.channels += 1;
            }
        }
        self.before = now;
        rails
    }
}
