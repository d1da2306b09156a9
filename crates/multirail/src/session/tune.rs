//! Keeps each rail at the number of channels that pays, while it transfers. On the client's side, which opens them.

use super::state::State;
use multirail_proto::channels::{ChannelCount, OBSERVE_EVERY_US, Observation};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A window or a buffer counts as the limit if it was for this share of the time in which there was something to send.
const LIMITED_SHARE: f64 = 0.2;

/// A sender that has something under way for less of the time waits for answers, and not for the path.
const BULK_SHARE: f64 = 0.7;
/// Whether the other side's is a bulk transfer is not to be seen from here; it is taken for one if it sends so many times more than
/// this side.
const ONE_WAY: u64 = 4;

/// What the channels of a session did, and how many there should be on each rail.
#[derive(Debug)]
pub(super) struct Tuner {
    started: Instant,
    observed: Instant,
    rails: HashMap<u32, ChannelCount>,
    /// By channel, when last observed.
    before: HashMap<u32, Counters>,
}

/// What a channel has done since it was opened; or a rail's channels, since they were last observed.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    /// Taken by the peer's kernel: what lies in this host's buffers has not been carried.
    sent_bytes: u64,
    received_bytes: u64,
    limited_us: u64,
    busy_us: u64,
    /// Sent again, with congestion control that takes losses for congestion.
    resent_segments: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Rail {
    done: Counters,
    /// Of the channel that had something under way for the longest.
    busiest_us: u64,
    min_rtt_us: u32,
    /// Those that go on.
    channels: u32,
}

impl Rail {
    /// Whether the path was waited for, and not the application.
    fn is_bulk(&self, elapsed: Duration) -> bool {
        self.done.received_bytes > ONE_WAY * self.done.sent_bytes
            || self.busiest_us as f64 >= BULK_SHARE * elapsed.as_micros() as f64
    }
}

impl Tuner {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), observed: Instant::now(), rails: HashMap::new(), before: HashMap::new() }
    }

    /// Retires channels that do not pay; returns the rails that should get more, and how many.
    pub(super) fn tune(&mut self, state: &mut State) -> Vec<(u32, u32)> {
        let elapsed = self.observed.elapsed();
        if elapsed < Duration::from_micros(OBSERVE_EVERY_US) {
            return Vec::new();
        }
        self.observed = Instant::now();
        let mut open = Vec::new();
        for (number, rail) in self.observe(state) {
            let Rail { done, min_rtt_us, channels, .. } = rail;
            let wanted = self.rails.entry(number).or_default().observe(Observation {
                now_us: self.started.elapsed().as_micros() as u64,
                bytes: if rail.is_bulk(elapsed) { done.sent_bytes + done.received_bytes } else { 0 },
                elapsed_us: elapsed.as_micros() as u64,
                rtt_us: min_rtt_us,
                window_limited: done.limited_us as f64 > LIMITED_SHARE * done.busy_us.max(1) as f64,
                lost: done.resent_segments > 0,
            });
            if wanted != channels {
                tracing::debug!(rail = number, from = channels, to = wanted, "number of channels");
            }
            if wanted > channels {
                open.push((number, wanted - channels));
            } else {
                state.retire(number, channels - wanted);
            }
        }
        open
    }

    /// What each rail did since the last call.
    fn observe(&mut self, state: &State) -> HashMap<u32, Rail> {
        let mut rails: HashMap<u32, Rail> = HashMap::new();
        let mut now = HashMap::with_capacity(state.channels.len());
        for channel in &state.channels {
            let Some(socket) = &channel.socket else { continue };
            let info = socket.info();
            let counters = Counters {
                sent_bytes: channel.tx.written.saturating_sub(socket.unacknowledged_bytes()),
                received_bytes: channel.rx.payload_bytes,
                limited_us: info.window_limited_us,
                busy_us: info.busy_us,
                resent_segments: if socket.minds_losses() { info.resent_segments } else { 0 },
            };
            now.insert(channel.id, counters);
            let before = self.before.get(&channel.id).copied().unwrap_or_default();
            let rail = rails.entry(channel.rail).or_default();
            rail.done.sent_bytes += counters.sent_bytes.saturating_sub(before.sent_bytes);
            rail.done.received_bytes += counters.received_bytes.saturating_sub(before.received_bytes);
            rail.busiest_us = rail.busiest_us.max(counters.busy_us.saturating_sub(before.busy_us));
            rail.done.limited_us += counters.limited_us.saturating_sub(before.limited_us);
            rail.done.busy_us += counters.busy_us.saturating_sub(before.busy_us);
            rail.done.resent_segments += counters.resent_segments.saturating_sub(before.resent_segments);
            if !channel.tx.is_retiring() {
                rail.min_rtt_us =
                    if rail.channels == 0 { info.min_rtt_us } else { rail.min_rtt_us.min(info.min_rtt_us) };
                rail.channels += 1;
            }
        }
        self.before = now;
        rails
    }
}

impl State {
    /// Has the newest `count` channels of a rail take no more, and closes those that are empty.
    fn retire(&mut self, rail: u32, count: u32) {
        for _ in 0..count {
            let newest =
                self.channels.iter().rposition(|c| c.rail == rail && c.socket.is_some() && !c.tx.is_retiring());
            let Some(index) = newest else { return };
            self.transmit_retire(index);
        }
    }

    /// Closes retiring channels whose bytes have all arrived. The peer finds the end of the stream, and sends what it had under
    /// way there again.
    pub(super) fn close_retired(&mut self) {
        for index in 0..self.channels.len() {
            if self.channels[index].tx.is_retired() {
                self.channel_lost(index, "one channel less is as good");
                self.lost.retain(|l| l.id != self.channels[index].id);
            }
        }
    }
}
