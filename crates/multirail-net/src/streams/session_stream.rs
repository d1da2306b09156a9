//! One stream: tokio's `AsyncRead` and `AsyncWrite`, and reading and writing without a copy.

use super::core::{Core, Handle, State, Waiting};
use multirail_proto::streams::{MAX_STREAMS, ReadOutcome, ResetCode, StreamId, WriteOutcome};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One byte stream, in both directions.
///
/// Shutting it down ends this side's direction, behind what was written. Reading returns 0 bytes at
/// the end of the peer's direction. Dropping a stream sends what was written and ends it, if the
/// peer's direction was read to its end; otherwise the stream is reset.
#[derive(Debug)]
pub struct SessionStream {
    handle: Arc<Handle>,
    id: StreamId,
}

impl SessionStream {
    pub(super) fn new(handle: Arc<Handle>, id: StreamId) -> Self {
        Self { handle, id }
    }

    /// Reads without a copy: calls `consume` with the next bytes, at least one, and takes as many of
    /// them as it returns. Ready with that number, or 0 at the end of the peer's direction. An error of
    /// `consume` is returned, and nothing is taken.
    ///
    /// # Errors
    ///
    /// Those of reading, and those of `consume`.
    pub fn poll_read_with(
        &self,
        cx: &mut Context<'_>,
        consume: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let core = self.core();
        let mut state = core.lock();
        let is_over = state.is_over;
        let count = match state.streams.read(self.id) {
            ReadOutcome::Bytes(bytes) => consume(bytes)?,
            ReadOutcome::End => return Poll::Ready(Ok(0)),
            ReadOutcome::Reset(code) => return Poll::Ready(Err(reset_by_peer(code))),
            ReadOutcome::Wait if is_over => {
                drop(state);
                return Poll::Ready(Err(core.lost()));
            }
            ReadOutcome::Wait => {
                Self::wait(&mut state, self.id).reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        };
        state.streams.consume(self.id, count);
        let is_due = state.streams.is_due();
        drop(state);
        if is_due {
            core.task.wake();
        }
        Poll::Ready(Ok(count))
    }

    /// Ready with how many bytes a write would take now, at least one.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.core().lock();
        let room = state.streams.room(self.id);
        self.wrote(state, cx, room)
    }

    /// Handles what a write, or the question for room, has brought.
    fn wrote(
        &self,
        mut state: MutexGuard<'_, State>,
        cx: &mut Context<'_>,
        outcome: WriteOutcome,
    ) -> Poll<io::Result<usize>> {
        if state.is_over {
            drop(state);
            return Poll::Ready(Err(self.core().lost()));
        }
        match outcome {
            WriteOutcome::Bytes(count) => Poll::Ready(Ok(count)),
            WriteOutcome::Ended => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            WriteOutcome::Reset(code) => Poll::Ready(Err(reset_by_peer(code))),
            WriteOutcome::Wait => {
                Self::wait(&mut state, self.id).writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Ends both directions at once. The peer gets `code`; what was not sent or not read is lost.
    pub fn reset(&self, code: ResetCode) {
        let mut state = self.core().lock();
        state.streams.reset(self.id, code);
        state.dispatch();
        drop(state);
        self.core().task.wake();
    }

    fn core(&self) -> &Core {
        &self.handle.core
    }

    fn wait(state: &mut State, id: StreamId) -> &mut Waiting {
        state.waiting.entry(id).or_default()
    }
}

/// The error of a stream that the peer has reset.
fn reset_by_peer(code: ResetCode) -> io::Error {
    match code {
        ResetCode::TOO_MANY => io::Error::new(
            io::ErrorKind::ConnectionRefused,
            format!("the peer has {MAX_STREAMS} streams open, which is the limit"),
        ),
        _ => io::ErrorKind::ConnectionReset.into(),
    }
}

impl AsyncRead for SessionStream {
    /// Fails with [`io::ErrorKind::ConnectionReset`] if the stream was reset, or the session is over.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let copy = |bytes: &[u8]| {
            let count = bytes.len().min(out.remaining());
            out.put_slice(&bytes[..count]);
            Ok(count)
        };
        self.poll_read_with(cx, copy).map_ok(|_| ())
    }
}

impl AsyncWrite for SessionStream {
    /// Accepts bytes up to the limit of what a stream keeps. They are sent without another call.
    /// Fails as reading does, and with [`io::ErrorKind::BrokenPipe`] after a shutdown.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.core().lock();
        let written = state.streams.write(self.id, bytes);
        let written = self.wrote(state, cx, written);
        self.core().task.wake();
        written
    }

    /// Does not wait: what was written is sent in any case.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends this side's direction. Does not wait for the peer.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let core = self.core();
        core.lock().streams.finish(self.id);
        core.task.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        let mut state = self.core().lock();
        state.streams.release(self.id);
        state.waiting.remove(&self.id);
        drop(state);
        self.core().task.wake();
    }
}
