//! The interface of everything that carries an edge.

use super::buffer::Buffer;
use multirail_net::error::Result;
use multirail_proto::pipeline::Transport;
pub use multirail_proto::pipeline::header::HEADER_BYTES;
use std::fmt;
use std::os::fd::RawFd;

/// Default limit of a message's body in bytes.
pub const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;

/// One message.
#[derive(Debug)]
pub struct Message {
    /// The header. Connections do not interpret it.
    pub head: [u8; HEADER_BYTES],
    /// The payload, which may be empty.
    pub body: Buffer,
}

/// What the sleeping owner of a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Nothing: there is something to do already.
    Now,
    /// The owner's [`Notifier`](super::Notifier), which the peer or a thread of this process
    /// notifies.
    Notifier,
    /// A descriptor that becomes readable, or writable as well.
    Fd {
        /// The descriptor to poll.
        fd: RawFd,
        /// A message waits to be sent, so the descriptor is also polled for writing.
        writable: bool,
    },
}

/// One end of an edge. No method blocks.
pub trait Connection: Send + fmt::Debug {
    /// What carries the edge.
    fn transport(&self) -> Transport;

    /// Queues a message. [`Connection::flush`] sends it.
    fn push(&mut self, message: Message);

    /// Sends what is queued, as far as there is room. Returns whether everything has left this
    /// process's hands.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn flush(&mut self) -> Result<bool>;

    /// The next message, if it has arrived.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](multirail_net::Error::Closed) once the peer has closed the connection and
    /// all of its messages are read; other errors if the connection is lost.
    fn pull(&mut self) -> Result<Option<Message>>;

    /// What to wait for until `pull` or `flush` may have something to do.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn sleep(&mut self) -> Result<Wake>;
}
