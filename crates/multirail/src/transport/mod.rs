//! What carries an edge of a pipeline: whole messages, in order, both ways, between two filter copies.
//!
//! A [`Connection`] never waits by itself: its owner looks at all that it has and then sleeps once, for all of them ([`wait`]). What it
//! runs on is its own business: [`memory`] within a process, [`shm`] between processes of one host, [`tcp`] and [`striped`]
//! between hosts.

pub mod bell;
pub mod buffer;
mod choice;
pub mod connect;
mod fabric;
mod frame;
pub mod memory;
pub mod shm;
pub mod striped;
pub mod tcp;
#[cfg(feature = "ucx")]
pub mod ucx;

use crate::error::{Error, Result};
pub use bell::Bell;
pub use buffer::{Buffer, Pool};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::RawFd;
use std::str::FromStr;
use std::time::Instant;

/// Bytes that travel beside a message's body, for its owner's use.
pub const HEAD_BYTES: usize = 40;
/// A body may have so many bytes where nothing else is said.
pub const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;

/// What carries an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A queue within a process.
    Memory,
    /// Rings in memory that two processes of one host share.
    Shm,
    /// One TCP connection.
    Tcp,
    /// A session: every rail between the two hosts.
    Striped,
    /// UCX: InfiniBand, RoCE, shared memory or TCP, whatever it finds. Needs the cargo feature `ucx`.
    Ucx,
}

/// One message.
#[derive(Debug)]
pub struct Message {
    /// The owner's own.
    pub head: [u8; HEAD_BYTES],
    /// The payload; it may be empty.
    pub body: Buffer,
}

/// What a sleeping owner of a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// There is something to do already.
    Now,
    /// The peer, or a thread of this process, rings the owner's [`Bell`].
    Bell,
    /// This descriptor can be read; or written, where `writable`.
    Fd {
        /// To poll.
        fd: RawFd,
        /// Something waits to be sent.
        writable: bool,
    },
}

/// One end of an edge.
pub trait Connection: Send + fmt::Debug {
    /// What it runs on.
    fn transport(&self) -> Transport;
    /// Queues a message. It goes with the next [`Connection::flush`].
    fn push(&mut self, message: Message);
    /// Sends what is queued, as far as there is room. True: nothing is left in this process's hands.
    fn flush(&mut self) -> Result<bool>;
    /// The next message, if it is here. [`Error::Closed`]: the peer has sent its last and closed.
    fn pull(&mut self) -> Result<Option<Message>>;
    /// What to wait for until `pull` or `flush` may have something to do.
    fn sleep(&mut self) -> Result<Wake>;
}

/// Sleeps until one of the connections may have something to do, the bell has rung since `seen` ([`Bell::seen`], taken before the
/// connections were looked at), or `until` has come.
pub fn wait<'a>(
    bell: &Bell,
    seen: u32,
    connections: impl Iterator<Item = &'a mut Box<dyn Connection>>,
    until: Option<Instant>,
) -> Result<()> {
    wait_also(bell, seen, connections, Vec::new(), until)
}

/// The next message, for who waits for nothing but one connection; what is queued is sent meanwhile. `None`: `until` has come.
pub fn next(bell: &Bell, connection: &mut Box<dyn Connection>, until: Option<Instant>) -> Result<Option<Message>> {
    loop {
        let seen = bell.seen();
        connection.flush()?;
        if let Some(message) = connection.pull()? {
            return Ok(Some(message));
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Ok(None);
        }
        wait(bell, seen, std::iter::once(&mut *connection), until)?;
    }
}

/// As [`wait`], and for other descriptors, too.
pub(crate) fn wait_also<'a>(
    bell: &Bell,
    seen: u32,
    connections: impl Iterator<Item = &'a mut Box<dyn Connection>>,
    mut fds: Vec<libc::pollfd>,
    until: Option<Instant>,
) -> Result<()> {
    for connection in connections {
        match connection.sleep()? {
            Wake::Now => return Ok(()),
            Wake::Bell => {}
            Wake::Fd { fd, writable } => {
                let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
                fds.push(libc::pollfd { fd, events, revents: 0 });
            }
        }
    }
    bell.wait(seen, &mut fds, until).map_err(Error::io("waiting for a filter's streams"))
}

impl Transport {
    /// All, by name.
    pub const ALL: [Transport; 5] =
        [Transport::Memory, Transport::Shm, Transport::Tcp, Transport::Striped, Transport::Ucx];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Memory => "memory",
            Transport::Shm => "shm",
            Transport::Tcp => "tcp",
            Transport::Striped => "striped",
            Transport::Ucx => "ucx",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|t| t.name() == text);
        found.ok_or_else(|| format!("no transport is called {text:?}; there are memory, shm, tcp, striped and ucx"))
    }
}
