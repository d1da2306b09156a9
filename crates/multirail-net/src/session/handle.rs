//! The user's view of a session.

use super::receiver::Receiver;
use super::sender::Sender;
use super::shared::Shared;
use super::status::{RailStatus, Stats};
use crate::error::Result;
use crate::handshake::Peer;
use crate::payload::{Sink, Source};
use crate::rate_limit::RateLimit;
use crate::secure::authorized_keys::Client;
use crate::traffic::{Counted, Meter};
use multirail_proto::striping::Strategy;
use std::sync::Arc;
use std::time::Duration;

/// All channels between two hosts, and the messages that travel over them.
///
/// Messages arrive whole and in order, in both directions. A session belongs to the runtime in
/// which it was started; that runtime must run while the session is used.
///
/// [`Session::connect`] opens a session, and a [`Listener`](super::Listener) accepts one. Dropping a
/// session ends it at once; [`Session::close`] waits for the peer first.
#[derive(Debug)]
pub struct Session {
    sender: Sender,
    receiver: Receiver,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { sender: Sender::new(shared.clone()), receiver: Receiver::new(shared) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.sender.shared
    }

    /// Sends one message: [`Sender::send`].
    ///
    /// # Errors
    ///
    /// Those of [`Sender::send`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe in a message of more than 64 KiB: dropping the future ends the session.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.sender.send(message).await
    }

    /// Receives the next message into `buffer` and returns its length: [`Receiver::recv`].
    ///
    /// # Errors
    ///
    /// Those of [`Receiver::recv`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe once bytes of the message have arrived: dropping the future then ends the
    /// session.
    pub async fn recv(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.receiver.recv(buffer).await
    }

    /// Sends one message from a source: [`Sender::send_from`].
    ///
    /// # Errors
    ///
    /// Those of [`Sender::send`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: dropping the future in the middle of the message ends the session.
    pub async fn send_from(&mut self, source: &mut dyn Source, grain_bytes: u64) -> Result<()> {
        self.sender.send_from(source, grain_bytes).await
    }

    /// Receives one message into a sink: [`Receiver::recv_into`].
    ///
    /// # Errors
    ///
    /// Those of [`Receiver::recv`], and what [`Sink::begin`] returns.
    ///
    /// # Cancel safety
    ///
    /// That of [`Session::recv`].
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

    /// Waits until the peer has received everything that was sent, then ends the session.
    ///
    /// Call it on both sides, also where the peer has closed first: a rail that fails at the end can
    /// lose the last confirmation, and the peer comes back for it over another rail. A peer whose
    /// connections are lost is waited for up to five seconds.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the peer has not received everything within 30 s, or the
    /// error with which the session has failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the session; the peer may lack what was sent last.
    pub async fn close(mut self) -> Result<()> {
        self.sender.finish().await
    }

    /// Adds a limit of the session's rate to those of its configuration
    /// ([`Config::rate_limit`](super::Config::rate_limit)).
    pub fn add_rate_limit(&self, limit: RateLimit) {
        self.shared().lock().throttle.add(limit);
    }

    /// Lets what this side sends from now on yield to other traffic, as
    /// [`Config::background`](super::Config::background) does.
    pub fn set_background(&mut self) {
        self.shared().lock().set_background();
    }

    /// Who the peer is.
    pub fn peer(&self) -> Peer {
        self.shared().identity
    }

    /// What this side knows of the peer, and what the peer may ask of it. A handler checks it before it
    /// does something. A host that this side has dialled may do everything that it was dialled for.
    pub fn client(&self) -> &Client {
        &self.shared().client
    }

    /// What the session has done so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # use multirail_net::session::{Accepted, ListenConfig, Listener};
    /// # use multirail_net::{Config, Session};
    /// # multirail_net::runtime::block_on(async {
    /// # let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new())).await?;
    /// # let address = listener.address().to_string();
    /// # let server = async {
    /// #     let Accepted::Session(new) = listener.accept().await? else { unreachable!() };
    /// #     let mut session = new.start();
    /// #     session.recv(&mut vec![0; 1 << 20]).await?;
    /// #     session.close().await
    /// # };
    /// # let client = async {
    /// # let mut session = Session::connect(&address, Config::new()).await?;
    /// session.send(&vec![42; 300_000]).await?;
    /// for rail in session.rails() {
    ///     println!("rail {}: {} bytes, {:.0} Mbit/s", rail.rail, rail.sent_bytes, rail.rate_mbit_s);
    /// }
    /// assert!(session.rails().iter().map(|rail| rail.sent_bytes).sum::<u64>() >= 300_000);
    /// assert!(session.stats().control_messages > 0);
    /// # session.close().await
    /// # };
    /// # tokio::try_join!(server, client)?;
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), multirail_net::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.sender.stats()
    }

    /// The current state of the session's rails.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.sender.rails()
    }

    /// Sets how long the session outlives its last rail from now on:
    /// [`Config::give_up_after`](super::Config::give_up_after).
    pub fn set_give_up_after(&mut self, after: Duration) {
        self.shared().lock().machine.set_give_up_after(after);
    }

    /// Sets the strategy of messages that begin from now on.
    ///
    /// `fragment_bytes` is the fragment of `shared-counter` and `two-ended`; the other strategies
    /// ignore it.
    pub fn set_strategy(&mut self, strategy: Strategy, fragment_bytes: u32) {
        self.shared().lock().set_strategy(strategy, fragment_bytes);
    }

    /// Reads what the session has moved, also after its end.
    pub(crate) fn meter(&self) -> Meter {
        self.shared().entry.meter().clone()
    }

    /// A handle for watching the session from elsewhere, for example for a progress bar.
    pub fn watch(&self) -> Watch {
        Watch { shared: self.shared().clone() }
    }
}

/// Reads a session's rails and counts while it is in use elsewhere.
#[derive(Debug, Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// The current state of the session's rails.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.shared.lock().rails()
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats()
    }

    /// Whether the peer has confirmed every message.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.shared.lock().machine.is_confirmed()
    }

    /// Ends the session at once, and tells the peer `reason`.
    pub fn end(&self, reason: String) {
        self.shared.end(reason);
    }
}
