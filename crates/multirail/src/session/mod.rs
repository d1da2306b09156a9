//! A session: all channels between two hosts, and the messages that travel over them.
//!
//! One future drives all channels from the caller's task ([`Sender::send`], [`Receiver::recv`]); nothing is handed to another
//! task for a message. A keeper task looks after what no call is there for: dead rails, new channels, late reports.

mod dial;
mod halves;
mod keeper;
mod listen;
mod receive;
mod recover;
mod rx_channel;
mod state;
mod transmit;
mod tune;
mod tx_channel;

pub use dial::connect_plain;
pub(crate) use halves::LINGER;
pub use halves::{Receiver, Sender};
pub use listen::{Accepted, ListenConfig, Listener, NewSession};
pub use transmit::{COPY_LIMIT_BYTES, WINDOW_BYTES};

use crate::error::Result;
use crate::handshake::Token;
use crate::payload::{Sink, Source};
use futures_util::task::AtomicWaker;
use multirail_proto::striping::Strategy;
use multirail_proto::topology::RailFilter;
use state::{Mailbox, State};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// How a session shall work. The defaults are for everyone; the rest is for experiments and odd networks.
#[derive(Debug, Clone)]
pub struct Config {
    /// What both sides must know; default none.
    pub token: Option<Token>,
    /// How messages are given to channels; default adaptive.
    pub strategy: Strategy,
    /// Connections a rail; default [`Config::AUTO`]: found by measurement while transferring, one to begin with.
    pub channels_per_rail: u32,
    /// The fragment of `shared-counter` and `two-ended`, in bytes; default 2 KiB as in the paper's section 5.2.
    pub fragment_bytes: u32,
    /// Which rails may be used; default all.
    pub rails: RailFilter,
    /// How long a session outlives its last rail; default 30 s.
    pub give_up_after: Duration,
}

impl Config {
    /// For [`Config::channels_per_rail`]: as many as pay.
    pub const AUTO: u32 = 0;
}

impl Default for Config {
    fn default() -> Self {
        Self {
            token: None,
            strategy: Strategy::Adaptive,
            channels_per_rail: Self::AUTO,
            fragment_bytes: 2048,
            rails: RailFilter::default(),
            give_up_after: Duration::from_secs(30),
        }
    }
}

/// All channels between two hosts.
#[derive(Debug)]
pub struct Session {
    sender: Sender,
    receiver: Receiver,
}

/// What a session has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Headers sent (two-ended: Start and End messages).
    pub control_messages: u64,
    /// Bytes sent a second time, because a channel was lost or late.
    pub resent_bytes: u64,
    /// Bytes received a second time.
    pub duplicate_bytes: u64,
}

/// A rail as it does now.
#[derive(Debug, Clone)]
pub struct RailStatus {
    /// The client's number for it.
    pub rail: u32,
    /// Channels that are up.
    pub channels: u32,
    /// The two ends' addresses, this host's first; `None` while it is down.
    pub addresses: Option<(std::net::SocketAddr, std::net::SocketAddr)>,
    /// What the peer saw arrive of what this side sent; 0 while nothing was measured.
    pub rate_mbit_s: f64,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Payload bytes given to the rail.
    pub sent_bytes: u64,
    /// Payload bytes that came over it.
    pub received_bytes: u64,
}

impl Session {
    /// Connects to a listener at `host` (`name:port` or `address:port`), finds the rails between the two hosts and opens
    /// channels on all of them.
    pub async fn connect(host: &str, config: Config) -> Result<Session> {
        dial::connect(host, config).await
    }

    fn new(shared: Arc<Shared>) -> Self {
        Self { sender: Sender::new(shared.clone()), receiver: Receiver::new(shared) }
    }

    /// Sends one message: [`Sender::send`].
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.sender.send(message).await
    }

    /// Receives one message: [`Receiver::recv`].
    pub async fn recv(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.receiver.recv(buffer).await
    }

    /// Sends one message from a source: [`Sender::send_from`].
    pub async fn send_from(&mut self, source: &mut dyn Source, grain_bytes: u64) -> Result<()> {
        self.sender.send_from(source, grain_bytes).await
    }

    /// Receives one message into a sink: [`Receiver::recv_into`].
    pub async fn recv_into(&mut self, sink: &mut dyn Sink) -> Result<u64> {
        self.receiver.recv_into(sink).await
    }

    /// The two halves, to be used at the same time.
    pub fn split(&mut self) -> (&mut Sender, &mut Receiver) {
        (&mut self.sender, &mut self.receiver)
    }

    /// The two halves, for different tasks.
    pub fn into_split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// Waits until the peer has everything that was sent, then ends the session.
    pub async fn close(mut self) -> Result<()> {
        self.sender.finish().await
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        self.sender.stats()
    }

    /// The session's rails as they do now.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.sender.rails()
    }

    /// Has the session outlive its last rail by this much from now on: [`Config::give_up_after`].
    pub fn set_give_up_after(&mut self, after: Duration) {
        self.sender.shared.lock().config.give_up_after = after;
    }

    /// Has messages sent from now on use `strategy`.
    pub fn set_strategy(&mut self, strategy: Strategy, fragment_bytes: u32) {
        let mut state = self.sender.shared.lock();
        state.config.strategy = strategy;
        state.config.fragment_bytes = fragment_bytes.max(1);
        state.follow_rates();
    }

    /// A handle for watching the session from elsewhere (a progress bar).
    pub fn watch(&self) -> Watch {
        Watch { shared: self.sender.shared.clone() }
    }
}

/// Sees a session's rails and counts while others use it.
#[derive(Debug, Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// The session's rails as they do now.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.shared.lock().rails()
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats()
    }
}

/// A session's state, and who waits for it. Both halves register for everything, under one waker that wakes both: whichever
/// runs drives what the other one waits for too.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) mailbox: Arc<Mailbox>,
    state: Mutex<State>,
    send_waker: AtomicWaker,
    receive_waker: AtomicWaker,
    both: Waker,
    /// Tells the keeper that a call returned while the kernel had not yet room for everything.
    unsent: Arc<Notify>,
}

#[derive(Debug)]
struct Both(std::sync::Weak<Shared>);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.wake();
        }
    }
}

impl Shared {
    fn new(state: State) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            mailbox: state.mailbox.clone(),
            state: Mutex::new(state),
            send_waker: AtomicWaker::new(),
            receive_waker: AtomicWaker::new(),
            both: Waker::from(Arc::new(Both(this.clone()))),
            unsent: Arc::default(),
        })
    }

    /// The state. A panic while it was held is a bug of ours; the data is as consistent as an early return leaves it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wake(&self) {
        self.send_waker.wake();
        self.receive_waker.wake();
    }
}

impl State {
    fn stats(&self) -> Stats {
        Stats {
            control_messages: self.tx.control_messages,
            resent_bytes: self.tx.resent_bytes,
            duplicate_bytes: self.rx.duplicate_bytes,
        }
    }

    fn rails(&self) -> Vec<RailStatus> {
        let mut rails: Vec<RailStatus> = Vec::new();
        for channel in &self.channels {
            let at = rails.iter().position(|r| r.rail == channel.rail).unwrap_or_else(|| {
                rails.push(RailStatus {
                    rail: channel.rail,
                    channels: 0,
                    addresses: None,
                    rate_mbit_s: 0.0,
                    rtt_us: 0,
                    sent_bytes: 0,
                    received_bytes: 0,
                });
                rails.len() - 1
            });
            let status = &mut rails[at];
            status.sent_bytes += channel.tx.payload_bytes;
            status.received_bytes += channel.rx.payload_bytes;
            if let Some(socket) = &channel.socket {
                status.channels += 1;
                status.addresses = status.addresses.or(socket.addresses().ok());
                status.rate_mbit_s += channel.tx.rate.rate_bytes_s() * 8.0 / 1e6;
                status.rtt_us = status.rtt_us.max(channel.rtt_us);
            }
        }
        rails.sort_by_key(|r| r.rail);
        rails
    }
}
