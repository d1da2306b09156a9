//! Between two processes of one host: a ring each way in memory that they share. Nobody makes a system call while both are awake.
//!
//! A message is its body's length, its head and its body; it goes through the ring in portions, so it may be longer than the ring, and
//! is copied out while it is still being copied in.

pub(super) mod meet;
mod ring;

use super::frame::{self, Incoming, PREFIX_BYTES};
use super::{Bell, Connection, Message, Pool, Transport, Wake};
use crate::error::{Error, Result};
use ring::{Memory, Reader, Ring, Writer};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of each direction. It fits a second-level cache beside the messages themselves.
const RING_BYTES: usize = 512 << 10;
/// The other side hears of a message, and of room, at least this often.
const PORTION_BYTES: usize = 16 << 10;
/// How often a side that waits looks whether the other one still lives.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One end.
#[derive(Debug)]
pub struct Shm {
    receiver: Receiver,
    writer: Writer,
    outgoing: VecDeque<Message>,
    /// What is in the ring of the first of them; `None`: not even its length.
    sent_bytes: Option<usize>,
    /// The peer's.
    bell: Arc<Bell>,
    /// Nothing is sent over it: it ends with the peer.
    life: UnixStream,
    looked: Instant,
    peer_gone: bool,
}

impl Shm {
    /// The two ends differ in which ring they write. `first` made the memory.
    fn new(memory: &Arc<Memory>, first: bool, bell: Arc<Bell>, life: UnixStream, limit_bytes: u64) -> io::Result<Self> {
        life.set_nonblocking(true)?;
        Ok(Self {
            receiver: Receiver::new(Ring::of(memory, first), limit_bytes),
            writer: Writer::new(Ring::of(memory, !first)),
            outgoing: VecDeque::new(),
            sent_bytes: None,
            bell,
            life,
            looked: Instant::now(),
            peer_gone: false,
        })
    }

    /// Tells the peer of what is in the ring.
    fn publish(&mut self) {
        if self.writer.unpublished() > 0 {
            self.writer.publish();
            self.bell.ring();
        }
    }

    /// Puts in what there is room for. True: that was all.
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

    /// What `pull` finds when nothing is there.
    fn end(&mut self) -> Result<Option<Message>> {
        let (closed, gone) = (self.receiver.reader.is_closed(), self.peer_gone);
        if !closed && !gone {
            return Ok(None);
        }
        // It may have come between the two looks.
        if let Some(message) = self.receiver.pull(&self.bell)? {
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
        match self.receiver.pull(&self.bell)? {
            None => self.end(),
            message => Ok(message),
        }
    }

    fn sleep(&mut self) -> Result<Wake> {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            self.peer_gone = self.peer_gone || has_ended(&self.life);
        }
        let to_do = self.peer_gone
            || self.receiver.is_ready().map_err(broken)?
            || self.receiver.reader.is_closed()
            || (!self.outgoing.is_empty() && !self.writer.wait_for_room().map_err(broken)?);
        Ok(if to_do { Wake::Now } else { Wake::Bell })
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.writer.close();
        self.receiver.reader.close();
        self.bell.ring();
    }
}

/// Makes messages of what comes through a ring.
#[derive(Debug)]
struct Receiver {
    reader: Reader,
    limit_bytes: u64,
    pool: Arc<Pool>,
    incoming: Option<Incoming>,
}

impl Receiver {
    fn new(ring: Ring, limit_bytes: u64) -> Self {
        Self { reader: Reader::new(ring), limit_bytes, pool: Arc::default(), incoming: None }
    }

    /// No message has begun.
    fn is_between(&mut self) -> bool {
        self.incoming.is_none() && self.reader.available(1).is_ok_and(|bytes| bytes == 0)
    }

    /// There is something that `pull` can go on with.
    fn is_ready(&mut self) -> io::Result<bool> {
        let wanted = if self.incoming.is_some() { 1 } else { PREFIX_BYTES };
        Ok(self.reader.available(wanted)? >= wanted)
    }

    /// The next message, if it is here.
    fn pull(&mut self, writers_bell: &Bell) -> Result<Option<Message>> {
        if self.incoming.is_none() && !self.begin()? {
            self.release(0, writers_bell);
            return Ok(None);
        }
        while let Some(incoming) = self.incoming.as_mut().filter(|i| !i.is_complete()) {
            let available = self.reader.available(1).map_err(broken)?;
            if available == 0 {
                self.release(0, writers_bell);
                return Ok(None);
            }
            let space = incoming.space();
            let portion = space.len().min(available).min(PORTION_BYTES);
            self.reader.read(&mut space[..portion]);
            incoming.filled(portion);
            self.release(PORTION_BYTES, writers_bell);
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

    /// Gives room back to the writer, if it is more than `from`.
    fn release(&mut self, from: usize, writers_bell: &Bell) {
        if self.reader.unreleased() >= from && self.reader.release() {
            writers_bell.ring();
        }
    }
}

/// Reads a ring whose header and content are whatever `bytes` make of them: for fuzzing.
#[doc(hidden)]
pub fn read_any(bytes: &[u8]) {
    const LIMIT_BYTES: u64 = 1 << 20;
    let Ok((memory, _file)) = Memory::new(ring::MIN_RING_BYTES) else { return };
    let bell = Bell::new().expect("a bell");
    let mut writer = Writer::new(Ring::of(&memory, false));
    let mut receiver = Receiver::new(Ring::of(&memory, false), LIMIT_BYTES);
    let mut bytes = bytes;
    while let Some((&step, rest)) = bytes.split_first() {
        if step & 1 == 0 {
            // As a writer would.
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
            match receiver.pull(&bell) {
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
    Error::Io { what: "the process at the other end of a stream between two filters is gone", source }
}

#[cfg(test)]
mod tests;
