//! One TCP connection: a message is its body's length, its head and its body.

use super::{Buffer, Connection, HEAD_BYTES, Message, Pool, Transport, Wake};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Length, head.
const PREFIX_BYTES: usize = 8 + HEAD_BYTES;
/// Bytes are asked for in such portions, so that nothing is allocated for a length that only claims to be one.
const STEP_BYTES: usize = 1 << 20;
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

#[derive(Debug)]
struct Incoming {
    head: [u8; HEAD_BYTES],
    /// As long as it will be, or as much as it is worth to allocate by now.
    body: Buffer,
    total_bytes: usize,
    got_bytes: usize,
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
        let (prefix, _) = self.ahead[self.taken..].split_at(PREFIX_BYTES);
        let (length, head) = prefix.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
        if length > self.limit_bytes {
            return Err(Error::Protocol(format!("a buffer of {length} bytes, the limit is {}", self.limit_bytes)));
        }
        let head = head.try_into().expect("the head");
        self.taken += PREFIX_BYTES;
        let total_bytes = length as usize;
        let mut body = self.pool.sized(total_bytes.min(STEP_BYTES));
        let got_bytes = total_bytes.min(self.ahead.len() - self.taken);
        body[..got_bytes].copy_from_slice(&self.ahead[self.taken..self.taken + got_bytes]);
        self.taken += got_bytes;
        self.incoming = Some(Incoming { head, body, total_bytes, got_bytes });
        Ok(true)
    }
}

impl Connection for Tcp {
    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn push(&mut self, message: Message) {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..8].copy_from_slice(&(message.body.len() as u64).to_le_bytes());
        prefix[8..].copy_from_slice(&message.head);
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
        while incoming.got_bytes < incoming.total_bytes {
            if incoming.got_bytes == incoming.body.len() {
                // Never more than twice what has come.
                let bytes = incoming.total_bytes.min(2 * incoming.got_bytes);
                incoming.body.resize(bytes, 0);
            }
            match read(&mut self.stream, &mut incoming.body[incoming.got_bytes..])? {
                None => return Ok(None),
                Some(0) => {
                    self.ended = true;
                    return self.end();
                }
                Some(read) => incoming.got_bytes += read,
            }
        }
        Ok(self.incoming.take().map(|i| Message { head: i.head, body: i.body }))
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
