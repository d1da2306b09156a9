//! What the streams of a session share.

use crate::error::Error;
use crate::session::Shared;
use crate::sync::lock;
use futures_util::task::AtomicWaker;
use multirail_proto::streams::{StreamEvent, StreamId};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// What keeps the session alive: it belongs to [`Streams`] and each [`SessionStream`].
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) core: Arc<Core>,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    /// Locked after the session's driver, never before.
    pub(super) state: Mutex<State>,
    /// The task that drives the session.
    pub(super) task: AtomicWaker,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) streams: multirail_proto::streams::Streams,
    pub(super) waiting: HashMap<StreamId, Waiting>,
    pub(super) opened: VecDeque<StreamId>,
    pub(super) acceptor: Option<Waker>,
    /// No handle is left.
    pub(super) is_dropped: bool,
    /// The session is over.
    pub(super) is_over: bool,
}

/// The tasks that wait for a stream.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl Core {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        let state = State {
            streams: multirail_proto::streams::Streams::new(shared.role()),
            waiting: HashMap::new(),
            opened: VecDeque::new(),
            acceptor: None,
            is_dropped: false,
            is_over: false,
        };
        Arc::new(Self { state: Mutex::new(state), shared, task: AtomicWaker::new() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Why the session is over.
    pub(super) fn error(&self) -> Error {
        self.shared.check().err().unwrap_or(Error::Closed)
    }

    /// The error of a stream that has lost its session.
    pub(super) fn lost(&self) -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionReset, self.error())
    }
}

impl State {
    /// Wakes those whose streams have changed.
    pub(super) fn dispatch(&mut self) {
        while let Some(event) = self.streams.poll_event() {
            let waker = match event {
                StreamEvent::Opened(id) => {
                    self.opened.push_back(id);
                    self.acceptor.take()
                }
                StreamEvent::Readable(id) => self.waiting.get_mut(&id).and_then(|waiting| waiting.reader.take()),
                StreamEvent::Writable(id) => self.waiting.get_mut(&id).and_then(|waiting| waiting.writer.take()),
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// The session is over: wakes everyone.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        let waiting = std::mem::take(&mut self.waiting);
        let wakers = waiting.into_values().flat_map(|waiting| [waiting.reader, waiting.writer]);
        wakers.chain([self.acceptor.take()]).flatten().for_each(Waker::wake);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.lock().is_dropped = true;
        self.core.task.wake();
    }
}
