//! One end of an edge over shared memory.

use super::ring::{MIN_RING_BYTES, Memory, Reader, Ring, Writer};
use crate::edge::buffer::Pool;
use crate::edge::connection::{Connection, Message, Wake};
use crate::edge::frame::{self, Incoming, PREFIX_BYTES};
use crate::edge::notifier::Notifier;
use multirail_net::error::{Error, Result};
use multirail_proto::pipeline::Transport;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size of the ring of each direction. It fits a second-level cache beside the messages.
pub(super) const RING_BYTES: usize = 512 << 10;
/// Bytes after which the peer is told of data, and of room.
const PORTION_BYTES: usize = 16 << 10;
/// How often a waiting end checks whether the peer is alive.
const LIVENESS_PERIOD: Duration = Duration::from_millis(100);

/// One end.
#[derive(Debug)]
pub(crate) struct Shm {
    receiver: Receiver,
    writer: Writer,
    pub(super) outgoing: VecDeque<Message>,
    /// Bytes of the first outgoing body that are in the ring; `None` if not even its length is.
    sent_bytes: Option<usize>,
    /// The peer's notifier.
    notifier: Arc<Notifier>,
    /// A connection without data, which is closed when the peer ends.
    life: UnixStream,
    checked: Instant,
    peer_gone: bool,
}

impl Shm {
    /// An end. `first` is the end that created the memory; it writes the first ring.
    pub(super) fn new(
        memory: &Arc<Memory>,
        first: bool,
        notifier: Arc<Notifier>,
        life: UnixStream,
        limit_bytes: u64,
    ) -> io::Result<Self> {
        life.set_nonblocking(true)?;
        Ok(Self {
            receiver: Receiver::new(Ring::of(memory, first), limit_bytes),
            writer: Writer::new(Ring::of(memory, !first)),
            outgoing: VecDeque::new(),
            sent_bytes: None,
            notifier,
            life,
            checked: Instant::now(),
            peer_gone: false,
        })
    }

    /// Tells the peer what is in the ring.
    fn publish(&mut self) {
        if self.writer.unpublished() > 0 {
            self.writer.publish();
            self.notifier.notify();
        }
    }

    /// Puts in what there is room for. Returns whether that was everything.
    fn fill(&mut self) -> io::Result<bool> {
        while let Some(message) = self.outgoing.front() {
            let sent = match self.sent_bytes {
                Some(sent) => sent,
                None if self.writer.room(PREFIX_BYTES)? < PREFIX_BYTES => return Ok(false),
                None => {
                    self.writer.write(&frame::prefix(&message.head, &message.body));
                    0
                }
            };
            let rest = &message.body[sent..];
            let wanted = rest.len().min(PORTION_BYTES);
            let portion = if wanted == 0 { 0 } else { wanted.min(self.writer.room(wanted)?) };
            self.writer.write(&rest[..portion]);
            self.sent_bytes = Some(sent + portion);
            if sent + portion == message.body.len() {
                self.outgoing.pop_front();
                self.sent_bytes = None;
            } else if portion == 0 {
                return Ok(false);
            }
            if self.writer.unpublished() >= PORTION_BYTES {
                self.publish();
            }
        }
        Ok(true)
    }

    /// What `pull` returns when nothing is there.
    fn end(&mut self) -> Result<Option<Message>> {
        let (closed, gone) = (self.receiver.reader.is_closed(), self.peer_gone);
        if !closed && !gone {
            return Ok(None);
        }
        // A message may have arrived between the two looks.
        if let Some(message) = self.receiver.pull(&self.notifier)? {
            return Ok(Some(message));
        }
        if closed && self.receiver.is_between() {
            Err(Error::Closed)
        } else {
            Err(lost(io::ErrorKind::UnexpectedEof.into()))
        }
    }
}

impl Connection for Shm {
    fn transport(&self) -> Transport {
        Transport::Shm
    }

    fn push(&mut self, message: Message) {
        self.outgoing.push_back(message);
    }

    fn flush(&mut self) -> Result<bool> {
        if self.outgoing.is_empty() {
            return Ok(true);
        }
        let all = self.fill();
        self.publish();
        let all = all.map_err(broken)?;
        if !all && (self.peer_gone || self.writer.is_closed()) {
            return Err(lost(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(all)
    }

    fn pull(&mut self) -> Result<Option<Message>> {
        match self.receiver.pull(&self.notifier)? {
            None => self.end(),
            message => Ok(message),
        }
    }

    fn sleep(&mut self) -> Result<Wake> {
        let now = Instant::now();
        if now.saturating_duration_since(self.checked) >= LIVENESS_PERIOD {
            self.checked = now;
            self.peer_gone = self.peer_gone || has_ended(&self.life);
        }
        let to_do = self.peer_gone
            || self.receiver.is_ready().map_err(broken)?
            || self.receiver.reader.is_closed()
            || (!self.outgoing.is_empty() && !self.writer.wait_for_room().map_err(broken)?);
        Ok(if to_do { Wake::Now } else { Wake::Notifier })
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.writer.close();
        self.receiver.reader.close();
        self.notifier.notify();
    }
}

/// Assembles messages from a ring.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) reader: Reader,
    limit_bytes: u64,
    pool: Arc<Pool>,
    incoming: Option<Incoming>,
}

impl Receiver {
    pub(super) fn new(ring: Ring, limit_bytes: u64) -> Self {
        Self { reader: Reader::new(ring), limit_bytes, pool: Arc::default(), incoming: None }
    }

    /// Whether no message has begun.
    fn is_between(&mut self) -> bool {
        self.incoming.is_none() && self.reader.available(1).is_ok_and(|bytes| bytes == 0)
    }

    /// Whether `pull` can make progress.
    fn is_ready(&mut self) -> io::Result<bool> {
        let wanted = if self.incoming.is_some() { 1 } else { PREFIX_BYTES };
        Ok(self.reader.available(wanted)? >= wanted)
    }

    /// The next message, if it is complete. `writer` is the notifier of the writing side.
    pub(super) fn pull(&mut self, writer: &Notifier) -> Result<Option<Message>> {
        if self.incoming.is_none() && !self.begin()? {
            self.release(0, writer);
            return Ok(None);
        }
        while let Some(incoming) = self.incoming.as_mut().filter(|i| !i.is_complete()) {
            let available = self.reader.available(1).map_err(broken)?;
            if available == 0 {
                self.release(0, writer);
                return Ok(None);
            }
            let space = incoming.space();
            let portion = space.len().min(available).min(PORTION_BYTES);
            self.reader.read(&mut space[..portion]);
            incoming.filled(portion);
            self.release(PORTION_BYTES, writer);
        }
        Ok(self.incoming.take().map(Message::from))
    }

    fn begin(&mut self) -> Result<bool> {
        if self.reader.available(PREFIX_BYTES).map_err(broken)? < PREFIX_BYTES {
            return Ok(false);
        }
        let mut prefix = [0; PREFIX_BYTES];
        self.reader.read(&mut prefix);
        self.incoming = Some(Incoming::begin(&prefix, self.limit_bytes, &self.pool)?);
        Ok(true)
    }

    /// Returns room to the writer, if it is at least `from` bytes.
    fn release(&mut self, from: usize, writer: &Notifier) {
        if self.reader.unreleased() >= from && self.reader.release() {
            writer.notify();
        }
    }
}

/// Reads a ring with arbitrary content and header: for fuzzing.
#[doc(hidden)]
pub fn read_any(bytes: &[u8]) {
    const LIMIT_BYTES: u64 = 1 << 20;
    let Ok((memory, _file)) = Memory::new(MIN_RING_BYTES) else { return };
    let notifier = Notifier::new().expect("a notifier");
    let mut writer = Writer::new(Ring::of(&memory, false));
    let mut receiver = Receiver::new(Ring::of(&memory, false), LIMIT_BYTES);
    let mut bytes = bytes;
    while let Some((&step, rest)) = bytes.split_first() {
        if step & 1 == 0 {
            // As a correct writer does.
            let Ok(room) = writer.room(usize::MAX) else { return };
            let (portion, rest) = rest.split_at(rest.len().min(room).min(usize::from(step)));
            writer.write(portion);
            writer.publish();
            bytes = rest;
        } else {
            let Some((value, rest)) = rest.split_first_chunk() else { return };
            Ring::of(&memory, false).scribble(step >> 1, u64::from_le_bytes(*value));
            bytes = rest;
        }
        loop {
            match receiver.pull(&notifier) {
                Ok(Some(message)) => assert!(message.body.len() as u64 <= LIMIT_BYTES),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn has_ended(life: &UnixStream) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one valid byte.
    let read = unsafe { libc::recv(life.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
    let waits = || matches!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
    read == 0 || (read < 0 && !waits())
}

fn broken(error: io::Error) -> Error {
    Error::Protocol(format!("the ring of a stream between two filters: {error}"))
}

fn lost(source: io::Error) -> Error {
    Error::Io { what: "the process at the other end of a stream between two filters has ended", cause: source }
}
