//! A session as a byte stream: tokio's `AsyncRead` and `AsyncWrite` over all rails.
//!
//! ```
//! # use multirail_net::session::{Accepted, ListenConfig, Listener};
//! # use multirail_net::{Config, Session};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new())).await?;
//! # let address = listener.address().to_string();
//! # let server = async {
//! #     let Accepted::Session(new) = listener.accept().await? else { unreachable!() };
//! #     let (mut read, mut write) = new.start().into_stream().into_split();
//! #     tokio::io::copy(&mut read, &mut write).await?;
//! #     write.shutdown().await?;
//! #     Ok::<(), Box<dyn std::error::Error>>(())
//! # };
//! # let client = async {
//! // The other host sends back what it reads.
//! let mut stream = Session::connect(&address, Config::new()).await?.into_stream();
//! let (read, write) = stream.split();
//! let writing = async {
//!     write.write_all(b"over all rails").await?;
//!     write.shutdown().await
//! };
//! let mut answer = String::new();
//! tokio::try_join!(writing, read.read_to_string(&mut answer))?;
//! assert_eq!(answer, "over all rails");
//! # Ok(())
//! # };
//! # tokio::try_join!(server, client)?;
//! # Ok(())
//! # }
//! ```
//!
//! A stream is a sequence of messages of at most [`COPY_LIMIT_BYTES`]. Their boundaries mean
//! nothing, and each is striped like any other message. Both sides of a session must use it as a
//! stream.
//!
//! # Memory
//!
//! A writer accepts at most [`WINDOW_BYTES`] + [`COPY_LIMIT_BYTES`] that the peer's application has
//! not read, then waits. A reader buffers at most [`COPY_LIMIT_BYTES`] of the current message, and
//! twice [`WINDOW_BYTES`] of messages that overtook it on a faster rail. These bounds include the
//! kernel's buffers.
//!
//! # Cancel safety
//!
//! The two halves hold all progress. Every future of `AsyncReadExt` and `AsyncWriteExt` that makes
//! one call of `poll_*` (`read`, `write`, `flush`, `shutdown`) can be dropped at any time: no byte
//! is lost or sent twice. `write_all` and `read_exact` behave as on any stream: the number of bytes
//! transferred is unknown.

use crate::error::{Error, Result};
use crate::payload::Sink;
use crate::session::{COPY_LIMIT_BYTES, LINGER, Receiver, Session, Shared, WINDOW_BYTES};
use crate::sync::lock;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

const MAX_MESSAGE_BYTES: usize = COPY_LIMIT_BYTES as usize;
/// The most messages that one read takes, however small, before other tasks get their turn.
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
    /// A message, or the part of it that has arrived, for which the caller had no room.
    kept: Vec<u8>,
    /// The part of `kept` that is complete and not handed out. Empty while a message arrives.
    ready: Range<usize>,
}

/// The writing half of a [`Stream`].
///
/// Dropping it ends the stream as shutting it down does, but in the background, for at most 30
/// seconds, and only while the runtime lives. Shut it down to be sure that everything has arrived.
#[derive(Debug)]
pub struct WriteHalf {
    outbox: Arc<Outbox>,
}

impl Session {
    /// Turns the session into a byte stream. The peer must do the same. Call it within the runtime
    /// that drives the session.
    pub fn into_stream(self) -> Stream {
        let (sender, receiver) = self.into_split();
        let push_waker = Arc::<PushWaker>::default();
        let outbox = Arc::new(Outbox {
            shared: sender.shared,
            waker: push_waker.clone().into(),
            push_waker,
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
    /// Reads 0 bytes at the end of the stream, where the peer shut it down. A message that fits
    /// `out` is received directly into it.
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
                // An error is permanent: the next read returns it as well.
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

    /// Receives one message, into `out` or into `kept`. Everything in `kept` has been handed out
    /// before.
    fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        // A message that began in `kept` also ends there.
        let out = (!self.receiver.is_in_message()).then_some(out);
        let mut sink = StreamSink { kept: &mut self.kept, out, direct_bytes: None, filled_to: 0 };
        let received = self.receiver.poll_recv(cx.waker(), &mut sink);
        let StreamSink { out, direct_bytes, filled_to, .. } = sink;
        match (received, out, direct_bytes) {
            (Poll::Ready(Ok(_)), Some(out), Some(total)) => out.advance(total),
            (Poll::Ready(Ok(total)), ..) => self.ready = 0..total as usize,
            (Poll::Ready(Err(error)), ..) => return Poll::Ready(Err(error)),
            (Poll::Pending, out, direct_bytes) => {
                // The next call may pass other memory, or never happen.
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

/// Receives a message into the caller's memory if it fits there and has not begun elsewhere.
struct StreamSink<'a, 'b, 'c> {
    kept: &'a mut Vec<u8>,
    out: Option<&'b mut ReadBuf<'c>>,
    /// The length of a message that goes to `out`.
    direct_bytes: Option<usize>,
    /// The end of the filled part of `out`.
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

/// The bytes that were written and not yet sent, and the task that waits for them.
///
/// The writer hands its bytes to the kernel itself while the kernel takes them. Once the kernel is
/// full, the task [`push`] takes over until all bytes are sent, and the writer only appends to
/// `bytes`. So written bytes are sent even if the writer makes no further call, and a burst of
/// small writes becomes few messages.
#[derive(Debug)]
struct Outbox {
    shared: Arc<Shared>,
    push_waker: Arc<PushWaker>,
    /// The waker of `push_waker`.
    waker: Waker,
    /// Locked before the session's state.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// At most one message of bytes.
    bytes: Vec<u8>,
    /// Whether it is [`push`]'s turn. If not, `bytes` is empty.
    blocked: bool,
    /// The stream was shut down or dropped: no more bytes are written.
    ending: bool,
    dropped: bool,
    /// The task that waits for room, or for an empty outbox.
    writer: Option<Waker>,
}

/// Wakes [`push`]. It must not own the session, which owns it.
#[derive(Debug, Default)]
struct PushWaker(Notify);

impl Wake for PushWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Sends what the writer could not, until the writer is dropped and the peer has received
/// everything.
async fn push(outbox: Arc<Outbox>) {
    let until = async |end: fn(&Inner) -> bool| {
        loop {
            outbox.push_waker.0.notified().await;
            let mut inner = outbox.lock();
            // An error is permanent: the writer's next call returns it as well.
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
        lock(&self.inner)
    }

    /// Sends as much as possible now; [`push`] is woken for the rest.
    fn advance(&self, inner: &mut Inner) -> Result<()> {
        let mut done = self.shared.poll_push(&self.waker, &mut inner.bytes);
        if inner.ending && matches!(done, Poll::Ready(Ok(()))) {
            done = self.shared.poll_finish(&self.waker);
        }
        inner.blocked = done.is_pending();
        let Poll::Ready(result) = done else { return Ok(()) };
        if result.is_err() {
            // A writer must not wait for room that will never come.
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
    /// Accepts up to 64 KiB. The kernel takes the bytes now, or without another call as soon as it
    /// has room.
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

    /// Waits until the kernel has taken everything that was written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbox.poll_idle(&mut self.outbox.lock(), cx)
    }

    /// Ends the stream and waits without limit until the peer's application has read everything.
    /// Read at the same time if the peer may be waiting for that. Reading remains possible
    /// afterwards.
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
        self.outbox.push_waker.0.notify_one();
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

/// The multirail error is the inner error: `error.get_ref()` and a downcast return it.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        use io::ErrorKind;
        let kind = match &error {
            // Loops retry these two kinds, and would never end.
            Error::Local(e) | Error::Io { cause: e, .. } | Error::Unreachable { cause: e, .. } => match e.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock => ErrorKind::Other,
                kind => kind,
            },
            Error::NoRail { .. } => ErrorKind::AddrNotAvailable,
            Error::NotMultirail { .. }
            | Error::Version { .. }
            | Error::Handshake { .. }
            | Error::Protocol(_)
            | Error::MessageTooLarge { .. } => ErrorKind::InvalidData,
            Error::TokenMissing { .. }
            | Error::CodeWrong
            | Error::TokenWrong
            | Error::TokenUnknown
            | Error::KeyRefused { .. }
            | Error::HostUnknown { .. }
            | Error::HostChanged { .. }
            | Error::PlaintextDiffers { .. }
            | Error::IdentityFile { .. } => ErrorKind::PermissionDenied,
            Error::TokenFile { .. } => ErrorKind::InvalidInput,
            Error::HandshakeTimeout { .. } | Error::AllRailsLost(_) => ErrorKind::TimedOut,
            Error::Busy { .. } | Error::Stopping => ErrorKind::ResourceBusy,
            Error::SessionUnknown | Error::Aborted(_) => ErrorKind::ConnectionReset,
            Error::Cancelled(_) => ErrorKind::ConnectionAborted,
            Error::OverMemoryBudget { .. } => ErrorKind::OutOfMemory,
            Error::Closed => ErrorKind::NotConnected,
        };
        io::Error::new(kind, error)
    }
}
