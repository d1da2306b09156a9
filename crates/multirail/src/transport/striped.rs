//! A session: every rail between the two hosts. A thread of its own drives it, since a session lives in an asynchronous runtime and also
//! has work between calls; messages pass to and from that thread in memory.
//!
//! A message is its body's length, its head and its body. A long one is one message of the session, sent from the memory where it is; the
//! session's sender waits then until the peer has it. Others are sent as messages that the session copies, a few where one of those is
//! too short, so that nothing waits between one and the next.

use super::connect::{Dial, PATIENCE};
use super::frame::{self, PREFIX_BYTES};
use super::{Bell, Buffer, Connection, Message, Pool, Transport, Wake};
use crate::error::{Error, Result};
use crate::payload::{Sink, Source};
use crate::service::{self, Request};
use crate::session::{COPY_LIMIT_BYTES, NewSession, Receiver, Sender};
use crate::{Config, Session};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::Notify;

/// Longer messages are not copied. To wait costs a round trip, which is little beside what they take.
const MAX_COPIED_BYTES: usize = 256 << 10;
/// Nor is more given to the session at once.
const MAX_PIECE_BYTES: usize = COPY_LIMIT_BYTES as usize;
/// What has come and was not pulled; the peer waits beyond it.
const MAX_INCOMING_BYTES: usize = 8 << 20;
/// How long closing holds its caller up while the peer gets the last messages; then that goes on behind.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// What the receiver says to the request for an edge.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EdgeReply(pub(super) Result<(), String>);

/// One end.
#[derive(Debug)]
pub struct Striped {
    shared: Arc<Shared>,
    pushed: VecDeque<Message>,
    /// Told when the thread has ended.
    ended: mpsc::Receiver<()>,
}

/// Between the owner and the thread.
#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Wakes the thread: there is something to send, or an end.
    to_send: Notify,
    /// Wakes the thread: there is room for what comes.
    room: Notify,
    /// The owner's.
    bell: Arc<Bell>,
    pool: Arc<Pool>,
    limit_bytes: u64,
}

#[derive(Debug, Default)]
struct Inner {
    outgoing: VecDeque<Message>,
    /// The thread has taken a message out of `outgoing` and not yet sent it.
    sending: bool,
    incoming: VecDeque<Message>,
    incoming_bytes: usize,
    /// The owner has closed.
    closing: bool,
    /// Nothing comes any more, and why.
    over: Option<Error>,
    is_over: bool,
}

impl Striped {
    /// Makes an edge by a session of its own. It blocks, for some seconds at most.
    pub(super) fn dial(dial: Dial<'_>) -> Result<Self> {
        let (host, config, edge) = (dial.host.to_owned(), dial.config.clone(), dial.edge.to_vec());
        Self::start(dial.bell, dial.limit_bytes, async move { ask(&host, config, edge).await })
    }

    /// Of a session whose client has asked for an edge, which is hereby granted.
    pub(super) fn accept(new: NewSession, bell: &Arc<Bell>, limit_bytes: u64) -> Result<Self> {
        Self::start(bell, limit_bytes, async move {
            let mut session = new.start_moved().map_err(Error::io("taking over a session"))?;
            service::send(&mut session, &EdgeReply(Ok(()))).await?;
            Ok(session)
        })
    }

    /// Starts the thread, and waits until it has the session.
    fn start(
        bell: &Arc<Bell>,
        limit_bytes: u64,
        session: impl Future<Output = Result<Session>> + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            inner: Mutex::default(),
            to_send: Notify::new(),
            room: Notify::new(),
            bell: bell.clone(),
            pool: Arc::default(),
            limit_bytes,
        });
        let (tell_started, started) = mpsc::channel();
        let (tell_ended, ended) = mpsc::channel();
        let of_thread = shared.clone();
        let run = move || {
            // Dropped, and so told, whatever happens.
            let _tell_ended: mpsc::Sender<()> = tell_ended;
            let ran = service::block_on(async {
                let session = match session.await {
                    Ok(session) => session,
                    Err(error) => {
                        let _ = tell_started.send(Err(error));
                        return Ok(());
                    }
                };
                let _ = tell_started.send(Ok(()));
                of_thread.drive(session).await
            });
            of_thread.end(ran.err().unwrap_or(Error::Closed));
        };
        let spawned = std::thread::Builder::new().name("striped edge".to_owned()).spawn(run);
        spawned.map_err(Error::io("starting the thread of a striped edge"))?;
        started.recv().map_err(|_| Error::Closed)??;
        Ok(Self { shared, pushed: VecDeque::new(), ended })
    }
}

async fn ask(host: &str, config: Config, edge: Vec<u8>) -> Result<Session> {
    let mut session = Session::connect(host, config).await?;
    service::send(&mut session, &Request::Edge(edge)).await?;
    let reply = tokio::time::timeout(PATIENCE, service::receive(&mut session)).await;
    let late = Error::io("waiting for the greeting of a stream's peer");
    match reply.map_err(|_| late(io::ErrorKind::TimedOut.into()))?? {
        EdgeReply(Ok(())) => Ok(session),
        EdgeReply(Err(why)) => Err(Error::Aborted(why)),
    }
}

impl Connection for Striped {
    fn transport(&self) -> Transport {
        Transport::Striped
    }

    fn push(&mut self, message: Message) {
        self.pushed.push_back(message);
    }

    fn flush(&mut self) -> Result<bool> {
        let mut inner = self.shared.lock();
        if !self.pushed.is_empty() {
            if inner.is_over {
                return Err(inner.over.take().unwrap_or(Error::Closed));
            }
            inner.outgoing.append(&mut self.pushed);
            self.shared.to_send.notify_one();
        }
        Ok(inner.outgoing.is_empty() && !inner.sending)
    }

    fn pull(&mut self) -> Result<Option<Message>> {
        let mut inner = self.shared.lock();
        match inner.incoming.pop_front() {
            Some(message) => {
                let was_full = inner.incoming_bytes >= MAX_INCOMING_BYTES;
                inner.incoming_bytes -= message.body.len();
                if was_full && inner.incoming_bytes < MAX_INCOMING_BYTES {
                    self.shared.room.notify_one();
                }
                Ok(Some(message))
            }
            None if inner.is_over => Err(inner.over.take().unwrap_or(Error::Closed)),
            None => Ok(None),
        }
    }

    fn sleep(&mut self) -> Result<Wake> {
        let inner = self.shared.lock();
        Ok(if inner.is_over || !inner.incoming.is_empty() { Wake::Now } else { Wake::Bell })
    }
}

impl Drop for Striped {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.to_send.notify_one();
        let _ = self.ended.recv_timeout(CLOSE_PATIENCE);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: Error) {
        let mut inner = self.lock();
        if !inner.is_over {
            (inner.is_over, inner.over) = (true, Some(why));
        }
        drop(inner);
        self.bell.ring();
    }

    /// Sends and receives until the owner closes, or the session ends.
    async fn drive(&self, session: Session) -> Result<()> {
        let (mut sender, mut receiver) = session.into_split();
        let mut sending = std::pin::pin!(self.send_all(&mut sender));
        // The owner may still send when nothing comes any more, and has not seen all that came.
        tokio::select! {
            sent = &mut sending => return sent,
            received = self.receive_all(&mut receiver) => self.end(received.err().unwrap_or(Error::Closed)),
        }
        sending.await
    }

    async fn send_all(&self, sender: &mut Sender) -> Result<()> {
        let mut first = Vec::new();
        loop {
            let (message, closing) = {
                let mut inner = self.lock();
                let message = inner.outgoing.pop_front();
                inner.sending = message.is_some();
                (message, inner.closing)
            };
            match message {
                Some(message) => self.send(sender, message, &mut first).await?,
                None if closing => break,
                None => self.to_send.notified().await,
            }
            let mut inner = self.lock();
            if std::mem::take(&mut inner.sending) && inner.outgoing.is_empty() {
                self.bell.ring();
            }
        }
        sender.finish().await
    }

    async fn send(&self, sender: &mut Sender, message: Message, first: &mut Vec<u8>) -> Result<()> {
        let Message { head, body } = message;
        let prefix = frame::prefix(&head, &body);
        if body.len() > MAX_COPIED_BYTES {
            return sender.send_from(&mut Whole { prefix, body }, 1).await;
        }
        let (begin, rest) = body.split_at(body.len().min(MAX_PIECE_BYTES - PREFIX_BYTES));
        first.clear();
        first.extend_from_slice(&prefix);
        first.extend_from_slice(begin);
        sender.send(first).await?;
        for piece in rest.chunks(MAX_PIECE_BYTES) {
            sender.send(piece).await?;
        }
        Ok(())
    }

    async fn receive_all(&self, receiver: &mut Receiver) -> Result<()> {
        loop {
            while self.lock().incoming_bytes >= MAX_INCOMING_BYTES {
                self.room.notified().await;
            }
            let message = self.receive(receiver).await?;
            let mut inner = self.lock();
            inner.incoming_bytes += message.body.len();
            inner.incoming.push_back(message);
            drop(inner);
            self.bell.ring();
        }
    }

    async fn receive(&self, receiver: &mut Receiver) -> Result<Message> {
        let mut first = First { prefix: [0; PREFIX_BYTES], body: Buffer::default(), shared: self };
        receiver.recv_into(&mut first).await?;
        let First { prefix, mut body, .. } = first;
        let (length, head) = frame::read(&prefix, self.limit_bytes)?;
        let mut got = body.len();
        if got > length {
            return Err(Error::Protocol(format!("{got} bytes for a buffer of {length}")));
        }
        body.resize(length, 0);
        while got < length {
            // Only what is still missing fits.
            got += match receiver.recv(&mut body[got..]).await {
                Ok(0) => return Err(Error::Protocol("nothing, in the middle of a buffer".to_owned())),
                Err(Error::Closed) => return Err(Error::Protocol("it closed in the middle of a buffer".to_owned())),
                piece => piece?,
            };
        }
        Ok(Message { head, body })
    }
}

/// All of a message, to be sent.
struct Whole {
    prefix: [u8; PREFIX_BYTES],
    body: Buffer,
}

impl Source for Whole {
    fn total_bytes(&self) -> u64 {
        (PREFIX_BYTES + self.body.len()) as u64
    }
    fn bytes(&mut self, _: usize, offset: u64, want: usize) -> &[u8] {
        let offset = offset as usize;
        match offset.checked_sub(PREFIX_BYTES) {
            None => &self.prefix[offset..PREFIX_BYTES.min(offset + want)],
            Some(offset) => &self.body[offset..offset + want],
        }
    }
}

/// What a message begins with, to be received. Its parts come in any order, the length perhaps last.
struct First<'a> {
    prefix: [u8; PREFIX_BYTES],
    body: Buffer,
    shared: &'a Shared,
}

impl Sink for First<'_> {
    fn begin(&mut self, total_bytes: u64) -> Result<()> {
        let Some(body_bytes) = total_bytes.checked_sub(PREFIX_BYTES as u64) else {
            return Err(Error::Protocol(format!("a message of {total_bytes} bytes has no head")));
        };
        self.body = self.shared.pool.sized(frame::checked(body_bytes, self.shared.limit_bytes)?);
        Ok(())
    }
    fn space(&mut self, _: usize, offset: u64, want: usize) -> &mut [u8] {
        let offset = offset as usize;
        match offset.checked_sub(PREFIX_BYTES) {
            None => &mut self.prefix[offset..PREFIX_BYTES.min(offset + want)],
            Some(offset) => &mut self.body[offset..offset + want],
        }
    }
    fn filled(&mut self, _: usize, _: u64, _: usize) {}
}
