//! Edges over a session, which uses every rail between the two hosts.
//!
//! A thread drives the session, since a session needs an asynchronous runtime and has work between
//! calls. Messages pass to and from that thread in memory.
//!
//! A message is its body's length, its header and its body. A long one is one message of the
//! session, sent from the memory where it is; the session's sender then waits until the peer has
//! it. Shorter ones are sent as one or more messages that the session copies, so that no round trip
//! separates one from the next.

use super::buffer::{Buffer, Pool};
use super::connect::dial::{Dial, PEER_TIMEOUT};
use super::connection::{Connection, Message, Wake};
use super::frame::{self, PREFIX_BYTES};
use super::notifier::Notifier;
use multirail_net::error::{Error, Result};
use multirail_net::payload::{Sink, Source};
use multirail_net::protocol::ProtocolName;
use multirail_net::session::{COPY_LIMIT_BYTES, NewSession, Receiver, Sender};
use multirail_net::sync::lock;
use multirail_net::{Config, Session};
use multirail_net::{request, runtime};
use multirail_proto::pipeline::Transport;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;
use tokio::sync::Notify;

/// Longest body that is copied. For longer ones, the round trip of waiting is small beside the
/// transfer.
const MAX_COPIED_BYTES: usize = 256 << 10;
/// Most bytes that the session copies at once.
const MAX_PIECE_BYTES: usize = COPY_LIMIT_BYTES as usize;
/// Most bytes that have arrived and were not pulled. Beyond it, the peer waits.
const MAX_INCOMING_BYTES: usize = 8 << 20;
/// How long closing waits until the peer has the last messages. After it, the thread continues
/// alone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer to the request for an edge.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EdgeReply(pub Result<(), String>);

/// One end.
#[derive(Debug)]
pub(super) struct Striped {
    shared: Arc<Shared>,
    pushed: VecDeque<Message>,
    /// Closed when the thread has ended.
    ended: mpsc::Receiver<()>,
}

/// What the owner and the thread share.
#[derive(Debug)]
struct Shared {
    queues: Mutex<Queues>,
    /// Wakes the thread: there is something to send, or the owner has closed.
    to_send: Notify,
    /// Wakes the thread: there is room for incoming messages.
    room: Notify,
    /// The owner's notifier.
    notifier: Arc<Notifier>,
    pool: Arc<Pool>,
    limit_bytes: u64,
}

#[derive(Debug, Default)]
struct Queues {
    outgoing: VecDeque<Message>,
    /// The thread has taken a message from `outgoing` and not sent it yet.
    sending: bool,
    incoming: VecDeque<Message>,
    incoming_bytes: usize,
    /// The owner has closed.
    closing: bool,
    /// Why nothing arrives any more, until it is reported.
    over: Option<Error>,
    is_over: bool,
}

impl Striped {
    /// Makes an edge over a session of its own. It blocks for some seconds at most.
    pub(super) fn dial(dial: Dial<'_>) -> Result<Self> {
        let (host, config, protocol, edge) =
            (dial.host.to_owned(), dial.config.clone(), dial.protocol, dial.edge.to_vec());
        Self::start(dial.notifier, dial.limit_bytes, async move { ask(&host, config, protocol, edge).await })
    }

    /// Accepts an edge over a session whose client has requested one.
    pub(super) fn accept(
        new: NewSession,
        notifier: &Arc<Notifier>,
        limit_bytes: u64,
        give_up_after: Duration,
    ) -> Result<Self> {
        Self::start(notifier, limit_bytes, async move {
            let mut session = new.start_moved().map_err(Error::io("taking over a session"))?;
            session.set_give_up_after(give_up_after);
            request::send(&mut session, &EdgeReply(Ok(()))).await?;
            Ok(session)
        })
    }

    /// Starts the thread and waits until it has the session.
    fn start(
        notifier: &Arc<Notifier>,
        limit_bytes: u64,
        session: impl Future<Output = Result<Session>> + Send + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            to_send: Notify::new(),
            room: Notify::new(),
            notifier: notifier.clone(),
            pool: Arc::default(),
            limit_bytes,
        });
        let (tell_started, started) = mpsc::channel();
        let (tell_ended, ended) = mpsc::channel();
        let of_thread = shared.clone();
        let run = move || {
            // Dropped when the thread ends, for whatever reason.
            let _tell_ended: mpsc::Sender<()> = tell_ended;
            let ran = runtime::block_on(async {
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

async fn ask(host: &str, config: Config, protocol: ProtocolName, edge: Vec<u8>) -> Result<Session> {
    let mut session = Session::connect(host, config).await?;
    request::send_request_bytes(&mut session, protocol, &edge).await?;
    let reply = tokio::time::timeout(PEER_TIMEOUT, request::receive(&mut session)).await;
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
        Ok(if inner.is_over || !inner.incoming.is_empty() { Wake::Now } else { Wake::Notifier })
    }
}

impl Drop for Striped {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.to_send.notify_one();
        let _ = self.ended.recv_timeout(CLOSE_TIMEOUT);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    fn end(&self, why: Error) {
        let mut inner = self.lock();
        if !inner.is_over {
            (inner.is_over, inner.over) = (true, Some(why));
        }
        drop(inner);
        self.notifier.notify();
    }

    /// Sends and receives until the owner closes, or the session ends.
    async fn drive(&self, session: Session) -> Result<()> {
        let (mut sender, mut receiver) = session.into_split();
        let mut sending = std::pin::pin!(self.send_all(&mut sender));
        // When nothing arrives any more, the owner may still send, and read what has arrived.
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
                self.notifier.notify();
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
            self.notifier.notify();
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
            // Only what is missing fits.
            got += match receiver.recv(&mut body[got..]).await {
                Ok(0) => return Err(Error::Protocol("an empty message in the middle of a buffer".to_owned())),
                Err(Error::Closed) => {
                    return Err(Error::Protocol("the peer closed in the middle of a buffer".to_owned()));
                }
                piece => piece?,
            };
        }
        Ok(Message { head, body })
    }
}

/// A whole message as a source of the session.
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

/// The first part of a message as a sink of the session. Its bytes arrive in any order, the length
/// possibly last.
struct First<'a> {
    prefix: [u8; PREFIX_BYTES],
    body: Buffer,
    shared: &'a Shared,
}

impl Sink for First<'_> {
    fn begin(&mut self, total_bytes: u64) -> Result<()> {
        let Some(body_bytes) = total_bytes.checked_sub(PREFIX_BYTES as u64) else {
            return Err(Error::Protocol(format!("a message of {total_bytes} bytes has no header")));
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
