//! The two halves of a session: futures over the state, and the poll functions under them.

use super::rx_channel::Patience;
use super::state::{Failure, State};
use super::{RailStatus, Shared, Stats, transmit::COPY_LIMIT_BYTES};
use crate::error::{Error, Result};
use crate::payload::{Sink, SliceSink, SliceSource, Source};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// While all is sent and not confirmed, how often a rescue is considered.
const RESCUE_EVERY: Duration = Duration::from_millis(2);
/// How long [`super::Session::close`] waits for the peer to have everything.
pub(crate) const LINGER: Duration = Duration::from_secs(30);

/// The sending half of a [`super::Session`].
#[derive(Debug)]
pub struct Sender {
    pub(crate) shared: Arc<Shared>,
}

/// The receiving half of a [`super::Session`].
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    /// Bytes of a message are in a sink, and the message is not complete.
    in_message: bool,
    /// Since when the next message's first bytes are waited for.
    waiting_since: Option<Instant>,
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Sends one message.
    ///
    /// Up to [`COPY_LIMIT_BYTES`] it returns as with TCP: the kernel has the message, or will have the rest of it as soon as
    /// its buffers have room; [`super::Session::close`] waits for the peer to have it. A longer message is sent from
    /// `message` itself, and it returns when the peer's application has received it. Not cancel-safe: dropping the
    /// future in the middle of a longer message ends the session.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        let copy = (message.len() as u64 <= COPY_LIMIT_BYTES).then(|| {
            let mut copy = self.shared.lock().tx.buffer(message.len());
            copy.extend_from_slice(message);
            copy
        });
        self.drive(&mut SliceSource(message), copy, 1).await
    }

    /// Sends one message from `source`, cut at multiples of `grain_bytes`; returns when the peer has received it.
    pub async fn send_from(&mut self, source: &mut dyn Source, grain_bytes: u64) -> Result<()> {
        self.drive(source, None, grain_bytes).await
    }

    async fn drive(&mut self, source: &mut dyn Source, mut copy: Option<Vec<u8>>, grain_bytes: u64) -> Result<()> {
        let shared = &self.shared;
        let total_bytes = source.total_bytes();
        let mut guard = Guard { shared, what: "send", armed: false };
        let borrowed = copy.is_none();
        let mut message = None;
        let mut tick = pin!(None::<tokio::time::Sleep>);
        poll_fn(|cx| {
            shared.send_waker.register(cx.waker());
            let cx = &mut Context::from_waker(&shared.both);
            let mut state = shared.lock();
            state.check()?;
            state.take_joining();
            state.poll_control(cx)?;
            if message.is_none() && state.can_begin(total_bytes) {
                message = Some(state.begin_message(total_bytes, copy.take(), grain_bytes));
                guard.armed = borrowed;
            }
            let Some(message) = message else {
                state.poll_transmit(cx, None);
                return Poll::Pending;
            };
            loop {
                if let Poll::Ready(done) = state.poll_sent(cx, message, source) {
                    return Poll::Ready(done);
                }
                if !borrowed || !state.all_claimed() {
                    return Poll::Pending;
                }
                match tick.as_mut().as_pin_mut().map(|t| t.poll(cx)) {
                    Some(Poll::Pending) => return Poll::Pending,
                    Some(Poll::Ready(())) => state.rescue(),
                    None => {}
                }
                tick.set(Some(tokio::time::sleep(RESCUE_EVERY)));
            }
        })
        .await?;
        guard.armed = false;
        if !borrowed && !shared.lock().all_with_kernel() {
            shared.unsent.notify_one();
        }
        Ok(())
    }

    /// Tells the peer that nothing more comes and waits until it has everything.
    pub async fn finish(&mut self) -> Result<()> {
        let wait = poll_fn(|cx| self.shared.poll_finish(cx.waker()));
        match tokio::time::timeout(LINGER, wait).await {
            Ok(done) => done,
            Err(_) => {
                let unheard = std::io::Error::from(std::io::ErrorKind::TimedOut);
                Err(Error::Io { what: "waiting for the peer to receive what was sent", source: unheard })
            }
        }
    }

    /// What the session has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats()
    }

    /// The session's rails as they do now.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.shared.lock().rails()
    }
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, in_message: false, waiting_since: None }
    }

    /// Receives the next message into `buffer` and returns its length.
    ///
    /// [`Error::MessageTooLarge`] leaves the message where it is. [`Error::Closed`]: the peer has sent its last. Not
    /// cancel-safe once bytes of the message have arrived: dropping the future then ends the session.
    pub async fn recv(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.recv_into(&mut SliceSink(buffer)).await? as usize)
    }

    /// Receives the next message into `sink` and returns its length.
    pub async fn recv_into(&mut self, sink: &mut dyn Sink) -> Result<u64> {
        let shared = self.shared.clone();
        let mut guard = Guard { shared: &shared, what: "receive", armed: false };
        let length = poll_fn(|cx| {
            let received = self.poll_recv(cx.waker(), sink);
            guard.armed = self.in_message;
            received
        })
        .await?;
        guard.armed = false;
        Ok(length)
    }

    /// Goes on receiving the next message; ready with its length. While pending with [`Receiver::is_in_message`], the bytes
    /// that arrived are in `sink`, and the next call's sink must have them too.
    pub(crate) fn poll_recv(&mut self, waker: &Waker, sink: &mut dyn Sink) -> Poll<Result<u64>> {
        let shared = &self.shared;
        shared.receive_waker.register(waker);
        let cx = &mut Context::from_waker(&shared.both);
        let mut state = shared.lock();
        state.check()?;
        state.take_joining();
        state.poll_control(cx)?;
        let mut received = state.poll_receive(cx, sink, false);
        if received.is_pending() && !state.receive_begun() && self.waiting_since.is_none() {
            let since = Instant::now();
            self.waiting_since = Some(since);
            if state.may_spin() {
                while received.is_pending() && !state.receive_begun() && since.elapsed() < Patience::SPIN {
                    drop(state);
                    std::thread::yield_now();
                    state = shared.lock();
                    received = state.poll_receive(cx, sink, true);
                }
            }
        }
        self.in_message = state.receive_begun();
        if received.is_ready() || self.in_message {
            let waited = self.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            if received.is_ready() || !waited.is_zero() {
                state.rx.patience.learn(waited);
            }
        }
        if received.is_pending() && state.transmit_due() {
            state.poll_transmit(cx, None);
        }
        received
    }

    /// Whether a message was begun and is not complete.
    pub(crate) fn is_in_message(&self) -> bool {
        self.in_message
    }
}

impl Drop for Receiver {
    /// Confirms what was received: the keeper would, within a tenth of a second, but this may be the end of the program, and the
    /// peer would wait for the confirmation until it gives the rails up.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.report_leftovers();
        state.control.flush(&mut Context::from_waker(&self.shared.both));
    }
}

impl Shared {
    /// Goes on sending copied messages, and begins one of all of `bytes` as soon as one can begin; `bytes` is empty from then
    /// on. Ready when the kernel has everything. At most [`COPY_LIMIT_BYTES`] at a time.
    pub(crate) fn poll_push(&self, waker: &Waker, bytes: &mut Vec<u8>) -> Poll<Result<()>> {
        self.send_waker.register(waker);
        let cx = &mut Context::from_waker(&self.both);
        let mut state = self.lock();
        state.check()?;
        state.take_joining();
        state.poll_control(cx)?;
        loop {
            let begins = !bytes.is_empty() && state.can_begin(bytes.len() as u64);
            if begins {
                let next = state.tx.buffer(bytes.len());
                state.begin_message(bytes.len() as u64, Some(std::mem::replace(bytes, next)), 1);
            }
            state.poll_transmit(cx, None);
            state.check()?;
            if state.tx.current.is_some() {
                return Poll::Pending;
            }
            if bytes.is_empty() {
                return if state.all_with_kernel() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if !begins && !state.can_begin(bytes.len() as u64) {
                return Poll::Pending;
            }
        }
    }

    /// Tells the peer that nothing more comes; ready when it has everything.
    pub(crate) fn poll_finish(&self, waker: &Waker) -> Poll<Result<()>> {
        self.send_waker.register(waker);
        let cx = &mut Context::from_waker(&self.both);
        let mut state = self.lock();
        state.check()?;
        state.take_joining();
        state.begin_close();
        state.poll_control(cx)?;
        state.poll_transmit(cx, None);
        if state.finished() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl State {
    fn begin_close(&mut self) {
        if !self.closing {
            self.closing = true;
            let messages = self.tx.next_message;
            self.control.queue(&multirail_proto::wire::Control::Close { messages });
        }
    }
}

/// Ends the session if a future is dropped while the session refers to memory that goes with it.
struct Guard<'a> {
    shared: &'a Shared,
    what: &'static str,
    armed: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.armed {
            let mut state = self.shared.lock();
            state.fail(Failure::Cancelled(self.what));
            drop(state);
            self.shared.wake();
        }
    }
}
