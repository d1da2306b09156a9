//! What a session is made of: its channels, its control connection, and what has failed.

use super::receive::Rx;
use super::rx_channel::RxChannel;
use super::transmit::Tx;
use super::tx_channel::TxChannel;
use crate::error::{Error, Result};
use crate::session::Config;
use crate::socket::ChannelSocket;
use multirail_proto::wire::{Control, MAX_PACKET_BYTES, Port, packet};
use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A channel that was lost is named here until the keeper has seen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    pub id: u32,
    pub rail: u32,
}

/// A connection that passed the handshake and waits to be taken in by the runtime that drives the session.
#[derive(Debug)]
pub(crate) enum Joining {
    Control(TcpStream),
    Data { stream: TcpStream, id: u32, rail: u32, replaces: Option<u32> },
}

/// One channel. Lost ones stay in the table, without socket, until no message refers to them.
#[derive(Debug)]
pub(crate) struct Channel {
    pub id: u32,
    pub rail: u32,
    pub socket: Option<ChannelSocket>,
    pub latency_us: f64,
    pub rtt_us: u32,
    pub tx: TxChannel,
    pub rx: RxChannel,
}

/// The connection that carries reports: never data, so that no report waits behind a message.
#[derive(Debug, Default)]
pub(crate) struct ControlLink {
    pub socket: Option<ChannelSocket>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

/// Why a session is over; every later operation says it again.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Protocol(String),
    Aborted(String),
    AllRailsLost(Duration),
    Cancelled(&'static str),
}

impl Failure {
    /// The peer ended the session without a word.
    pub(crate) fn gone() -> Self {
        Failure::Aborted("it no longer knows the session".to_owned())
    }

    pub(crate) fn error(&self) -> Error {
        match self.clone() {
            Failure::Protocol(what) => Error::Protocol(what),
            Failure::Aborted(why) => Error::Aborted(why),
            Failure::AllRailsLost(after) => Error::AllRailsLost(after),
            Failure::Cancelled(what) => Error::Cancelled(what),
        }
    }
}

/// Where connections wait for the session they belong to, and what those who bring them must know of it. Apart from the state,
/// which is locked while a sink writes to a slow disk: nobody else shall wait for that.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    joining: Mutex<Vec<Joining>>,
    /// Channels that are up; and places in the table of channels that are taken.
    up: AtomicUsize,
    places: AtomicUsize,
    over: AtomicBool,
}

impl Mailbox {
    pub(crate) fn put(&self, joining: Joining) {
        self.lock().push(joining);
    }

    fn take(&self) -> Vec<Joining> {
        std::mem::take(&mut *self.lock())
    }

    fn close(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the session is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Channels that are up or waiting to be taken in, and places taken in the table.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.up.load(Ordering::Relaxed) + self.lock().len(), self.places.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Joining>> {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything of a session but its lock and its wakers.
#[derive(Debug)]
pub(crate) struct State {
    pub config: Config,
    pub channels: Vec<Channel>,
    pub control: ControlLink,
    pub mailbox: Arc<Mailbox>,
    pub lost: Vec<Lost>,
    pub tx: Tx,
    pub rx: Rx,
    pub peer_ports: Option<Vec<Port>>,
    /// Told to the peer on every new control connection.
    pub own_ports: Vec<Port>,
    pub peer_closed_at: Option<u32>,
    pub closing: bool,
    /// The peer has heard that this side closes.
    pub close_heard: bool,
    /// The peer has ended the session, and nothing was left to do in it.
    pub peer_gone: bool,
    pub failure: Option<Failure>,
    /// Since when no channel has been up.
    pub dark_since: Option<Instant>,
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            tx: Tx::default(),
            rx: Rx::default(),
            config,
            channels: Vec::new(),
            control: ControlLink::default(),
            mailbox: Arc::default(),
            lost: Vec::new(),
            peer_ports: None,
            own_ports: Vec::new(),
            peer_closed_at: None,
            closing: false,
            close_heard: false,
            peer_gone: false,
            failure: None,
            dark_since: Some(Instant::now()),
        }
    }

    /// The session's error, if it is over.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |f| Err(f.error()))
    }

    /// Tells those who bring connections how many channels there are.
    pub(crate) fn count_channels(&self) {
        let up = self.channels.iter().filter(|c| c.socket.is_some()).count();
        self.mailbox.up.store(up, Ordering::Relaxed);
        self.mailbox.places.store(self.channels.len(), Ordering::Relaxed);
    }

    /// Ends the session for good, and tells the peer why where that can still be done.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.failure.is_some() {
            return;
        }
        let told = match &failure {
            Failure::Protocol(reason) => Some(format!("this side broke the protocol: {reason}")),
            Failure::Cancelled(what) => Some(format!("a {what} of its was cancelled in the middle of a message")),
            Failure::Aborted(_) | Failure::AllRailsLost(_) => None,
        };
        if let Some(reason) = told {
            self.control.queue(&Control::Abort { reason });
            self.control.flush(&mut Context::from_waker(std::task::Waker::noop()));
        }
        self.control.part();
        self.failure = Some(failure);
        self.mailbox.close();
        for channel in &mut self.channels {
            if let Some(socket) = channel.socket.take() {
                socket.shutdown();
            }
        }
    }

    /// The peer no longer knows the session: the end it should have, or a failure. While the control connection stands,
    /// the peer's last reports may be on it, and the end will show there.
    pub(crate) fn forgotten(&mut self, cx: &mut Context<'_>) {
        let _ = self.poll_control(cx);
        let closed = self.closing || self.peer_closed_at == Some(self.rx.next_message);
        if closed && self.all_confirmed() {
            self.peer_gone = true;
        } else if self.control.socket.is_none() {
            self.fail(Failure::gone());
        }
    }

    /// Whether nothing of this side's closing is left to do: the peer has everything and knows that no more comes, or it
    /// has closed and left.
    pub(crate) fn finished(&self) -> bool {
        let left = self.control.socket.is_none();
        let knows = self.close_heard || self.peer_gone || (self.peer_closed_at.is_some() && left);
        self.all_confirmed() && knows
    }

    /// Takes in connections that were made meanwhile. Must run in the runtime that drives the session.
    pub(crate) fn take_joining(&mut self) {
        for joining in self.mailbox.take() {
            match joining {
                Joining::Control(stream) => match ChannelSocket::new(stream) {
                    Ok(socket) => self.attach_control(socket),
                    Err(error) => tracing::warn!(%error, "a control connection could not be set up"),
                },
                Joining::Data { stream, id, rail, replaces } => {
                    if let Some(old) = replaces.and_then(|r| self.channels.iter().position(|c| c.id == r)) {
                        self.channel_lost(old, "replaced by its successor");
                        self.lost.retain(|l| Some(l.id) != replaces);
                    }
                    match ChannelSocket::new(stream) {
                        Ok(socket) => self.attach_channel(socket, id, rail),
                        Err(error) => tracing::warn!(%error, id, "a channel could not be set up"),
                    }
                }
            }
        }
    }

    /// Registers all sockets with the runtime that calls.
    pub(crate) fn move_sockets(&mut self) -> std::io::Result<()> {
        let channels = self.channels.iter_mut().map(|c| &mut c.socket);
        for slot in channels.chain([&mut self.control.socket]) {
            if let Some(socket) = slot.take() {
                *slot = Some(socket.moved()?);
            }
        }
        Ok(())
    }

    fn attach_control(&mut self, socket: ChannelSocket) {
        self.control = ControlLink { socket: Some(socket), ..ControlLink::default() };
        self.control.queue(&Control::Ports(self.own_ports.clone()));
        for channel in &mut self.channels {
            channel.rx.report_again();
        }
        self.rx.report_due = true;
        if self.closing {
            self.control.queue(&Control::Close { messages: self.tx.next_message });
        }
    }

    fn attach_channel(&mut self, socket: ChannelSocket, id: u32, rail: u32) {
        let info = socket.info();
        let unsent = self.unsent_limit(0.0);
        let _ = socket.set_unsent_limit(unsent);
        let tx = TxChannel::new(unsent);
        self.channels.push(Channel {
            id,
            rail,
            latency_us: f64::from(info.rtt_us) / 2.0,
            rtt_us: info.rtt_us,
            socket: Some(socket),
            tx,
            rx: RxChannel::default(),
        });
        // A rate is for choosing by: who has one channel has no choice. With many sessions, as in a broadcast, probes would add up.
        if self.channels.len() > 1 {
            self.channels.iter_mut().filter(|c| c.tx.is_new()).for_each(|c| c.tx.queue_probe());
        }
        self.count_channels();
        self.dark_since = None;
    }

    /// A channel is dead: what it had taken and the peer has not confirmed goes back to be claimed.
    pub(crate) fn channel_lost(&mut self, index: usize, why: &str) {
        let channel = &mut self.channels[index];
        let Some(socket) = channel.socket.take() else { return };
        socket.shutdown();
        tracing::debug!(channel = channel.id, rail = channel.rail, why, "channel lost");
        self.lost.push(Lost { id: channel.id, rail: channel.rail });
        channel.rx.lost();
        self.count_channels();
        self.transmit_lost(index);
        if self.channels.iter().all(|c| c.socket.is_none()) {
            self.dark_since = Some(Instant::now());
        }
    }

    /// Sends what is queued for the peer's control side and takes in what it said.
    pub(crate) fn poll_control(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let heard = self.exchange_packets(cx);
        if let Err(Error::Protocol(what)) = &heard {
            self.fail(Failure::Protocol(what.clone()));
        }
        heard
    }

    fn exchange_packets(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.rx.report_due {
            self.queue_report();
        }
        self.control.flush(cx);
        while let Some(packet) = self.control.poll_packet(cx)? {
            match packet {
                Control::Report(report) => self.apply_report(&report)?,
                Control::Ports(ports) => self.peer_ports = Some(ports),
                Control::Close { messages } => {
                    self.peer_closed_at = Some(messages);
                    self.rx.report_due = true;
                    self.queue_report();
                    self.control.flush(cx);
                }
                Control::Abort { reason } => {
                    self.fail(Failure::Aborted(reason));
                }
            }
        }
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.control.part();
    }
}

impl ControlLink {
    /// Queues a packet; while there is no connection it is dropped, because the next one begins with everything anew.
    pub(crate) fn queue(&mut self, packet: &Control) {
        if self.socket.is_some() {
            packet::encode(packet, &mut self.outgoing);
        }
    }

    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        while !self.outgoing.is_empty() {
            let Some(socket) = &self.socket else { return };
            match socket.poll_write(cx, &[IoSlice::new(&self.outgoing)]) {
                Poll::Ready(Ok(n)) => drop(self.outgoing.drain(..n)),
                // What the peer said before is still to be read; the end of the stream comes behind it.
                Poll::Ready(Err(_)) => self.outgoing.clear(),
                Poll::Pending => return,
            }
        }
    }

    /// Ends the connection so that what was said last still arrives: a socket that is closed with something unread sends a
    /// reset, and forgets what it has not sent.
    fn part(&mut self) {
        self.flush(&mut Context::from_waker(std::task::Waker::noop()));
        let Some(socket) = self.socket.take() else { return };
        let mut buffer = [0; 4096];
        // As much as a window's worth of packets, and not for ever: the peer may go on.
        for _ in 0..1024 {
            if !matches!(socket.read_now(&mut [IoSliceMut::new(&mut buffer)]), Poll::Ready(Ok(1..))) {
                break;
            }
        }
    }

    pub(crate) fn lose(&mut self) {
        *self = Self::default();
    }

    /// Takes in what a dead connection still holds, without waiting to be told that there is something.
    pub(crate) fn drain(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = [0; 4096];
        while let Poll::Ready(Ok(n @ 1..)) = socket.read_now(&mut [IoSliceMut::new(&mut buffer)]) {
            self.incoming.extend_from_slice(&buffer[..n]);
            if self.incoming.len() > MAX_PACKET_BYTES {
                return;
            }
        }
    }

    fn poll_packet(&mut self, cx: &mut Context<'_>) -> Result<Option<Control>> {
        loop {
            if let Some((packet, length)) = packet::decode(&self.incoming)? {
                self.incoming.drain(..length);
                return Ok(Some(packet));
            }
            let Some(socket) = &self.socket else { return Ok(None) };
            let mut buffer = [0; 4096];
            match socket.poll_read(cx, &mut [IoSliceMut::new(&mut buffer)]) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Ok(n)) if n > 0 => self.incoming.extend_from_slice(&buffer[..n]),
                Poll::Ready(_) => {
                    self.lose();
                    return Ok(None);
                }
            }
        }
    }
}
