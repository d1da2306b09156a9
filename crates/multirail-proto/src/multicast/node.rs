//! The interface of a node: its inputs and outputs.

use super::members::{MemberId, Members};
use super::message::Message;
use super::pieces::PieceSet;
use std::sync::Arc;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The first input, given once: the group begins on this host.
    Start,
    /// A session with this peer is up, whichever host asked for it.
    Up(MemberId),
    /// The session with this peer has ended, or could not be made. Everything queued for the peer
    /// is lost. The peer may come `Up` again, with or without the pieces that it held.
    Down(MemberId),
    /// A control message from a peer that is up. All piece numbers in it are valid.
    Message(MemberId, Message),
    /// A piece was verified and stored. A piece that arrives twice is reported twice.
    Stored {
        /// The sender; the host itself for a piece found on disk.
        from: MemberId,
        /// The piece.
        piece: u32,
    },
    /// The bytes that a peer sent do not have the hash of the piece. The driver then ends the
    /// session.
    Bad {
        /// The sender.
        from: MemberId,
        /// The piece.
        piece: u32,
    },
    /// The last byte of a piece went to a peer's session.
    Sent {
        /// The receiver.
        to: MemberId,
        /// The piece.
        piece: u32,
    },
    /// The same hosts are in other clusters than was thought. Only `adaptive` changes its clusters.
    Regroup(Arc<Members>),
    /// The time of [`Node::wake_at_us`] has come. An early wake is harmless.
    Wake,
}

/// An action for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Make a session with this host unless one exists. Answered by `Up` or `Down`.
    Connect(MemberId),
    /// Send a message, before any piece that is still queued.
    Send(MemberId, Message),
    /// Queue a piece.
    SendPiece(MemberId, u32),
    /// Remove a piece from the peer's queue unless its first byte was sent.
    Withdraw(MemberId, u32),
    /// The final synchronization of the method is over: all hosts that are not down hold every
    /// piece.
    Finished,
}

/// One host's part in a broadcast.
pub trait Node: std::fmt::Debug + Send {
    /// Handles an event at `now_us`, in microseconds since any fixed point. Time never goes back.
    fn handle(&mut self, now_us: u64, input: Input);
    /// The next action. `None`: no action until the next input.
    fn poll(&mut self) -> Option<Output>;
    /// When to give [`Input::Wake`].
    fn wake_at_us(&self) -> Option<u64>;
    /// The pieces that this host holds.
    fn held(&self) -> &PieceSet;
}
