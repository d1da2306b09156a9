//! The driver of one session: the machine, its sockets, and the execution of its actions.

use super::config::Config;
use super::mailbox::{Joining, Mailbox};
use super::sockets::Sockets;
use crate::error::Result;
use crate::rate_limit::Throttle;
use crate::socket::ChannelSocket;
use multirail_proto::session::{Action, Failure, Machine, Redial, Role, Time};
use multirail_proto::striping::Strategy;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the control connection that are read at a time.
const CONTROL_READ_BYTES: usize = 4096;

/// Connections that the machine asks the driver to dial.
#[derive(Debug, Clone, Copy)]
pub(super) enum DialRequest {
    /// A channel in place of a lost one.
    Channel(Redial),
    /// The control connection.
    Control,
    /// Further channels on a rail.
    More { rail: u32, count: u32 },
}

/// All data of a session except its lock and its wakers.
#[derive(Debug)]
pub(crate) struct SessionDriver {
    pub(super) machine: Machine,
    pub(super) sockets: Sockets,
    pub(super) control: Option<ChannelSocket>,
    pub(super) control_buffer: Box<[u8; CONTROL_READ_BYTES]>,
    pub(super) mailbox: Arc<Mailbox>,
    /// For the maintenance task of the dialling side.
    pub(super) dials: Vec<DialRequest>,
    pub(super) throttle: Throttle,
    /// Whether the channels yield to other traffic.
    pub(super) background: bool,
    /// The origin of the machine's time.
    origin: Instant,
}

impl SessionDriver {
    pub(super) fn new(config: &Config, role: Role) -> Self {
        Self {
            machine: Machine::new(config.machine(role), Time::ZERO),
            sockets: Sockets::default(),
            control: None,
            control_buffer: Box::new([0; CONTROL_READ_BYTES]),
            mailbox: Arc::default(),
            dials: Vec::new(),
            throttle: Throttle::new(config.rate_limits.clone()),
            background: config.background,
            origin: Instant::now(),
        }
    }

    /// The machine's time.
    pub(super) fn now(&self) -> Time {
        Time::after(self.origin.elapsed())
    }

    /// Converts the machine's `time` to an instant.
    pub(super) fn instant(&self, time: Time) -> Instant {
        self.origin + time.since_zero()
    }

    /// The session's error, if it is over.
    pub(super) fn check(&self) -> Result<()> {
        Ok(self.machine.check()?)
    }

    /// Ends the session for good.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.machine.fail(failure);
        self.act();
    }

    /// Carries out the machine's actions.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Close { channel, reason } => {
                    if let Some(socket) = self.sockets.take(channel) {
                        tracing::debug!(channel, ?reason, "channel closed");
                        socket.shutdown();
                    }
                    self.count_channels();
                }
                Action::ForgetClosed => {
                    self.sockets.forget_closed();
                    self.count_channels();
                }
                Action::End => {
                    self.part_control();
                    self.mailbox.close();
                }
                // A socket that rejects an option still works.
                Action::LimitUnsent { channel, bytes } => {
                    let _ = self.sockets.get(channel).map(|socket| socket.set_unsent_limit(bytes));
                }
                Action::TolerateSilence { channel, tolerate } => {
                    if let Some(socket) = self.sockets.get(channel) {
                        socket.tolerate_silence(tolerate);
                    }
                }
                Action::Redial(redial) => self.dials.push(DialRequest::Channel(redial)),
                Action::RedialControl => self.dials.push(DialRequest::Control),
                Action::OpenChannels { rail, count } => self.dials.push(DialRequest::More { rail, count }),
                Action::Log(event) => tracing::debug!(?event),
            }
        }
    }

    /// Adds the connections that have arrived. Must run in the runtime that drives the session.
    pub(super) fn take_joining(&mut self) {
        for joining in self.mailbox.take() {
            match joining {
                Joining::Control { stream, protection } => match ChannelSocket::new(stream, protection) {
                    Ok(socket) => {
                        self.control = Some(socket);
                        self.machine.handle_control_connected();
                    }
                    Err(error) => tracing::warn!(%error, "a control connection could not be set up"),
                },
                Joining::Data { stream, protection, id, rail, replaces } => {
                    if let Some(replaced) = replaces {
                        self.machine.handle_channel_replaced(self.now(), replaced, &self.sockets);
                        self.act();
                    }
                    match ChannelSocket::new(stream, protection) {
                        Ok(socket) => self.attach_channel(socket, id, rail),
                        Err(error) => tracing::warn!(%error, id, "a channel could not be set up"),
                    }
                }
            }
        }
    }

    fn attach_channel(&mut self, socket: ChannelSocket, id: u32, rail: u32) {
        if self.background {
            socket.yield_to_others(self.now().since_zero());
        }
        let index = self.machine.handle_channel_connected(self.now(), id, rail, &socket.info());
        debug_assert_eq!(index, self.sockets.len());
        self.sockets.push(socket);
        self.act();
        self.count_channels();
    }

    /// A channel's socket has failed or ended.
    pub(super) fn channel_lost(&mut self, channel: usize, why: &dyn Display) {
        tracing::debug!(channel, %why, "channel lost");
        self.machine.handle_channel_lost(self.now(), channel, &self.sockets);
        self.act();
    }

    /// The peer no longer knows the session.
    pub(super) fn session_unknown(&mut self) {
        self.machine.handle_session_unknown();
        self.act();
    }

    /// Uses `strategy` for messages that begin from now on.
    pub(super) fn set_strategy(&mut self, strategy: Strategy, fragment_bytes: u32) {
        self.machine.set_strategy(strategy, fragment_bytes, &self.sockets);
        self.act();
    }

    /// Lets what is sent from now on yield to other traffic.
    pub(super) fn set_background(&mut self) {
        self.background = true;
        self.sockets.iter().for_each(|socket| socket.yield_to_others(self.now().since_zero()));
    }

    /// Adapts the rates of channels with something to send to the other traffic; false if they do not
    /// yield.
    pub(super) fn yield_to_others(&self) -> bool {
        if self.background {
            for socket in self.sockets.iter().filter(|socket| socket.unacknowledged_bytes() > 0) {
                socket.yield_to_others(self.now().since_zero());
            }
        }
        self.background
    }

    /// Lets the machine handle what is due.
    pub(super) fn time_out(&mut self) {
        self.machine.handle_timeout(self.now(), &self.sockets);
        self.act();
    }

    /// Registers all sockets with the calling runtime.
    pub(super) fn move_sockets(&mut self) -> std::io::Result<()> {
        self.throttle.forget_timer();
        self.sockets.move_here()?;
        self.control = self.control.take().map(ChannelSocket::moved).transpose()?;
        Ok(())
    }

    fn count_channels(&self) {
        self.mailbox.set_counts(self.sockets.up(), self.sockets.len());
    }
}

impl Drop for SessionDriver {
    fn drop(&mut self) {
        self.part_control();
    }
}
