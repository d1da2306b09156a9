//! What drives a node, and what a node has done.

use super::members::MemberId;
use super::message::Message;
use super::pieces::PieceSet;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The group begins here: the first input, once.
    Start,
    /// There is a session with this peer now, whoever asked for it.
    Up(MemberId),
    /// There is none any more, or it could not be made. What was queued for the peer is gone. A host that is `Down` may come back
    /// `Up`; it may have lost or kept what it had.
    Down(MemberId),
    /// A control message from a peer that is up. Its pieces exist.
    Message(MemberId, Message),
    /// A piece came from a peer (or was found on disk: then from the host itself), was verified and stored. A piece that comes
    /// twice is told twice.
    Stored {
        /// Who sent it.
        from: MemberId,
        /// Which.
        piece: u32,
    },
    /// What a peer sent for a piece is not that piece. The driver closes the session after that.
    Bad {
        /// Who sent it.
        from: MemberId,
        /// Which.
        piece: u32,
    },
    /// The last byte of a piece went to a peer's session.
    Sent {
        /// Whom it went to.
        to: MemberId,
        /// Which.
        piece: u32,
    },
    /// The time that [`Node::wake_at_us`] told has come. One that comes early does no harm.
    Wake,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Make a session with this host, unless there is one. Answered by `Up` or `Down`.
    Connect(MemberId),
    /// Send this, before any piece that is still queued.
    Send(MemberId, Message),
    /// Queue this piece.
    SendPiece(MemberId, u32),
    /// Take this piece out of the peer's queue, if it has not begun.
    Withdraw(MemberId, u32),
    /// The method's own final synchronization is over: everyone (who is not down) has everything.
    Finished,
}

/// One host's part in a group.
pub trait Node: std::fmt::Debug + Send {
    /// Takes in what happened at `now_us` (microseconds since any fixed point; it never goes back).
    fn handle(&mut self, now_us: u64, input: Input);
    /// The next thing to do; `None`: nothing until the next input.
    fn poll(&mut self) -> Option<Output>;
    /// When [`Input::Wake`] is wanted.
    fn wake_at_us(&self) -> Option<u64>;
    /// What this host has.
    fn held(&self) -> &PieceSet;
}
