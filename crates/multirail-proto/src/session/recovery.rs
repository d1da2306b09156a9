//! What is sent a second time, and when: the bytes of a channel that is late, stalled, retired or
//! lost.

use super::action::{Action, Event};
use super::channel::SessionChannel;
use super::path::Paths;
use super::send::{Sending, announce};
use super::time::Time;
use crate::striping::{Channel, Framing, Run};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// While all of a message is claimed and not confirmed, how often a rescue is considered.
const RESCUE_EVERY: Duration = Duration::from_millis(2);
/// A channel on which nothing was acknowledged for this long, and for four round trips, counts as
/// stalled. This is longer than a retransmission and what a loaded host adds.
const STALLED_AFTER: Duration = Duration::from_millis(300);
/// See [`STALLED_AFTER`].
const STALLED_AFTER_RTTS: u32 = 4;

impl Sending {
    /// Considers a rescue if one is due; returns when the next one is. `None` while the current
    /// message has unclaimed bytes, or is a copy, for which no call waits.
    pub(super) fn poll_rescue(
        &mut self,
        channels: &mut [SessionChannel],
        paths: &dyn Paths,
        actions: &mut VecDeque<Action>,
        now: Time,
    ) -> Option<Time> {
        let current = self.messages.current.as_ref()?;
        if current.copy.is_some() || !current.is_claimed() {
            return None;
        }
        match self.rescue_at {
            Some(at) if now < at => return Some(at),
            Some(_) => self.rescue(channels, paths, actions, now),
            None => {}
        }
        self.rescue_at = Some(now + RESCUE_EVERY);
        self.rescue_at
    }

    /// Sends again, on channels with nothing to do, what others are late with.
    fn rescue(
        &mut self,
        channels: &mut [SessionChannel],
        paths: &dyn Paths,
        actions: &mut VecDeque<Action>,
        now: Time,
    ) {
        self.refresh_views(channels, paths, now);
        for index in 0..channels.len() {
            let idle = channels[index].tx.pending.is_none() && self.views[index].backlog_bytes == 0;
            if !idle || !self.views[index].up {
                continue;
            }
            let outstanding = self.outstanding(channels, paths);
            let Some(current) = &mut self.messages.current else { return };
            // The first channel of what was sent twice is not waited for.
            let (rescued, waited_for): (Vec<_>, Vec<_>) = outstanding
                .into_iter()
                .partition(|(_, range)| current.rescued.iter().any(|r| r.start < range.end && range.start < r.end));
            let mut views = self.views.clone();
            for (channel, range) in rescued {
                views[channel].backlog_bytes = views[channel].backlog_bytes.saturating_sub(range.end - range.start);
            }
            let Some(range) = current.striping.rescue(index, &views, &waited_for) else { continue };
            current.rescued.push(range.clone());
            self.resent_bytes += range.end - range.start;
            self.rescues += 1;
            let (id, offset, bytes) = (channels[index].id, range.start, range.end - range.start);
            actions.push_back(Action::Log(Event::Rescued { id, offset, bytes }));
            let run = Run { range, framing: Framing::Header };
            self.control_messages += announce(&mut channels[index].tx, current, index, &run, now);
            self.views[index].backlog_bytes += run.range.end - run.range.start;
        }
    }

    /// What of the current message was claimed and not acknowledged, with its channel, cut where
    /// it was sent twice.
    fn outstanding(&self, channels: &[SessionChannel], paths: &dyn Paths) -> Vec<(Channel, Range<u64>)> {
        let Some(current) = &self.messages.current else { return Vec::new() };
        let mut cuts: Vec<u64> = current.rescued.iter().flat_map(|r| [r.start, r.end]).collect();
        cuts.sort_unstable();
        let mut ranges = Vec::new();
        for (index, channel) in channels.iter().enumerate().filter(|(_, c)| c.up) {
            let tx = &channel.tx;
            let acknowledged = tx.written.saturating_sub(paths.unacknowledged_bytes(index));
            for run in tx.in_flight.iter().filter(|r| r.message == current.message && r.end > acknowledged) {
                let length = run.range.end - run.range.start;
                let arrived = acknowledged.saturating_sub(run.end - length);
                let mut left = run.range.start + arrived..run.range.end;
                for &cut in &cuts {
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

    /// Checks whether a channel's bytes are acknowledged; returns whether it has stalled just now.
    ///
    /// If nothing was acknowledged for [`STALLED_AFTER`], others may claim what the channel has.
    /// That costs little if it was only slow. If it is dead, it saves the time until the kernel
    /// gives it up.
    pub(super) fn watch_progress(
        &mut self,
        channels: &mut [SessionChannel],
        index: Channel,
        window_closed: bool,
        paths: &dyn Paths,
        now: Time,
    ) -> bool {
        let others = channels.iter().enumerate().any(|(i, c)| i != index && c.up && !c.tx.stalled);
        let SessionChannel { tx, rtt_us, .. } = &mut channels[index];
        let acknowledged = tx.written.saturating_sub(paths.unacknowledged_bytes(index));
        if acknowledged > tx.progress_bytes || acknowledged == tx.written || window_closed {
            (tx.progress_bytes, tx.progress_at) = (acknowledged, now);
            tx.stalled = false;
            return false;
        }
        let limit = STALLED_AFTER.max(STALLED_AFTER_RTTS * Duration::from_micros((*rtt_us).into()));
        if tx.stalled || !others || now.since(tx.progress_at) < limit {
            return false;
        }
        tx.stalled = true;
        self.refresh_views(channels, paths, now);
        self.return_unconfirmed(channels, index);
        true
    }

    /// Stops a channel from claiming more. It still sends its claimed bytes.
    pub(super) fn retire(&mut self, channels: &mut [SessionChannel], index: Channel, paths: &dyn Paths, now: Time) {
        channels[index].tx.retiring = true;
        channels[index].tx.probe = false;
        self.refresh_views(channels, paths, now);
        if let Some(current) = &mut self.messages.current {
            current.striping.channel_lost(index, &self.views);
        }
    }

    /// Takes back what a channel that has lost its connection had.
    pub(super) fn lose(&mut self, channels: &mut [SessionChannel], index: Channel, paths: &dyn Paths, now: Time) {
        self.refresh_views(channels, paths, now);
        channels[index].tx.pending = None;
        channels[index].tx.probe = false;
        self.return_unconfirmed(channels, index);
    }

    /// Lets other channels claim what a channel has and the peer has not confirmed.
    fn return_unconfirmed(&mut self, channels: &mut [SessionChannel], index: Channel) {
        let tx = &mut channels[index].tx;
        if let Some(current) = &mut self.messages.current {
            current.open_ended.retain(|c| *c != index);
            current.striping.channel_lost(index, &self.views);
        }
        for run in std::mem::take(&mut tx.in_flight) {
            let length = run.range.end - run.range.start;
            let confirmed = tx.confirmed.saturating_sub(run.end - length).min(length);
            if let Some(outgoing) = self.messages.find_mut(run.message) {
                outgoing.striping.give_back(run.range.start + confirmed..run.range.end);
                self.resend = true;
            }
        }
    }
}
