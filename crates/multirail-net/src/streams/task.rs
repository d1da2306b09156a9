//! The task that drives the session of streams.

use super::core::Core;
use crate::error::{Error, Result};
use crate::payload::VecSink;
use crate::session::{Arrived, COPY_LIMIT_BYTES, LINGER, Made, Receiver};
use crate::traffic::Counted;
use multirail_proto::streams::message_bytes;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The most messages that are received in one turn, before other tasks of the runtime get theirs.
const MESSAGES_A_TURN: usize = 64;

/// What drives the session until it is over.
pub(super) struct Task {
    core: Arc<Core>,
    /// The message whose turn it is.
    sink: VecSink,
    /// Dropping it confirms what was received.
    _receiver: Receiver,
}

impl Task {
    pub(super) fn new(core: Arc<Core>, receiver: Receiver) -> Self {
        Self { core, sink: VecSink::new(COPY_LIMIT_BYTES), _receiver: receiver }
    }

    pub(super) async fn run(mut self) {
        let finished = poll_fn(|cx| self.poll(cx)).await;
        self.core.lock().end();
        if finished {
            let shared = self.core.shared.clone();
            let finish = poll_fn(|cx| shared.poll_finish(cx.waker()));
            let _ = tokio::time::timeout(LINGER, finish).await;
        }
    }

    /// Ready when the session is over, with whether this side must close it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let core = self.core.clone();
        core.task.register(cx.waker());
        match self.poll_receive(cx) {
            Poll::Ready(Ok(())) => cx.waker().wake_by_ref(),
            Poll::Ready(Err(error)) => return Poll::Ready(matches!(error, Error::Closed)),
            Poll::Pending => {}
        }
        let most_bytes = message_bytes(core.shared.rate_bytes_s());
        let sent = core.shared.poll_send_all(cx.waker(), &mut |buffer| {
            let mut state = core.lock();
            if !state.streams.is_due() {
                return None;
            }
            let mut message = buffer();
            let made = state.streams.next_message(&mut message, most_bytes);
            let more_is_behind = state.streams.is_bulk();
            state.dispatch();
            made.then_some(Made { message, more_is_behind })
        });
        if let Poll::Ready(Err(_)) = sent {
            return Poll::Ready(false);
        }
        let state = core.lock();
        if state.is_dropped && sent.is_ready() && state.streams.count() == 0 {
            return Poll::Ready(true);
        }
        Poll::Pending
    }

    /// Receives what there is; ready when there may be more.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let core = &self.core;
        for _ in 0..MESSAGES_A_TURN {
            let arrived = match core.shared.poll_recv_any(cx.waker(), &mut self.sink) {
                Poll::Ready(arrived) => arrived?,
                Poll::Pending => return Poll::Pending,
            };
            let message = match &arrived {
                Arrived::InSink => &self.sink.bytes,
                Arrived::Overtaking(message) => message,
            };
            let mut state = core.lock();
            let handled = state.streams.handle_message(message);
            state.dispatch();
            drop(state);
            if let Err(violation) = handled {
                core.shared.end(format!("this side broke the protocol of streams: {violation}"));
                return Poll::Ready(Err(Error::Protocol(violation.to_string())));
            }
        }
        Poll::Ready(Ok(()))
    }
}
