//! What is sent again, and when: the bytes of a channel that is late, stuck, closed on purpose or gone.

use super::state::State;
use super::tx_channel::put_run;
use multirail_proto::striping::{Framing, Run};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A channel of which nothing was acknowledged for this long, and for four round trips, is taken to be stuck. Longer than a
/// retransmission and what a loaded host adds; see `watch_progress`.
const STALLED_AFTER: Duration = Duration::from_millis(300);
impl State {
    /// Sends again, on channels with nothing to do, what others are stuck with. Called while all is claimed and not confirmed.
    pub(crate) fn rescue(&mut self) {
        self.refresh_views();
        for index in 0..self.channels.len() {
            let idle = self.channels[index].tx.pending.is_none() && self.tx.views[index].backlog_bytes == 0;
            if !idle || !self.tx.views[index].up {
                continue;
            }
            let outstanding = self.outstanding();
            let Some(current) = &mut self.tx.current else { return };
            // What was sent twice already is no longer waited for.
            let (rescued, waited_for): (Vec<_>, Vec<_>) = outstanding
                .into_iter()
                .partition(|(_, range)| current.rescued.iter().any(|r| r.start < range.end && range.start < r.end));
            let mut views = self.tx.views.clone();
            for (channel, range) in rescued {
                views[channel].backlog_bytes = views[channel].backlog_bytes.saturating_sub(range.end - range.start);
            }
            let Some(range) = current.striping.rescue(index, &views, &waited_for) else { continue };
            tracing::debug!(channel = index, ?range, "sending again what another channel is stuck with");
            current.rescued.push(range.clone());
            self.tx.resent_bytes += range.end - range.start;
            let run = Run { range, framing: Framing::Header };
            self.tx.control_messages += put_run(&mut self.channels[index].tx, current, index, &run);
            self.tx.views[index].backlog_bytes += run.range.end - run.range.start;
        }
    }

    /// What of the current message was claimed and has not been acknowledged, cut where it was sent twice, with its channel.
    fn outstanding(&self) -> Vec<(usize, Range<u64>)> {
        let Some(current) = &self.tx.current else { return Vec::new() };
        let mut ranges = Vec::new();
        for (index, channel) in self.channels.iter().enumerate() {
            let Some(socket) = &channel.socket else { continue };
            let acknowledged = channel.tx.written.saturating_sub(socket.unacknowledged_bytes());
            for run in channel.tx.in_flight.iter().filter(|r| r.message == current.message && r.end > acknowledged) {
                let length = run.range.end - run.range.start;
                let arrived = acknowledged.saturating_sub(run.end - length);
                let mut left = run.range.start + arrived..run.range.end;
                let mut cuts: Vec<u64> = current.rescued.iter().flat_map(|r| [r.start, r.end]).collect();
                cuts.sort_unstable();
                for cut in cuts {
                    if left.start < cut && cut < left.end {
                        ranges.push((index, left.start..cut));
                        left.start = cut;
                    }
                }
                ranges.push((index, left));
            }
        }
        ranges
    }

    /// Notices, once in a while, whether a channel's bytes go out. If nothing does for [`STALLED_AFTER`], what it has is put up for
    /// the others, which costs little if it was only slow, and saves the rest of [`crate::socket::DEAD_AFTER`] if it is dead.
    pub(crate) fn watch_progress(&mut self, index: usize, window_closed: bool) {
        let now = Instant::now();
        let others = self.channels.iter().enumerate().any(|(i, c)| i != index && c.socket.is_some() && !c.tx.stalled);
        let channel = &mut self.channels[index];
        let Some(socket) = &channel.socket else { return };
        let tx = &mut channel.tx;
        let acknowledged = tx.written.saturating_sub(socket.unacknowledged_bytes());
        if acknowledged > tx.progress.0 || acknowledged == tx.written || window_closed {
            tx.progress = (acknowledged, now);
            tx.stalled = false;
            return;
        }
        let patience = STALLED_AFTER.max(4 * Duration::from_micros(channel.rtt_us.into()));
        if tx.stalled || !others || now.duration_since(tx.progress.1) < patience {
            return;
        }
        tracing::debug!(channel = channel.id, "stalled");
        tx.stalled = true;
        self.refresh_views();
        self.return_unconfirmed(index);
    }

    /// Has a channel take nothing more. What it has claimed it still sends.
    pub(crate) fn transmit_retire(&mut self, index: usize) {
        self.channels[index].tx.retiring = true;
        self.channels[index].tx.probe = false;
        self.refresh_views();
        if let Some(current) = &mut self.tx.current {
            current.striping.channel_lost(index, &self.tx.views);
        }
    }

    /// A channel is gone: what it had and the peer has not confirmed is put up for claiming.
    pub(crate) fn transmit_lost(&mut self, index: usize) {
        self.refresh_views();
        let tx = &mut self.channels[index].tx;
        tx.pending = None;
        tx.probe = false;
        self.return_unconfirmed(index);
    }

    /// Puts up for claiming what a channel has and the peer has not confirmed.
    fn return_unconfirmed(&mut self, index: usize) {
        let tx = &mut self.channels[index].tx;
        if let Some(current) = &mut self.tx.current {
            current.open_ended.retain(|c| *c != index);
            current.striping.channel_lost(index, &self.tx.views);
        }
        for run in std::mem::take(&mut tx.in_flight) {
            let length = run.range.end - run.range.start;
            let confirmed = tx.confirmed.saturating_sub(run.end - length).min(length);
            if let Some(outgoing) = self.tx.find_mut(run.message) {
                outgoing.striping.give_back(run.range.start + confirmed..run.range.end);
                self.tx.resend = true;
            }
        }
    }
}
