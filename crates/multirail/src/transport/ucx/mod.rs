//! UCX: InfiniBand or RoCE where there is some, else shared memory or TCP, as UCX finds it. Environment variables of UCX (`UCX_TLS`,
//! `UCX_NET_DEVICES`) choose among them.
//!
//! A message is one tagged message of length, head and a short body; a longer body follows as a second one, into the memory where it
//! stays. The connection of the greeting stays open, and tells each side that the other one lives. Between two processes of one machine
//! nothing else does: UCX's shared memory cannot, and is only chosen where UCX is not asked to.

mod api;

use super::frame::{self, PREFIX_BYTES};
use super::{Buffer, Connection, HEAD_BYTES, Message, Pool, Transport, Wake};
use crate::error::{Error, Result};
use api::{Request, State, Worker};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bodies up to this travel with their length.
const SHORT_BYTES: usize = 8 << 10;
/// A length that says: this was the last.
const LAST: u64 = u64::MAX;
const FIRST_TAG: u64 = 1;
const BODY_TAG: u64 = 2;
/// The most that is given to UCX at once; the rest waits here.
const MAX_UNDER_WAY: usize = 64;
/// How often a side that waits looks whether the other one still lives.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it looks for what comes before it says what to sleep by, if that was not in vain the last time: sleeping costs more.
const SPIN: Duration = Duration::from_micros(50);
/// After so many times in vain it is tried only every so many times.
const MAX_VAIN: u32 = 2;
const TRY_EVERY: u32 = 8;
/// How long closing waits for the last messages to leave.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// One end.
#[derive(Debug)]
pub struct Ucx {
    worker: Worker,
    life: TcpStream,
    limit_bytes: u64,
    pool: Arc<Pool>,
    outgoing: VecDeque<Message>,
    /// In the order in which they were given to UCX; the bytes belong to it until their request has ended.
    under_way: VecDeque<(Option<Request>, Vec<u8>, Buffer)>,
    incoming: Incoming,
    /// What the next message's first part goes to, for as long as this lives.
    first: Box<[u8]>,
    looked: Instant,
    peer_gone: bool,
    vain: u32,
}

#[derive(Debug)]
enum Incoming {
    /// Nothing is asked for: at the beginning and at the end.
    Nothing,
    First(Request),
    Body([u8; HEAD_BYTES], Buffer, Request),
    Ready(Message),
    /// The peer has sent its last.
    Last,
}

/// A side that has told its address and does not know the other's.
#[derive(Debug)]
pub(super) struct Opened(Worker);

impl Opened {
    pub(super) fn new() -> io::Result<Self> {
        Worker::open().map(Self)
    }

    pub(super) fn address(&self) -> &[u8] {
        &self.0.address
    }

    /// With the address that a proven peer has told over `life`. Both sides say the same of `one_machine`.
    pub(super) fn connect(
        mut self,
        address: &[u8],
        one_machine: bool,
        life: TcpStream,
        limit_bytes: u64,
    ) -> io::Result<Ucx> {
        self.0.connect(address, !one_machine)?;
        life.set_nonblocking(true)?;
        let mut made = Ucx {
            worker: self.0,
            life,
            limit_bytes,
            pool: Arc::default(),
            outgoing: VecDeque::new(),
            under_way: VecDeque::new(),
            incoming: Incoming::Nothing,
            first: vec![0; PREFIX_BYTES + SHORT_BYTES].into(),
            looked: Instant::now(),
            peer_gone: false,
            vain: 0,
        };
        made.ask().map_err(io::Error::other)?;
        Ok(made)
    }
}

impl Ucx {
    /// Posts the receive for the next message's first part.
    fn ask(&mut self) -> Result<()> {
        // SAFETY: `first` is boxed, and nobody touches it until the request has ended; `drop` cancels it.
        match unsafe { self.worker.receive(&mut self.first, FIRST_TAG) }.map_err(lost)? {
            State::GoesOn(request) => self.incoming = Incoming::First(request),
            State::Done(got) => self.begun(got)?,
        }
        Ok(())
    }

    /// A first part is here.
    fn begun(&mut self, got: usize) -> Result<()> {
        self.incoming = Incoming::Nothing;
        let Some((prefix, body)) = self.first[..got].split_first_chunk() else {
            return Err(Error::Protocol(format!("a message of {got} bytes has no head")));
        };
        if prefix.starts_with(&LAST.to_le_bytes()) {
            self.incoming = Incoming::Last;
            return Ok(());
        }
        let (length, head) = frame::read(prefix, self.limit_bytes)?;
        let mut into = self.pool.sized(length);
        if into.len() <= SHORT_BYTES {
            if body.len() != into.len() {
                return Err(Error::Protocol(format!("{} bytes for a buffer of {length}", body.len())));
            }
            into.copy_from_slice(body);
            self.incoming = Incoming::Ready(Message { head, body: into });
            return Ok(());
        }
        // SAFETY: the buffer's memory stays where it is, and is kept beside the request.
        self.incoming = match unsafe { self.worker.receive(&mut into, BODY_TAG) }.map_err(lost)? {
            State::GoesOn(request) => Incoming::Body(head, into, request),
            State::Done(got) => ready(head, into, got)?,
        };
        Ok(())
    }

    /// Goes on with what is asked for, as far as it has come.
    fn advance(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::First(request) => match self.worker.received(request).map_err(lost)? {
                State::GoesOn(request) => self.incoming = Incoming::First(request),
                State::Done(got) => self.begun(got)?,
            },
            Incoming::Body(head, body, request) => {
                self.incoming = match self.worker.received(request).map_err(lost)? {
                    State::GoesOn(request) => Incoming::Body(head, body, request),
                    State::Done(got) => ready(head, body, got)?,
                }
            }
            other => self.incoming = other,
        }
        Ok(())
    }

    fn give(&mut self, message: Message) -> Result<()> {
        let long = message.body.len() > SHORT_BYTES;
        let mut first = Vec::with_capacity(PREFIX_BYTES + if long { 0 } else { message.body.len() });
        first.extend_from_slice(&frame::prefix(&message.head, &message.body));
        if !long {
            first.extend_from_slice(&message.body);
        }
        self.start(first, Buffer::default(), FIRST_TAG)?;
        if long { self.start(Vec::new(), message.body, BODY_TAG) } else { Ok(()) }
    }

    /// One of the two is empty.
    fn start(&mut self, first: Vec<u8>, body: Buffer, tag: u64) -> Result<()> {
        let bytes = if first.is_empty() { &body[..] } else { &first[..] };
        // SAFETY: both are kept in `under_way` until the request has ended, and their memory does not move with them.
        let request = match unsafe { self.worker.send(bytes, tag) }.map_err(lost)? {
            State::GoesOn(request) => Some(request),
            State::Done(_) => None,
        };
        self.under_way.push_back((request, first, body));
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        matches!(self.incoming, Incoming::First(_) | Incoming::Body(..))
    }

    /// Forgets what has left.
    fn settle(&mut self) -> Result<()> {
        while let Some((request, _, _)) = self.under_way.front_mut() {
            if let Some(going) = request.take()
                && let State::GoesOn(still) = self.worker.sent(going).map_err(lost)?
            {
                *request = Some(still);
                break;
            }
            self.under_way.pop_front();
        }
        Ok(())
    }

    /// Looks for a while; true if something has happened.
    fn spin(&mut self) -> bool {
        if self.vain > MAX_VAIN && !self.vain.is_multiple_of(TRY_EVERY) {
            self.vain = self.vain.wrapping_add(1);
            return self.worker.progress();
        }
        let end = Instant::now() + SPIN;
        loop {
            for _ in 0..16 {
                if self.worker.progress() {
                    self.vain = 0;
                    return true;
                }
            }
            if Instant::now() >= end {
                self.vain = self.vain.wrapping_add(1);
                return false;
            }
            std::thread::yield_now();
        }
    }
}

impl Connection for Ucx {
    fn transport(&self) -> Transport {
        Transport::Ucx
    }

    fn push(&mut self, message: Message) {
        self.outgoing.push_back(message);
    }

    fn flush(&mut self) -> Result<bool> {
        if self.outgoing.is_empty() && self.under_way.is_empty() {
            return Ok(true);
        }
        self.worker.check().map_err(lost)?;
        loop {
            self.settle()?;
            if self.under_way.len() >= MAX_UNDER_WAY {
                break;
            }
            let Some(message) = self.outgoing.pop_front() else { break };
            self.give(message)?;
        }
        self.worker.progress();
        self.settle()?;
        let all = self.outgoing.is_empty() && self.under_way.is_empty();
        if !all && self.peer_gone {
            return Err(lost(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(all)
    }

    fn pull(&mut self) -> Result<Option<Message>> {
        self.advance()?;
        while self.is_waiting() {
            let progress = self.worker.progress();
            self.advance()?;
            // All that a peer has sent before it went is here already.
            if !(self.peer_gone && progress) {
                break;
            }
        }
        match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::Ready(message) => {
                self.ask()?;
                Ok(Some(message))
            }
            Incoming::Last => {
                self.incoming = Incoming::Last;
                Err(Error::Closed)
            }
            other => {
                self.incoming = other;
                self.worker.check().map_err(lost)?;
                if self.peer_gone { Err(lost(io::ErrorKind::UnexpectedEof.into())) } else { Ok(None) }
            }
        }
    }

    fn sleep(&mut self) -> Result<Wake> {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            self.peer_gone = self.peer_gone || has_ended(&self.life);
        }
        self.advance()?;
        let ready = matches!(self.incoming, Incoming::Ready(_) | Incoming::Last | Incoming::Nothing);
        if ready || self.peer_gone || self.worker.check().is_err() || self.spin() || !self.worker.arm() {
            return Ok(Wake::Now);
        }
        Ok(Wake::Fd { fd: self.worker.event_fd, writable: false })
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        let mut last = LAST.to_le_bytes().to_vec();
        last.resize(PREFIX_BYTES, 0);
        let end = Instant::now() + CLOSE_PATIENCE;
        let mut told = self.peer_gone || self.start(last, Buffer::default(), FIRST_TAG).is_err();
        while !told && Instant::now() < end {
            self.worker.progress();
            told = self.settle().is_err()
                || self.under_way.is_empty()
                || self.worker.check().is_err()
                || has_ended(&self.life);
        }
        // Nothing may be written to, or read from, memory that is about to go.
        let (request, body) = match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::First(request) => (Some(request), Buffer::default()),
            Incoming::Body(_, body, request) => (Some(request), body),
            _ => (None, Buffer::default()),
        };
        if request.is_some_and(|request| !self.worker.cancel(request)) {
            std::mem::forget((body, std::mem::take(&mut self.first)));
        }
        // What does not leave within a second is cut off with the endpoint, in the worker's drop; its memory must outlive that.
        std::mem::forget(std::mem::take(&mut self.under_way));
    }
}

fn ready(head: [u8; HEAD_BYTES], body: Buffer, got: usize) -> Result<Incoming> {
    if got != body.len() {
        return Err(Error::Protocol(format!("{got} bytes for a buffer of {}", body.len())));
    }
    Ok(Incoming::Ready(Message { head, body }))
}

fn has_ended(life: &TcpStream) -> bool {
    match life.peek(&mut [0]) {
        Ok(got) => got == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

fn lost(source: io::Error) -> Error {
    Error::Io { what: "the connection of a stream between two filters was lost", source }
}
