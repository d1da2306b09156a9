//! A session as a byte stream: tokio's `AsyncRead` and `AsyncWrite` over all rails.
//!
//! A stream is a sequence of messages of at most [`COPY_LIMIT_BYTES`] whose boundaries mean nothing; each is striped like any
//! other message. Both sides of a session must use it as a stream.
//!
//! # What is kept in memory
//!
//! A writer accepts at most [`WINDOW_BYTES`] + [`COPY_LIMIT_BYTES`] that the peer's application has not read, then waits. A reader
//! keeps at most [`COPY_LIMIT_BYTES`] of the message that is due, and twice [`WINDOW_BYTES`] of messages that overtook it on
//! a faster rail. The kernel's buffers are within these bounds, not beside them.
//!
//! # Cancel safety
//!
//! All progress is in the halves, so every future of `AsyncReadExt` and `AsyncWriteExt` that one call of `poll_*` makes up
//! (`read`, `write`, `flush`, `shutdown`) can be dropped at any time: no byte is lost or sent twice. `write_all` and
//! `read_exact` are as they are on any stream: how far they came is not known.

use crate::error::{Error, Result};
use crate::payload::Sink;
use crate::session::{COPY_LIMIT_BYTES, LINGER, Receiver, Session, Shared, WINDOW_BYTES};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

const MAX_MESSAGE_BYTES: usize = COPY_LIMIT_BYTES as usize;
/// One read takes at most so many messages, however small they are, before other tasks get their turn.
const MESSAGES_A_READ: usize = 256;
const _: () = assert!(COPY_LIMIT_BYTES <= WINDOW_BYTES, "a full message must fit the window");

/// A byte stream over all rails of a session: [`Session::into_stream`].
#[derive(Debug)]
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
}

/// The reading half of a [`Stream`].
#[derive(Debug)]
pub struct ReadHalf {
    receiver: Receiver,
    /// A message, or what has arrived of it, that the caller had no room for.
    kept: Vec<u8>,
    /// What of `kept` is complete and not handed out. Empty while a message arrives.
    ready: Range<usize>,
}

/// The writing half of a [`Stream`].
///
/// Dropping it ends the stream as shutting it down does, but in the background and for at most 30 seconds, as long as the
/// runtime lives. Shut it down to know that everything arrived.
#[derive(Debug)]
pub struct WriteHalf {
    outbox: Arc<Outbox>,
}

impl Session {
    /// Turns the session into a byte stream. The peer must do the same. Call it inside the runtime that drives the session.
    pub fn into_stream(self) -> Stream {
        let (sender, receiver) = self.into_split();
        let bell = Arc::<Bell>::default();
        let outbox = Arc::new(Outbox {
            shared: sender.shared,
            waker: bell.clone().into(),
            bell,
            inner: Mutex::new(Inner { bytes: Vec::new(), blocked: false, ending: false, dropped: false, writer: None }),
        });
        tokio::spawn(push(outbox.clone()));
        Stream { read: ReadHalf { receiver, kept: Vec::new(), ready: 0..0 }, write: WriteHalf { outbox } }
    }
}

impl Stream {
    /// The two halves, for different tasks.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// The two halves, to be used at the same time in one task.
    pub fn split(&mut self) -> (&mut ReadHalf, &mut WriteHalf) {
        (&mut self.read, &mut self.write)
    }
}

impl AsyncRead for ReadHalf {
    /// Reads 0 bytes at the end of the stream, which is where the peer shut it down. A message that fits `out` is received
    /// straight into it.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        for _ in 0..MESSAGES_A_READ {
            this.hand_out(out);
            if out.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            match this.poll_message(cx, out) {
                Poll::Ready(Ok(())) => {}
                // An error lasts: the next read meets it.
                _ if out.filled().len() > before => return Poll::Ready(Ok(())),
                Poll::Ready(Err(Error::Closed)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
        this.hand_out(out);
        if out.filled().len() > before {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl ReadHalf {
    fn hand_out(&mut self, out: &mut ReadBuf<'_>) {
        let end = self.ready.end.min(self.ready.start + out.remaining());
        out.put_slice(&self.kept[self.ready.start..end]);
        self.ready.start = end;
        if self.ready.is_empty() {
            self.ready = 0..0;
        }
    }

    /// Receives one message, into `out` or to be handed out. All that was kept has been handed out before.
    fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        // A message that began in `kept` ends there.
        let out = (!self.receiver.is_in_message()).then_some(out);
        let mut sink = StreamSink { kept: &mut self.kept, out, direct_bytes: None, filled_to: 0 };
        let received = self.receiver.poll_recv(cx.waker(), &mut sink);
        let StreamSink { out, direct_bytes, filled_to, .. } = sink;
        match (received, out, direct_bytes) {
            (Poll::Ready(Ok(_)), Some(out), Some(total)) => out.advance(total),
            (Poll::Ready(Ok(total)), ..) => self.ready = 0..total as usize,
            (Poll::Ready(Err(error)), ..) => return Poll::Ready(Err(error)),
            (Poll::Pending, out, direct_bytes) => {
                // The next call may come with other memory, or never.
                if let (Some(out), Some(total)) = (out, direct_bytes) {
                    self.kept.clear();
                    self.kept.extend_from_slice(&out.initialize_unfilled_to(total)[..filled_to]);
                    self.kept.resize(total, 0);
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Takes a message to the caller's memory if it fits there and has not begun elsewhere.
struct StreamSink<'a, 'b, 'c> {
    kept: &'a mut Vec<u8>,
    out: Option<&'b mut ReadBuf<'c>>,
    /// The length of a message that goes to `out`.
    direct_bytes: Option<usize>,
    /// Nothing in `out` from here on was filled.
    filled_to: usize,
}

impl Sink for StreamSink<'_, '_, '_> {
    fn begin(&mut self, total_bytes: u64) -> Result<()> {
        if total_bytes > COPY_LIMIT_BYTES {
            return Err(Error::MessageTooLarge { message_bytes: total_bytes, buffer_bytes: COPY_LIMIT_BYTES });
        }
        let total = total_bytes as usize;
        match &mut self.out {
            Some(out) if out.remaining() >= total => {
                out.initialize_unfilled_to(total);
                self.direct_bytes = Some(total);
            }
            _ => self.kept.resize(total, 0),
        }
        Ok(())
    }
    fn space(&mut self, _: usize, offset: u64, want: usize) -> &mut [u8] {
        let start = offset as usize;
        match (&mut self.out, self.direct_bytes) {
            (Some(out), Some(total)) => &mut out.initialize_unfilled_to(total)[start..start + want],
            _ => &mut self.kept[start..start + want],
        }
    }
    fn filled(&mut self, _: usize, offset: u64, count: usize) {
        self.filled_to = self.filled_to.max(offset as usize + count);
    }
}

/// What was written and no message has begun with, and whoever waits for it to be gone.
///
/// The writer hands its bytes to the kernel itself as long as the kernel takes them. From when it does not until all is
/// gone, only the task [`push`] does, and the writer adds to `bytes` meanwhile: so that what was written goes out whether the writer
/// calls again or not, and a burst of small writes becomes few messages.
#[derive(Debug)]
struct Outbox {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    /// Of `bell`.
    waker: Waker,
    /// Locked before the session's state.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// At most one message's worth.
    bytes: Vec<u8>,
    /// It is [`push`]'s turn. While false, `bytes` is empty.
    blocked: bool,
    /// Nothing more will be written: shut down or dropped.
    ending: bool,
    dropped: bool,
    /// Waits until there is room, or nothing is left.
    writer: Option<Waker>,
}

/// Calls [`push`]. It must not hold the session, which holds it.
#[derive(Debug, Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Pushes what the writer could not, until the writer is gone and the peer has everything.
async fn push(outbox: Arc<Outbox>) {
    let until = async |end: fn(&Inner) -> bool| {
        loop {
            outbox.bell.0.notified().await;
            let mut inner = outbox.lock();
            // An error lasts: the writer's next call meets it.
            let _ = outbox.advance(&mut inner);
            if let Some(writer) = inner.writer.take() {
                writer.wake();
            }
            if end(&inner) {
                return;
            }
        }
    };
    until(|inner| inner.dropped).await;
    let blocked = outbox.lock().blocked;
    if blocked {
        let _ = tokio::time::timeout(LINGER, until(|inner| !inner.blocked)).await;
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what can be sent now; [`push`] is called for the rest.
    fn advance(&self, inner: &mut Inner) -> Result<()> {
        let mut done = self.shared.poll_push(&self.waker, &mut inner.bytes);
        if inner.ending && matches!(done, Poll::Ready(Ok(()))) {
            done = self.shared.poll_finish(&self.waker);
        }
        inner.blocked = done.is_pending();
        let Poll::Ready(result) = done else { return Ok(()) };
        if result.is_err() {
            // A writer must not wait for room that never comes.
            inner.bytes = Vec::new();
        }
        result
    }

    /// Ready when nothing is left to send.
    fn poll_idle(&self, inner: &mut Inner, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !inner.blocked {
            self.advance(inner)?;
        }
        if inner.blocked { wait(inner, cx) } else { Poll::Ready(Ok(())) }
    }
}

fn wait<T>(inner: &mut Inner, cx: &mut Context<'_>) -> Poll<T> {
    if !inner.writer.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
        inner.writer = Some(cx.waker().clone());
    }
    Poll::Pending
}

impl AsyncWrite for WriteHalf {
    /// Accepts up to 64 KiB. The kernel has them when this returns, or gets them without another call as soon as it takes them.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.outbox.lock();
        if inner.ending {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, Error::Closed)));
        }
        let room = MAX_MESSAGE_BYTES - inner.bytes.len();
        if room == 0 {
            return wait(&mut inner, cx);
        }
        let length = inner.bytes.len();
        for part in parts {
            let left = room - (inner.bytes.len() - length);
            inner.bytes.extend_from_slice(&part[..part.len().min(left)]);
        }
        let accepted = inner.bytes.len() - length;
        if accepted > 0 && !inner.blocked {
            self.outbox.advance(&mut inner)?;
        }
        Poll::Ready(Ok(accepted))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Waits until the kernel has everything that was written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbox.poll_idle(&mut self.outbox.lock(), cx)
    }

    /// Ends the stream and waits until the peer's application has read everything, however long that takes: read at the same time
    /// if the peer may be waiting for that. Reading goes on as before.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.outbox.lock();
        inner.ending = true;
        self.outbox.poll_idle(&mut inner, cx)
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        let mut inner = self.outbox.lock();
        inner.ending = true;
        inner.dropped = true;
        self.outbox.bell.0.notify_one();
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().read).poll_read(cx, out)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().write).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().write).poll_write_vectored(cx, parts)
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_flush(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_shutdown(cx)
    }
}

/// The multirail error is the inner error: `error.get_ref()` and a downcast give it back.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        use io::ErrorKind;
        let kind = match &error {
            // These two ask loops to call again, and nothing would change.
            Error::Local(e) | Error::Io { source: e, .. } | Error::Unreachable { source: e, .. } => match e.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock => ErrorKind::Other,
                kind => kind,
            },
            Error::NotMultirail { .. } | Error::Version { .. } | Error::Protocol(_) | Error::MessageTooLarge { .. } => {
                ErrorKind::InvalidData
            }
            Error::TokenMissing | Error::TokenWrong | Error::OpenWithoutToken { .. } => ErrorKind::PermissionDenied,
            Error::HandshakeTimeout { .. } | Error::AllRailsLost(_) => ErrorKind::TimedOut,
            Error::SessionUnknown | Error::Aborted(_) => ErrorKind::ConnectionReset,
            Error::Cancelled(_) => ErrorKind::ConnectionAborted,
            Error::Closed => ErrorKind::NotConnected,
        };
        io::Error::new(kind, error)
    }
}
