//! Edges over UCX: InfiniBand or RoCE where available, else shared memory or TCP, as UCX chooses.
//! The environment variables of UCX (`UCX_TLS`, `UCX_NET_DEVICES`) select among them.
//!
//! A message is one tagged message of length, header and a short body. A longer body follows as a
//! second message, straight into its final memory. The connection of the greeting stays open, so
//! that each side notices when the other one ends. Between two processes of one machine this is the
//! only sign: UCX's shared memory cannot detect it, and UCX only chooses it where it is not asked
//! to.

mod api;

use super::buffer::{Buffer, Pool};
use super::connection::{Connection, HEADER_BYTES, Message, Wake};
use super::frame::{self, PREFIX_BYTES};
use api::{Request, RequestState, Worker};
use multirail_net::error::{Error, Result};
use multirail_proto::pipeline::Transport;
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest body that is part of the first message.
const SHORT_BYTES: usize = 8 << 10;
/// A length that marks the last message.
const LAST: u64 = u64::MAX;
/// The UCX tag of first messages.
const FIRST_TAG: u64 = 1;
/// The UCX tag of bodies.
const BODY_TAG: u64 = 2;
/// Most operations that UCX has at once.
const MAX_UNDER_WAY: usize = 64;
/// How often a waiting end checks whether the peer is alive.
const LIVENESS_PERIOD: Duration = Duration::from_millis(100);
/// How long an end polls before its owner sleeps, if polling was of use recently.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// After this many useless spins in a row, an end spins only now and then.
const MAX_USELESS_SPINS: u32 = 2;
/// An end that spins only now and then does so once in this many waits.
const SPIN_EVERY: u32 = 8;
/// How long closing waits until the last messages have left.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// One end.
#[derive(Debug)]
pub(super) struct Ucx {
    worker: Worker,
    life: TcpStream,
    limit_bytes: u64,
    pool: Arc<Pool>,
    outgoing: VecDeque<Message>,
    /// In the order in which UCX got them. The bytes belong to UCX until their request has ended.
    under_way: VecDeque<(Option<Request>, Vec<u8>, Buffer)>,
    incoming: Incoming,
    /// Where the next first message is received. UCX may write to it at any time.
    first: Box<[u8]>,
    checked: Instant,
    peer_gone: bool,
    useless_spins: u32,
}

#[derive(Debug)]
enum Incoming {
    /// No receive is posted: at the beginning and at the end.
    Nothing,
    First(Request),
    Body([u8; HEADER_BYTES], Buffer, Request),
    Ready(Message),
    /// The peer has sent its last message.
    Last,
}

/// An end that does not know the peer's address yet.
#[derive(Debug)]
pub(super) struct Opened(Worker);

impl Opened {
    pub(super) fn new() -> io::Result<Self> {
        Worker::open().map(Self)
    }

    pub(super) fn address(&self) -> &[u8] {
        &self.0.address
    }

    /// Connects to the address that an authenticated peer has sent over `life`. Both sides must
    /// agree on `one_machine`.
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
            checked: Instant::now(),
            peer_gone: false,
            useless_spins: 0,
        };
        made.ask().map_err(io::Error::other)?;
        Ok(made)
    }
}

impl Ucx {
    /// Posts the receive for the next first message.
    fn ask(&mut self) -> Result<()> {
        // SAFETY: `first` is boxed, and not accessed until the request has ended; `drop` cancels
        // it.
        match unsafe { self.worker.receive(&mut self.first, FIRST_TAG) }.map_err(lost)? {
            RequestState::GoesOn(request) => self.incoming = Incoming::First(request),
            RequestState::Done(got) => self.begun(got)?,
        }
        Ok(())
    }

    /// A first message has arrived.
    fn begun(&mut self, got: usize) -> Result<()> {
        self.incoming = Incoming::Nothing;
        let Some((prefix, body)) = self.first[..got].split_first_chunk() else {
            return Err(Error::Protocol(format!("a message of {got} bytes has no header")));
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
            RequestState::GoesOn(request) => Incoming::Body(head, into, request),
            RequestState::Done(got) => ready(head, into, got)?,
        };
        Ok(())
    }

    /// Continues with what has arrived.
    fn advance(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::First(request) => match self.worker.received(request).map_err(lost)? {
                RequestState::GoesOn(request) => self.incoming = Incoming::First(request),
                RequestState::Done(got) => self.begun(got)?,
            },
            Incoming::Body(head, body, request) => {
                self.incoming = match self.worker.received(request).map_err(lost)? {
                    RequestState::GoesOn(request) => Incoming::Body(head, body, request),
                    RequestState::Done(got) => ready(head, body, got)?,
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

    /// Starts to send one of the two; the other must be empty.
    fn start(&mut self, first: Vec<u8>, body: Buffer, tag: u64) -> Result<()> {
        let bytes = if first.is_empty() { &body[..] } else { &first[..] };
        // SAFETY: both are kept in `under_way` until the request has ended, and their memory does
        // not move with them.
        let request = match unsafe { self.worker.send(bytes, tag) }.map_err(lost)? {
            RequestState::GoesOn(request) => Some(request),
            RequestState::Done(_) => None,
        };
        self.under_way.push_back((request, first, body));
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        matches!(self.incoming, Incoming::First(_) | Incoming::Body(..))
    }

    /// Removes operations that have ended.
    fn settle(&mut self) -> Result<()> {
        while let Some((request, _, _)) = self.under_way.front_mut() {
            if let Some(going) = request.take()
                && let RequestState::GoesOn(still) = self.worker.sent(going).map_err(lost)?
            {
                *request = Some(still);
                break;
            }
            self.under_way.pop_front();
        }
        Ok(())
    }

    /// Polls for a while. Returns whether something has happened.
    fn spin(&mut self) -> bool {
        if self.useless_spins > MAX_USELESS_SPINS && !self.useless_spins.is_multiple_of(SPIN_EVERY) {
            self.useless_spins = self.useless_spins.wrapping_add(1);
            return self.worker.progress();
        }
        let end = Instant::now() + SPIN_TIME;
        loop {
            for _ in 0..16 {
                if self.worker.progress() {
                    self.useless_spins = 0;
                    return true;
                }
            }
            if Instant::now() >= end {
                self.useless_spins = self.useless_spins.wrapping_add(1);
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
            // Everything that a peer sent before it ended is here already.
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
        if now.saturating_duration_since(self.checked) >= LIVENESS_PERIOD {
            self.checked = now;
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
        let end = Instant::now() + CLOSE_TIMEOUT;
        let mut told = self.peer_gone || self.start(last, Buffer::default(), FIRST_TAG).is_err();
        while !told && Instant::now() < end {
            self.worker.progress();
            told = self.settle().is_err()
                || self.under_way.is_empty()
                || self.worker.check().is_err()
                || has_ended(&self.life);
        }
        // UCX must not access memory that is about to be freed.
        let (request, body) = match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::First(request) => (Some(request), Buffer::default()),
            Incoming::Body(_, body, request) => (Some(request), body),
            _ => (None, Buffer::default()),
        };
        if request.is_some_and(|request| !self.worker.cancel(request)) {
            std::mem::forget((body, std::mem::take(&mut self.first)));
        }
        // What has not left in time is cancelled when the worker is dropped, which its memory must
        // outlive.
        std::mem::forget(std::mem::take(&mut self.under_way));
    }
}

fn ready(head: [u8; HEADER_BYTES], body: Buffer, got: usize) -> Result<Incoming> {
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
    Error::Io { what: "the connection of a stream between two filters was lost", cause: source }
}
