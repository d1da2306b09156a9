//! The sending half of a session: futures over the driver.

use super::shared::{CallGuard, Shared};
use super::status::{RailStatus, Stats};
use crate::error::{Error, Result};
use crate::payload::{SliceSource, Source};
use multirail_proto::session::{COPY_LIMIT_BYTES, LINGER, Time};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a source learns how much of its message is confirmed.
const CONFIRMED_EVERY: Duration = Duration::from_millis(50);

/// The sending half of a [`Session`](super::Session).
#[derive(Debug)]
pub struct Sender {
    pub(crate) shared: Arc<Shared>,
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Sends one message.
    ///
    /// Up to [`COPY_LIMIT_BYTES`] it returns as with TCP: the kernel has the message, or takes the
    /// rest as soon as its buffers have room. [`Session::close`](super::Session::close) waits until
    /// the peer has received it. A longer message is sent directly from `message`, and the call
    /// returns when the peer's application has received it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Aborted`] and [`Error::AllRailsLost`] if the session has ended.
    /// The loss of a rail is no error: other rails carry its bytes.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: dropping the future in the middle of a longer message ends the session.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        if message.len() as u64 <= COPY_LIMIT_BYTES {
            return self.send_copied(message).await;
        }
        self.drive(&mut SliceSource(message), None, 1).await
    }

    /// Sends a copy of one message of any length, and returns when the channels have taken it, without
    /// the peer's confirmation. So the rails do not become idle between two messages.
    ///
    /// Channels take no more than the kernels' buffers hold. So two sides that both send long messages
    /// before they receive wait for each other.
    ///
    /// At most [`WINDOW_BYTES`](super::WINDOW_BYTES) of copies, or one message that is longer, are
    /// under way; then this waits.
    ///
    /// # Errors
    ///
    /// Those of [`Sender::send`].
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: if the future is dropped, the message is sent, or not begun.
    pub async fn send_copied(&mut self, message: &[u8]) -> Result<()> {
        let mut copy = self.shared.lock().machine.buffer(message.len());
        copy.extend_from_slice(message);
        self.drive(&mut SliceSource(message), Some(copy), 1).await
    }

    /// Sends one message from `source`, cut at multiples of `grain_bytes`; returns when the peer
    /// has received it.
    ///
    /// # Errors
    ///
    /// Those of [`Sender::send`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: dropping the future in the middle of the message ends the session.
    pub async fn send_from(&mut self, source: &mut dyn Source, grain_bytes: u64) -> Result<()> {
        self.drive(source, None, grain_bytes).await
    }

    async fn drive(&mut self, source: &mut dyn Source, mut copy: Option<Vec<u8>>, grain_bytes: u64) -> Result<()> {
        let shared = &self.shared;
        let total_bytes = source.total_bytes();
        let mut guard = CallGuard { shared, what: "send", armed: false };
        let borrowed = copy.is_none();
        let mut message = None;
        let mut rescue = pin!(None::<tokio::time::Sleep>);
        let mut rescue_at = None::<Time>;
        let mut told_at = Time::ZERO;
        poll_fn(|cx| {
            shared.send_waker.register(cx.waker());
            let cx = &mut Context::from_waker(&shared.both);
            let mut driver = shared.lock();
            driver.check()?;
            driver.take_joining();
            driver.poll_control(cx)?;
            if message.is_none() && driver.machine.can_begin(total_bytes) {
                message = Some(driver.begin_message(total_bytes, copy.take(), grain_bytes));
                guard.armed = borrowed;
            }
            let Some(message) = message else {
                driver.poll_transmit(cx, None);
                return Poll::Pending;
            };
            loop {
                if let Poll::Ready(done) = driver.poll_sent(cx, message, source) {
                    return Poll::Ready(done);
                }
                if borrowed && driver.now().since(told_at) >= CONFIRMED_EVERY {
                    told_at = driver.now();
                    source.confirmed(driver.machine.confirmed_bytes());
                }
                let Some(next) = driver.poll_rescue() else { return Poll::Pending };
                if rescue_at != Some(next) {
                    rescue_at = Some(next);
                    rescue.set(Some(tokio::time::sleep_until(driver.instant(next).into())));
                } else if rescue.as_mut().as_pin_mut().is_none_or(|sleep| sleep.poll(cx).is_pending()) {
                    return Poll::Pending;
                }
            }
        })
        .await?;
        guard.armed = false;
        if !borrowed && !shared.lock().machine.is_flushed() {
            shared.unsent.notify_one();
        }
        Ok(())
    }

    /// Tells the peer that no more messages follow, and waits until it has received all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] after 30 s, or the error with which the session has failed.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: call it again to go on waiting.
    pub async fn finish(&mut self) -> Result<()> {
        let wait = poll_fn(|cx| self.shared.poll_finish(cx.waker()));
        match tokio::time::timeout(LINGER, wait).await {
            Ok(done) => done,
            Err(_) => {
                let cause = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Err(Error::Io { what: "waiting for the peer to receive what was sent", cause })
            }
        }
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats()
    }

    /// The current state of the session's rails.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.shared.lock().rails()
    }
}
