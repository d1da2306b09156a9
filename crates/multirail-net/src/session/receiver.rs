//! The receiving half of a session: futures over the driver.

use super::shared::{CallGuard, Shared};
use crate::error::Result;
use crate::payload::{Sink, SliceSink};
use multirail_proto::session::SPIN;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The receiving half of a [`Session`](super::Session).
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    /// Some bytes of a message are in a sink, and the message is incomplete.
    in_message: bool,
    /// When the wait for the first bytes of the next message began.
    waiting_since: Option<Instant>,
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, in_message: false, waiting_since: None }
    }

    /// Receives the next message into `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`MessageTooLarge`](crate::Error::MessageTooLarge) leaves the message pending.
    /// [`Closed`](crate::Error::Closed): the peer has sent its last message.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe once bytes of the message have arrived: dropping the future then ends the
    /// session.
    ///
    /// # Examples
    ///
    /// Bytes are read from the sockets straight into the caller's buffer. A message that does not
    /// fit can be received into a larger one:
    ///
    /// ```
    /// # use multirail_net::session::{Accepted, ListenConfig, Listener};
    /// # use multirail_net::{Config, Session};
    /// use multirail_net::Error;
    ///
    /// # multirail_net::runtime::block_on(async {
    /// # let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new())).await?;
    /// # let address = listener.address().to_string();
    /// # let client = async {
    /// #     let mut session = Session::connect(&address, Config::new()).await?;
    /// #     session.send(&[7; 5000]).await?;
    /// #     session.close().await
    /// # };
    /// # let server = async {
    /// # let Accepted::Session(new) = listener.accept().await? else { unreachable!() };
    /// # let mut session = new.start();
    /// let mut buffer = vec![0; 4096];
    /// let length = match session.recv(&mut buffer).await {
    ///     Err(Error::MessageTooLarge { message_bytes, .. }) => {
    ///         buffer.resize(message_bytes as usize, 0);
    ///         session.recv(&mut buffer).await?
    ///     }
    ///     received => received?,
    /// };
    /// assert_eq!(buffer[..length], [7; 5000]);
    /// # session.close().await
    /// # };
    /// # tokio::try_join!(server, client)?;
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), multirail_net::Error>(())
    /// ```
    pub async fn recv(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.recv_into(&mut SliceSink(buffer)).await? as usize)
    }

    /// Receives the next message into `sink` and returns its length.
    ///
    /// # Errors
    ///
    /// What [`Sink::begin`] returns leaves the message where it is. The others are those of
    /// [`Receiver::recv`].
    ///
    /// # Cancel safety
    ///
    /// That of [`Receiver::recv`].
    pub async fn recv_into(&mut self, sink: &mut dyn Sink) -> Result<u64> {
        let shared = self.shared.clone();
        let mut guard = CallGuard { shared: &shared, what: "receive", armed: false };
        let length = poll_fn(|cx| {
            let received = self.poll_recv(cx.waker(), sink);
            guard.armed = self.in_message;
            received
        })
        .await?;
        guard.armed = false;
        Ok(length)
    }

    /// Continues to receive the next message; ready with its length. If it is pending and
    /// [`Receiver::is_in_message`] is true, the bytes that have arrived are in `sink`, and the next
    /// call's sink must contain them as well.
    pub(crate) fn poll_recv(&mut self, waker: &Waker, sink: &mut dyn Sink) -> Poll<Result<u64>> {
        let shared = &self.shared;
        shared.receive_waker.register(waker);
        let cx = &mut Context::from_waker(&shared.both);
        let mut driver = shared.lock();
        driver.check()?;
        driver.take_joining();
        driver.poll_control(cx)?;
        let mut received = driver.poll_receive(cx, sink, false);
        if received.is_pending() && !driver.machine.is_begun() && self.waiting_since.is_none() {
            let since = Instant::now();
            self.waiting_since = Some(since);
            if driver.machine.should_spin() {
                while received.is_pending() && !driver.machine.is_begun() && since.elapsed() < SPIN {
                    drop(driver);
                    std::thread::yield_now();
                    driver = shared.lock();
                    received = driver.poll_receive(cx, sink, true);
                }
            }
        }
        self.in_message = driver.machine.is_begun();
        if received.is_ready() || self.in_message {
            let waited = self.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            if received.is_ready() || !waited.is_zero() {
                driver.machine.handle_waited(waited);
            }
        }
        if received.is_pending() && driver.machine.is_transmit_due() {
            driver.poll_transmit(cx, None);
        }
        received
    }

    /// Whether a message has begun and is incomplete.
    pub(crate) fn is_in_message(&self) -> bool {
        self.in_message
    }
}

impl Drop for Receiver {
    /// Confirms what was received. Maintenance would do so within a tenth of a second, but the
    /// program may exit before that, and the peer would wait until it gives up the rails.
    fn drop(&mut self) {
        let mut driver = self.shared.lock();
        let now = driver.now();
        driver.machine.report_leftovers(now);
        driver.flush_control(&mut Context::from_waker(&self.shared.both));
    }
}
