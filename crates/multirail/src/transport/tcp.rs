//! One TCP connection: a message is its body's length, its head and its body.

use super::frame::{self, Incoming, PREFIX_BYTES};
use super::{Buffer, Connection, Message, Pool, Transport, Wake};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Read at once, beyond what is known to come: small messages and what follows them.
const AHEAD_BYTES: usize = 16 << 10;

/// One end.
#[derive(Debug)]
pub struct Tcp {
    stream: TcpStream,
    limit_bytes: u64,
    pool: Arc<Pool>,
    outgoing: VecDeque<Outgoing>,
    /// Bytes read ahead: `ahead[taken..]`.
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
    /// Of a connection whose peer has proven itself; it accepts bodies of at most `limit_bytes`.
    pub fn new(stream: TcpStream, limit_bytes: u64) -> Result<Self> {
        let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
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

    /// Fills `ahead` once. False: nothing there.
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

    /// What `pull` finds at the end of the connection.
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
        Ok(Wake::Fd { fd: self.stream.as_raw_fd(), writable: !self.outgoing.is_empty() })
    }
}

/// `None`: nothing there yet.
fn read(stream: &mut TcpStream, into: &mut [u8]) -> Result<Option<usize>> {
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
    Error::Io { what: "the connection of a stream between two filters was lost", source }
}
