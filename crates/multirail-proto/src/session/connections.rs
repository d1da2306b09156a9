//! Connections that come and go, and what arrives on the control connection.

use super::action::{Action, CloseReason};
use super::channel::SessionChannel;
use super::config::Role;
use super::failure::Failure;
use super::machine::Machine;
use super::path::{PathInfo, Paths};
use super::time::Time;
use crate::striping::Channel;
use crate::wire::{Control, Port};

impl Machine {
    /// Sets the ports that the peer is told on every new control connection.
    pub fn set_own_ports(&mut self, ports: Vec<Port>) {
        self.own_ports = ports;
    }

    /// The peer's ports, once each time that it has sent them.
    pub fn take_peer_ports(&mut self) -> Option<Vec<Port>> {
        self.peer_ports.take()
    }

    /// An id for a channel that the driver is going to open. Only for the dialler.
    pub fn new_channel_id(&mut self) -> u32 {
        self.redials.new_id()
    }

    /// There is a new control connection; it replaces the old one.
    pub fn handle_control_connected(&mut self) {
        self.control.connect();
        self.departure.control_connected();
        self.redials.control_connected();
        self.control.queue(&Control::Ports(self.own_ports.clone()));
        for channel in &mut self.channels {
            channel.rx.report_again();
        }
        self.receiving.reports.requested = true;
        if self.closing.closing {
            self.queue_close();
        }
    }

    /// The control connection is lost.
    pub fn handle_control_lost(&mut self, now: Time) {
        self.control.lose();
        self.departure.control_lost(now);
    }

    /// The peer has closed the control connection, or reset it.
    pub fn handle_control_ended(&mut self, now: Time) {
        self.control.lose();
        self.departure.control_ended(now);
    }

    /// Whether there is a control connection.
    pub fn has_control(&self) -> bool {
        self.control.is_connected()
    }

    /// A new channel has this entry in the table from now on, with what the kernel knows of its
    /// path so far.
    pub fn handle_channel_connected(&mut self, now: Time, id: u32, rail: u32, info: &PathInfo) -> Channel {
        let index = self.channels.len();
        let unsent_limit = self.sending.unsent_limit(0.0);
        self.actions.push_back(Action::LimitUnsent { channel: index, bytes: unsent_limit });
        self.channels.push(SessionChannel::new(id, rail, info, unsent_limit, now));
        // A rate matters only where there is a choice. With many sessions, as in a broadcast, the
        // probes would add up.
        if self.channels.len() > 1 {
            self.channels.iter_mut().filter(|c| c.tx.is_new()).for_each(|c| c.tx.probe = true);
        }
        self.dark_since = None;
        self.redials.channel_connected();
        index
    }

    /// A connection is about to be added in place of the channel with this id.
    pub fn handle_channel_replaced(&mut self, now: Time, id: u32, paths: &dyn Paths) {
        if let Some(index) = self.position(id) {
            self.lose_channel(index, CloseReason::Replaced, paths, now);
        }
        self.redials.forget_channel(id);
    }

    /// A channel's connection has failed or ended.
    pub fn handle_channel_lost(&mut self, now: Time, channel: Channel, paths: &dyn Paths) {
        self.lose_channel(channel, CloseReason::Reported, paths, now);
    }

    /// The attempt to replace the channel with this id has failed; whether the peer's host refused it, as it does
    /// where no program listens.
    pub fn handle_redial_failed(&mut self, now: Time, replaces: u32, refused: bool) {
        self.redials.channel_failed(replaces, refused, now);
    }

    /// The attempt to open a control connection has failed; whether the peer's host refused it.
    pub fn handle_control_redial_failed(&mut self, now: Time, refused: bool) {
        self.redials.control_failed(refused, now);
    }

    /// The peer does not know the session any more: it has ended as agreed, or fails. As long as
    /// there is a control connection, the peer's last reports may be on it, and the end will show
    /// there.
    pub fn handle_session_unknown(&mut self) {
        if !self.end_without_peer() && !self.control.is_connected() {
            self.fail(Failure::peer_gone());
        }
    }

    /// Ends the session as agreed if the peer may have ended it so; whether it has.
    pub(super) fn end_without_peer(&mut self) -> bool {
        let may_end = self.closing.may_end(self.receiving.next_message) && self.sending.messages.all_confirmed();
        self.closing.peer_gone |= may_end;
        may_end
    }

    /// Drops a channel's connection. What it had and the peer has not confirmed may be claimed
    /// again.
    pub(super) fn lose_channel(&mut self, index: Channel, reason: CloseReason, paths: &dyn Paths, now: Time) {
        let channel = &mut self.channels[index];
        if !std::mem::take(&mut channel.up) {
            return;
        }
        self.actions.push_back(Action::Close { channel: index, reason });
        let wanted = !matches!(reason, CloseReason::Replaced | CloseReason::Retired);
        if wanted && self.config.role == Role::Dialler {
            self.redials.channel_lost(channel.id, channel.rail, now);
        }
        channel.rx.lose();
        self.sending.lose(&mut self.channels, index, paths, now);
        if self.channels.iter().all(|c| !c.up) {
            self.dark_since = Some(now);
        }
    }

    /// Bytes that the control connection should carry next.
    pub fn control_output(&self) -> &[u8] {
        self.control.output()
    }

    /// The control connection has taken this many bytes of [`Machine::control_output`].
    pub fn handle_control_written(&mut self, bytes: usize) {
        self.control.wrote(bytes);
    }

    /// Whether a report was put off, or the peer waits for one.
    pub fn is_report_requested(&self) -> bool {
        self.receiving.reports.requested
    }

    /// Queues the report of [`Machine::is_report_requested`].
    pub fn queue_requested_report(&mut self, now: Time) {
        if self.receiving.reports.requested {
            self.queue_report(now);
        }
    }

    /// Bytes have arrived on the control connection.
    ///
    /// # Errors
    /// If they break the protocol; the session has failed then.
    pub fn handle_control_bytes(&mut self, now: Time, bytes: &[u8], paths: &dyn Paths) -> Result<(), Failure> {
        self.control.push(bytes);
        loop {
            let packet = self.control.next_packet();
            let Some(packet) = self.fail_on(packet)? else { return Ok(()) };
            match packet {
                Control::Report(report) => {
                    self.closing.heard |= report.close_heard;
                    let confirmed = self.sending.confirm(&mut self.channels, &report, paths, &mut self.actions);
                    self.fail_on(confirmed)?;
                }
                Control::Ports(ports) => self.peer_ports = Some(ports),
                Control::Close { messages } => {
                    self.closing.peer_closed_at = Some(messages);
                    self.queue_report(now);
                }
                Control::Abort { reason } => {
                    self.fail(Failure::Aborted(reason));
                    return Ok(());
                }
            }
        }
    }

    /// Tells the peer that nothing more is sent.
    pub fn close(&mut self) {
        if !std::mem::replace(&mut self.closing.closing, true) {
            self.queue_close();
        }
    }

    /// Whether the peer has confirmed every message.
    pub fn is_confirmed(&self) -> bool {
        self.sending.messages.all_confirmed()
    }

    /// Whether nothing of this side's close is left to do: the peer has everything and knows that
    /// nothing more comes.
    pub fn is_finished(&self, now: Time) -> bool {
        self.sending.messages.all_confirmed() && self.closing.is_complete(self.departure.is_final(now))
    }

    fn queue_close(&mut self) {
        let messages = self.sending.messages.next_message;
        self.control.queue(&Control::Close { messages });
    }
}
