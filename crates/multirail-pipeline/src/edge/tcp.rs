//! Edges over one TCP connection. A message is its body's length, its header and its body.

use super::buffer::{Buffer, Pool};
use super::connection::{Connection, Message, Wake};
use super::frame::{self, Incoming, PREFIX_BYTES};
use multirail_net as net;
use multirail_net::error::{Error, Result};
use multirail_proto::pipeline::Transport;
use socket2::{SockRef, TcpKeepalive};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are read at once beyond the message that is expected.
const AHEAD_BYTES: usize = 16 << 10;

/// One end.
#[derive(Debug)]
pub(super) struct Tcp {
    stream: net::Connection,
    limit_bytes: u64,
    pool: Arc<Pool>,
    outgoing: VecDeque<Outgoing>,
    /// The bytes that were read ahead are `ahead[taken..]`.
    ahead: Vec<u8>,
    taken: usize,
    incoming: Option<Incoming>,
    ended: bool,
}

#[derive(Debug)]
struct Outgoing {
    prefix: [u8; PREFIX_BYTES],
    body: Buffer,
    sent_bytes: usize,
}

impl Tcp {
    /// An end of an authenticated connection. It accepts bodies of at most `limit_bytes`, and fails
    /// when the peer has been unreachable for `give_up_after`.
    pub(super) fn new(stream: net::Connection, limit_bytes: u64, give_up_after: Duration) -> Result<Self> {
        let socket = SockRef::from(stream.socket());
        // The kernel asks an idle peer twice within the time.
        let ask_every = (give_up_after / 3).max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new().with_time(ask_every).with_interval(ask_every).with_retries(2);
        let set_up = stream
            .socket()
            .set_nonblocking(true)
            .and_then(|()| socket.set_tcp_nodelay(true))
            .and_then(|()| socket.set_tcp_user_timeout(Some(give_up_after)))
            .and_then(|()| socket.set_tcp_keepalive(&keepalive));
        set_up.map_err(Error::io("setting up a stream's connection"))?;
        Ok(Self {
            stream,
            limit_bytes,
            pool: Arc::default(),
            outgoing: VecDeque::new(),
            ahead: Vec::with_capacity(AHEAD_BYTES),
            taken: 0,
            incoming: None,
            ended: false,
        })
    }

    /// Reads into `ahead` once. Returns false if nothing is there.
    fn read_ahead(&mut self) -> Result<bool> {
        self.ahead.drain(..self.taken);
        self.taken = 0;
        let kept = self.ahead.len();
        self.ahead.resize(AHEAD_BYTES.max(kept + PREFIX_BYTES), 0);
        let read = read(&mut self.stream, &mut self.ahead[kept..]);
        self.ahead.truncate(kept + read.as_ref().map_or(0, |r| r.unwrap_or(0)));
        match read? {
            None => Ok(false),
            Some(0) => {
                self.ended = true;
                Ok(false)
            }
            Some(_) => Ok(true),
        }
    }

    /// What `pull` returns at the end of the connection.
    fn end(&self) -> Result<Option<Message>> {
        match (self.ended, self.incoming.is_some() || self.taken < self.ahead.len()) {
            (false, _) => Ok(None),
            (true, false) => Err(Error::Closed),
            (true, true) => Err(lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn begin(&mut self) -> Result<bool> {
        while self.ahead.len() - self.taken < PREFIX_BYTES {
            if self.ended || !self.read_ahead()? {
                return Ok(false);
            }
        }
        let prefix = self.ahead[self.taken..].first_chunk().expect("as many as were waited for");
        let mut incoming = Incoming::begin(prefix, self.limit_bytes, &self.pool)?;
        self.taken += PREFIX_BYTES;
        let space = incoming.space();
        let here = space.len().min(self.ahead.len() - self.taken);
        space[..here].copy_from_slice(&self.ahead[self.taken..self.taken + here]);
        self.taken += here;
        incoming.filled(here);
        self.incoming = Some(incoming);
        Ok(true)
    }
}

impl Connection for Tcp {
    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn push(&mut self, message: Message) {
        let prefix = frame::prefix(&message.head, &message.body);
        self.outgoing.push_back(Outgoing { prefix, body: message.body, sent_bytes: 0 });
    }

    fn flush(&mut self) -> Result<bool> {
        while let Some(first) = self.outgoing.front_mut() {
            let of_prefix = first.sent_bytes.min(PREFIX_BYTES);
            let rest =
                [IoSlice::new(&first.prefix[of_prefix..]), IoSlice::new(&first.body[first.sent_bytes - of_prefix..])];
            match self.stream.write_vectored(&rest) {
                Ok(sent) => first.sent_bytes += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
            if first.sent_bytes == PREFIX_BYTES + first.body.len() {
                self.outgoing.pop_front();
            }
        }
        Ok(true)
    }

    fn pull(&mut self) -> Result<Option<Message>> {
        if self.incoming.is_none() && !self.begin()? {
            return self.end();
        }
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        while !incoming.is_complete() {
            match read(&mut self.stream, incoming.space())? {
                None => return Ok(None),
                Some(0) => {
                    self.ended = true;
                    return self.end();
                }
                Some(read) => incoming.filled(read),
            }
        }
        Ok(self.incoming.take().map(Message::from))
    }

    fn sleep(&mut self) -> Result<Wake> {
        if self.ahead.len() - self.taken >= PREFIX_BYTES && self.incoming.is_none() {
            return Ok(Wake::Now);
        }
        if self.stream.is_readable() {
            return Ok(Wake::Now);
        }
        Ok(Wake::Fd { fd: self.stream.socket().as_raw_fd(), writable: !self.outgoing.is_empty() })
    }
}

/// Reads once. Returns `None` if nothing is there yet.
fn read(stream: &mut net::Connection, into: &mut [u8]) -> Result<Option<usize>> {
    loop {
        match stream.read(into) {
            Ok(read) => return Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(lost(error)),
        }
    }
}

fn lost(source: io::Error) -> Error {
    Error::Io { what: "the connection of a stream between two filters was lost", cause: source }
}
