//! Keeps each rail at the number of channels that pays, while it transfers. On the client's side, which opens them.

use super::state::State;
use multirail_proto::channels::{ChannelCount, OBSERVE_EVERY_US, Observation};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The receiver's window counts as the limit if it was for this share of the time in which there was something to send.
const LIMITED_SHARE: f64 = 0.2;

/// What the rails of a session did, and how many channels they should have.
#[derive(Debug)]
pub(super) struct Tuner {
    started: Instant,
    observed: Instant,
    rails: HashMap<u32, Rail>,
}

#[derive(Debug, Default)]
struct Rail {
    count: ChannelCount,
    before: Totals,
}

/// Sums over a rail's channels.
#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    bytes: u64,
    limited_us: u64,
    busy_us: u64,
    min_rtt_us: u32,
    channels: u32,
}

impl Tuner {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), observed: Instant::now(), rails: HashMap::new() }
    }

    /// Retires channels that do not pay; returns the rails that should get more, and how many.
    pub(super) fn tune(&mut self, state: &mut State) -> Vec<(u32, u32)> {
        let elapsed = self.observed.elapsed();
        if elapsed < Duration::from_micros(OBSERVE_EVERY_US) {
            return Vec::new();
        }
        self.observed = Instant::now();
        let mut open = Vec::new();
        for (number, now) in totals(state) {
            let rail = self.rails.entry(number).or_default();
            let before = std::mem::replace(&mut rail.before, now);
            let limited = now.limited_us.saturating_sub(before.limited_us) as f64;
            let wanted = rail.count.observe(Observation {
                now_us: self.started.elapsed().as_micros() as u64,
                // A channel that went took its bytes out of the sum: one interval then looks idle, which harms nothing.
                bytes: now.bytes.saturating_sub(before.bytes),
                elapsed_us: elapsed.as_micros() as u64,
                rtt_us: now.min_rtt_us,
                window_limited: limited > LIMITED_SHARE * now.busy_us.saturating_sub(before.busy_us).max(1) as f64,
            });
            if wanted != now.channels {
                tracing::debug!(rail = number, from = now.channels, to = wanted, "number of channels");
            }
            if wanted > now.channels {
                open.push((number, wanted - now.channels));
            } else {
                state.retire(number, now.channels - wanted);
            }
        }
        open
    }
}

fn totals(state: &State) -> HashMap<u32, Totals> {
    let mut rails: HashMap<u32, Totals> = HashMap::new();
    for channel in &state.channels {
        let Some(socket) = channel.socket.as_ref().filter(|_| !channel.tx.is_retiring()) else { continue };
        let info = socket.info();
        let sum = rails.entry(channel.rail).or_default();
        sum.bytes += channel.tx.payload_bytes + channel.rx.payload_bytes;
        sum.limited_us += info.window_limited_us;
        sum.busy_us += info.busy_us;
        sum.min_rtt_us = if sum.channels == 0 { info.min_rtt_us } else { sum.min_rtt_us.min(info.min_rtt_us) };
        sum.channels += 1;
    }
    rails
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
