//! Runs: contiguous bytes of a message that one channel claims together.

use std::ops::Range;

/// The next bytes of the message for a channel, and how they are announced on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The range in the message, in bytes. It is empty only for an empty message.
    pub range: Range<u64>,
    /// How the range is announced.
    pub framing: Framing,
}

/// How a run is announced on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A header with offset and length.
    Header,
    /// `two-ended`: the paper's *Start* message with this run's offset and the direction of the
    /// fragments that follow, then the fragment.
    Start(Direction),
    /// `two-ended`: the next fragment in the announced direction, after one marker byte without a
    /// sequence number.
    Continue,
}

/// The direction in which `two-ended` takes fragments: the paper's *counterMode* (Enhanced
/// MuniSocket, section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From left to right.
    Increment,
    /// From right to left.
    Decrement,
}

/// What a channel sends next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// This run. The choice is final: the run will be sent.
    Run(Run),
    /// Nothing now, since other channels finish sooner. The driver asks again when something has
    /// changed.
    Wait,
    /// Nothing more of this message, unless a range is given back.
    Done,
}
