//! What goes into a [`CopyProtocol`](super::CopyProtocol), and what comes out of it.

use crate::pipeline::Schedule;
use crate::pipeline::header::{EdgeMessage, Header};

/// An edge from a copy of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputConfig {
    /// The input stream of the filter, from 0.
    pub stream: usize,
    /// The producer's copy.
    pub producer_copy: usize,
    /// The stream's window in buffers.
    pub window: u32,
    /// If the producer's copy dies, other copies of it replay its buffers and send queries.
    pub replaceable: bool,
    /// The producer keeps buffers until they are reported as done.
    pub kept_by_producer: bool,
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputConfig {
    /// How buffers are distributed over the consumer's copies.
    pub schedule: Schedule,
    /// The stream's window in buffers.
    pub window: u32,
    /// Number of copies of the consumer.
    pub consumers: usize,
    /// Buffers are kept until they are done, and replayed if the consumer's copy dies.
    pub keep: bool,
}

/// An edge, seen from one of its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EdgeEnd {
    /// The input of this number.
    Input(usize),
    /// The edge to one copy of a consumer.
    Output {
        /// The output stream, from 0.
        stream: usize,
        /// The consumer's copy.
        copy: usize,
    },
}

/// What the owner of the state machine has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<B> {
    /// Send a message.
    Send {
        /// By this edge.
        edge: EdgeEnd,
        /// With this header.
        header: Header,
        /// And this body; `None` means an empty one.
        body: Option<B>,
    },
    /// Close an edge. Nothing more is read from it, and the peer finds it closed.
    Close(EdgeEnd),
}

/// A buffer for the filter.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivery<B> {
    /// The input stream.
    pub stream: usize,
    /// The writing filter's tag.
    pub tag: u64,
    /// The bytes.
    pub body: B,
}

/// What a message from a producer was.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<B> {
    /// The filter's next buffer. It counts as started.
    Buffer(Delivery<B>),
    /// The producer has ended this unit of work.
    End,
    /// The producer has ended this unit of work because it failed.
    Aborted,
    /// A message that is not for the filter.
    Control,
}

/// Why a copy cannot finish its unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyError {
    /// A copy is lost whose work no other copy can do.
    PeerLost(EdgeEnd),
    /// A dead copy had sent some of the outputs that it made of a buffer, but not all of them.
    PartialReplay,
}

/// A message that a correct peer does not send. Its edge counts as lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message of the wrong direction, or more queries than there can be.
    #[error("{message:?} is not expected from a {from}")]
    Unexpected {
        /// What was received.
        message: EdgeMessage,
        /// Producer or consumer.
        from: &'static str,
    },
    /// A message of another unit of work.
    #[error("a buffer of unit {received} in unit {current}")]
    WrongUnit {
        /// The message's unit.
        received: u32,
        /// The copy's unit.
        current: u32,
    },
    /// A producer has sent beyond its window.
    #[error("more buffers than the window of {window} allows")]
    WindowExceeded {
        /// The stream's window.
        window: u32,
    },
}
