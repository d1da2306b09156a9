//! The machine: all that a session has, and how it fails.

use super::action::{Action, CloseReason};
use super::channel::SessionChannel;
use super::close::Closing;
use super::config::{MachineConfig, Role};
use super::control::ControlLink;
use super::departure::Departure;
use super::failure::{Failure, Violation};
use super::maintenance::Maintenance;
use super::receive::Receiving;
use super::redial::Redials;
use super::send::Sending;
use super::time::Time;
use crate::striping::Channel;
use crate::wire::{Control, Port, Report};
use std::collections::VecDeque;

/// One side of a session: every decision, and no I/O. See the [module](super) for the call order.
#[derive(Debug)]
pub struct Machine {
    pub(super) config: MachineConfig,
    /// The table of channels. A channel's entry does not move before [`Action::ForgetClosed`].
    pub(super) channels: Vec<SessionChannel>,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    pub(super) control: ControlLink,
    pub(super) closing: Closing,
    pub(super) departure: Departure,
    pub(super) maintenance: Maintenance,
    pub(super) redials: Redials,
    pub(super) actions: VecDeque<Action>,
    /// The peer's ports, until they are taken.
    pub(super) peer_ports: Option<Vec<Port>>,
    /// Sent to the peer on every new control connection.
    pub(super) own_ports: Vec<Port>,
    /// Since when no channel has been up.
    pub(super) dark_since: Option<Time>,
    /// What channels that are no longer in the table have sent and received.
    pub(super) forgotten_bytes: (u64, u64),
    failure: Option<Failure>,
}

/// What a session has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineStats {
    /// Frame headers sent; with `two-ended`, *Start* and *End* messages.
    pub control_messages: u64,
    /// Bytes sent a second time, because a channel was lost or late.
    pub resent_bytes: u64,
    /// Runs sent a second time because their first channel was late.
    pub rescues: u64,
    /// Payload bytes received a second time.
    pub duplicate_bytes: u64,
    /// Payload bytes claimed for channels, with those sent a second time.
    pub sent_bytes: u64,
    /// Payload bytes received, with those received a second time.
    pub received_bytes: u64,
}

/// One channel of a session at the moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChannelStatus {
    /// The dialler's number for the channel.
    pub id: u32,
    /// The rail on which it was opened.
    pub rail: u32,
    /// Whether it has a connection.
    pub up: bool,
    /// The rate at which the peer sees this side's bytes arrive; 0 while nothing was measured.
    pub rate_bytes_s: f64,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Payload bytes claimed for the channel.
    pub sent_bytes: u64,
    /// Payload bytes that came over it.
    pub received_bytes: u64,
}

impl Machine {
    /// A session without connections.
    pub fn new(config: MachineConfig, now: Time) -> Self {
        let tunes = config.role == Role::Dialler && config.tune_channels;
        Self {
            sending: Sending::new(config.strategy, config.fragment_bytes),
            receiving: Receiving::new(now),
            channels: Vec::new(),
            control: ControlLink::default(),
            closing: Closing::default(),
            departure: Departure::default(),
            maintenance: Maintenance::new(tunes, now),
            redials: Redials::default(),
            actions: VecDeque::new(),
            peer_ports: None,
            own_ports: Vec::new(),
            dark_since: Some(now),
            forgotten_bytes: (0, 0),
            failure: None,
            config,
        }
    }

    /// What the driver must do next. Call it until it returns `None` after every other call that
    /// takes `&mut self`, before channels are used by their index again.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Why the session is over, if it is.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Which side opens the session's connections.
    pub fn role(&self) -> Role {
        self.config.role
    }

    /// Fails if the session is over.
    ///
    /// # Errors
    ///
    /// Why the session is over.
    pub fn check(&self) -> Result<(), Failure> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Whether the session goes on: it has not failed, and the peer has not ended it.
    pub fn is_alive(&self) -> bool {
        self.failure.is_none() && !self.closing.peer_gone
    }

    /// Ends the session for good, with a word to the peer where it does not know the reason. The
    /// first failure counts.
    pub fn fail(&mut self, failure: Failure) {
        if self.failure.is_some() {
            return;
        }
        if let Some(reason) = failure.reason_for_peer() {
            self.control.queue(&Control::Abort { reason });
        }
        self.failure = Some(failure);
        // The peer should read the reason before it finds its channels closed.
        self.actions.push_back(Action::End);
        for (channel, entry) in self.channels.iter_mut().enumerate() {
            if std::mem::take(&mut entry.up) {
                self.actions.push_back(Action::Close { channel, reason: CloseReason::SessionOver });
            }
        }
    }

    /// Fails if `result` is a violation; the error is the session's failure.
    pub(super) fn fail_on<T>(&mut self, result: Result<T, Violation>) -> Result<T, Failure> {
        result.map_err(|violation| {
            let failure = Failure::Protocol(violation);
            self.fail(failure.clone());
            failure
        })
    }

    /// What the session has done so far.
    pub fn stats(&self) -> MachineStats {
        let (sent_bytes, received_bytes) = self.channels.iter().fold(self.forgotten_bytes, |(sent, received), c| {
            (sent + c.tx.payload_bytes, received + c.rx.payload_bytes)
        });
        MachineStats {
            sent_bytes,
            received_bytes,
            control_messages: self.sending.control_messages,
            resent_bytes: self.sending.resent_bytes,
            rescues: self.sending.rescues,
            duplicate_bytes: self.receiving.duplicate_bytes,
        }
    }

    /// The table of channels, lost ones included.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = ChannelStatus> {
        self.channels.iter().map(|c| ChannelStatus {
            id: c.id,
            rail: c.rail,
            up: c.up,
            rate_bytes_s: c.tx.rate.rate_bytes_s(),
            rtt_us: c.rtt_us,
            sent_bytes: c.tx.payload_bytes,
            received_bytes: c.rx.payload_bytes,
        })
    }

    /// Length of the table of channels.
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// The entry of the channel with this id.
    pub(super) fn position(&self, id: u32) -> Option<Channel> {
        self.channels.iter().position(|c| c.id == id)
    }

    /// Tells the peer what has arrived. While the peer does not read the control connection, the
    /// report is put off.
    pub(super) fn queue_report(&mut self, now: Time) {
        if self.control.is_full() {
            self.receiving.reports.requested = true;
            return;
        }
        let row = |c: &mut SessionChannel| c.rx.take_report(c.id, now);
        let channels = self.channels.iter_mut().filter(|c| c.up).filter_map(row).collect();
        let completed_below = self.receiving.next_message;
        let close_heard = self.closing.peer_closed_at.is_some();
        self.control.queue(&Control::Report(Report { completed_below, close_heard, channels }));
        self.receiving.reports.reported(now);
    }
}
