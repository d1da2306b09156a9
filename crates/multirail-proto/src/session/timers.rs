//! What the machine does when time passes.

use super::action::{Action, CloseReason, Event};
use super::channel::SessionChannel;
use super::config::Role;
use super::failure::Failure;
use super::machine::Machine;
use super::maintenance::MAINTAIN_EVERY;
use super::path::Paths;
use super::time::Time;
use crate::striping::Channel;
use std::time::Duration;

/// How long bytes that a call left unsent wait for the next call to take them along.
pub const UNSENT_AFTER: Duration = Duration::from_micros(500);
/// How long a close waits for the peer to receive everything.
pub const LINGER: Duration = Duration::from_secs(30);

impl Machine {
    /// Sets how long the session outlives its last channel from now on.
    pub fn set_give_up_after(&mut self, after: Duration) {
        self.config.give_up_after = after;
    }

    /// When [`Machine::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Time {
        self.redials.next().map_or(self.maintenance.next_at, |at| at.min(self.maintenance.next_at))
    }

    /// Time has passed: looks after the session, or dials what is due.
    ///
    /// Write what is left afterwards: [`Machine::control_output`], and a round on all channels if
    /// [`Machine::is_transmit_due`].
    pub fn handle_timeout(&mut self, now: Time, paths: &dyn Paths) {
        if now >= self.maintenance.next_at {
            self.maintenance.next_at = now + MAINTAIN_EVERY;
            self.maintain(now, paths);
        }
        if self.is_alive() && self.config.role == Role::Dialler {
            if !self.control.is_connected() {
                self.redials.control_missing(now);
            }
            self.redials.start(&mut self.actions, now);
        }
    }

    fn maintain(&mut self, now: Time, paths: &dyn Paths) {
        self.look_at_paths(now, paths);
        self.maintenance.probe_unused(&mut self.channels, now);
        self.report_leftovers(now);
        self.close_retired(now, paths);
        self.tune(now, paths);
        self.forget_closed();
        let dark = self.dark_since.map(|since| now.since(since));
        if !self.closing.peer_gone && dark.is_some_and(|dark| dark > self.config.give_up_after) {
            self.fail(Failure::AllRailsLost(self.config.give_up_after));
        }
        if !self.closing.peer_gone && dark.is_some() && self.redials.is_refused(now) && !self.end_without_peer() {
            self.fail(Failure::peer_ended());
        }
        if self.has_peer_left(now) {
            self.fail(Failure::peer_left());
        }
    }

    /// Whether the peer has left without ending the session, and there is nothing that it could
    /// resume. The dialler looks for its peer until it gives up.
    fn has_peer_left(&self, now: Time) -> bool {
        let is_between_messages = !self.receiving.has_part() && self.sending.messages.all_confirmed();
        self.config.role == Role::Listener
            && self.closing.peer_closed_at.is_none()
            && is_between_messages
            && self.dark_since.is_some_and(|dark| self.departure.has_left(dark, now))
    }

    /// Notices connections that died while no call used them, and takes their round trips.
    fn look_at_paths(&mut self, now: Time, paths: &dyn Paths) {
        // Messages of a peer that has left can still be received. A side that only waits for its own
        // messages to be confirmed may leave padding unread.
        let only_waits = self.closing.closing && self.redials.is_refused(now);
        let mut unanswered = false;
        for index in 0..self.channels.len() {
            if !self.channels[index].up {
                continue;
            }
            let info = paths.info(index);
            unanswered |= info.unanswered;
            if !info.alive {
                self.lose_channel(index, CloseReason::TimedOut, paths, now);
                continue;
            }
            if info.ended && (only_waits || self.is_used_up(index, paths)) {
                self.lose_channel(index, CloseReason::PeerClosed, paths, now);
                continue;
            }
            let tolerate = info.window_closed;
            self.actions.push_back(Action::TolerateSilence { channel: index, tolerate });
            self.channels[index].follow_path(&info);
            if self.sending.watch_progress(&mut self.channels, index, info.window_closed, paths, now) {
                let id = self.channels[index].id;
                self.actions.push_back(Action::Log(Event::Stalled { id }));
            }
        }
        self.departure.observe(unanswered, now);
    }

    /// Whether nothing more is to be had of a channel that the peer has closed. A peer that goes on
    /// sends again, on other channels, what is unread here, and gets there what is unconfirmed. It
    /// may wait for that before it sends anything.
    fn is_used_up(&self, index: Channel, paths: &dyn Paths) -> bool {
        let channel = &self.channels[index];
        let peer_goes_on = self.control.is_connected();
        let all_read = !channel.rx.has_staged() && paths.unread_bytes(index) == 0;
        all_read || (peer_goes_on && channel.tx.has_unconfirmed())
    }

    /// Closes retiring channels that have delivered everything. The peer finds the end of the
    /// stream, and sends again what it had under way there.
    fn close_retired(&mut self, now: Time, paths: &dyn Paths) {
        for index in 0..self.channels.len() {
            if self.channels[index].tx.is_retired() {
                self.lose_channel(index, CloseReason::Retired, paths, now);
            }
        }
    }

    /// Opens channels on rails that gain by them, and retires channels that do not pay off.
    fn tune(&mut self, now: Time, paths: &dyn Paths) {
        let Some(tuner) = &mut self.maintenance.tuner else { return };
        for change in tuner.tune(&self.channels, paths, now) {
            let (rail, from, to) = (change.rail, change.from, change.to);
            self.actions.push_back(Action::Log(Event::ChannelCount { rail, from, to }));
            if to > from {
                self.actions.push_back(Action::OpenChannels { rail, count: to - from });
            }
            // The newest channels go first.
            for _ in to..from {
                let goes_on = |c: &SessionChannel| c.rail == rail && c.up && !c.tx.retiring;
                let Some(index) = self.channels.iter().rposition(goes_on) else { break };
                self.sending.retire(&mut self.channels, index, paths, now);
            }
        }
    }

    /// Forgets lost channels once no message refers to their entries in the table.
    fn forget_closed(&mut self) {
        let unused = self.sending.messages.all_confirmed() && !self.receiving.is_begun();
        if unused && self.channels.iter().any(|c| !c.up) {
            for lost in self.channels.iter().filter(|c| !c.up) {
                self.forgotten_bytes.0 += lost.tx.payload_bytes;
                self.forgotten_bytes.1 += lost.rx.payload_bytes;
            }
            self.channels.retain(|c| c.up);
            self.actions.push_back(Action::ForgetClosed);
        }
    }
}
