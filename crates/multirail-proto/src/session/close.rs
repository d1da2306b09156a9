//! How a session ends: this side's close, the peer's, and what the peer knows.

/// How the receiving half ends without a failure of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveEnd {
    /// The peer has closed its side, and all of its messages were received.
    Closed,
    /// The peer has ended the session.
    PeerGone,
}

/// How far both sides have come with closing.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// This side sends nothing more.
    pub(super) closing: bool,
    /// The peer has confirmed that it knows.
    pub(super) heard: bool,
    /// The peer sends nothing more: the serial number that its next message would have had.
    pub(super) peer_closed_at: Option<u32>,
    /// The peer has ended the session, and nothing was left to do in it.
    pub(super) peer_gone: bool,
}

impl Closing {
    /// Whether this side's close is complete, given that everything is confirmed: the peer knows
    /// that nothing more comes, or has closed and left.
    pub(super) fn is_complete(&self, has_left: bool) -> bool {
        self.heard || self.peer_gone || (self.peer_closed_at.is_some() && has_left)
    }

    /// Whether either side may end the session once everything is confirmed.
    pub(super) fn may_end(&self, next_message: u32) -> bool {
        self.closing || self.peer_closed_at == Some(next_message)
    }

    /// The receiver's end, if there is no message of this serial number and never will be.
    pub(super) fn receive_end(&self, next_message: u32) -> Option<ReceiveEnd> {
        if self.peer_closed_at == Some(next_message) {
            Some(ReceiveEnd::Closed)
        } else {
            self.peer_gone.then_some(ReceiveEnd::PeerGone)
        }
    }
}
