//! Why a session ends early.

use super::limits::WINDOW_BYTES;
use crate::wire::WireError;
use std::time::Duration;

/// What has arrived early is kept up to this limit. The sender keeps to its window; the factor of
/// two leaves room for what it sends a second time.
pub(super) const MAX_EARLY_BYTES: u64 = 2 * WINDOW_BYTES;

/// The most separate pieces of one message that a receiver keeps track of, each about forty bytes.
/// A sender has a few thousand fragments under way at most.
pub(super) const MAX_PIECES: usize = 128 << 10;

/// How the peer broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame or a control packet could not be decoded.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A fragment without header arrived on a channel on which no *Start* came before it.
    #[error("a fragment without a Start before it")]
    NoStart,
    /// A fragment without header lies outside of its message.
    #[error("a fragment beyond the end of its message")]
    FragmentOutside,
    /// A run belongs to a message whose length is unknown.
    #[error("a run of message {message}, which was not announced")]
    NotAnnounced {
        /// Serial number of the message.
        message: u32,
    },
    /// A run ends after its message does.
    #[error("a run up to {end} of a message of {total_bytes} bytes")]
    RunOutside {
        /// Where the run ends.
        end: u64,
        /// The announced length of the message.
        total_bytes: u64,
    },
    /// A message was announced twice, with different lengths.
    #[error("message {message} is announced with two lengths")]
    TwoLengths {
        /// Serial number of the message.
        message: u32,
    },
    /// A message is too far ahead of the one that is due.
    #[error("message {message} while {due} is awaited")]
    TooFarAhead {
        /// Serial number of the message.
        message: u32,
        /// Serial number of the message that is due.
        due: u32,
    },
    /// The message that is due has arrived in too many separate pieces.
    #[error("message {message} in more than {MAX_PIECES} pieces at a time")]
    TooManyPieces {
        /// Serial number of the message.
        message: u32,
    },
    /// Too much has arrived of messages that are not due.
    #[error("more than {MAX_EARLY_BYTES} bytes of messages that are not yet due")]
    TooMuchEarly,
    /// A report confirms bytes that were never written to the channel.
    #[error("it confirms {position} bytes of a channel that carried {written}")]
    UnsentBytesConfirmed {
        /// The position that the report names.
        position: u64,
        /// Bytes written to the channel.
        written: u64,
    },
    /// A report confirms messages that were never sent.
    #[error("it confirms message {below}, and {sent} were sent")]
    UnsentMessageConfirmed {
        /// The serial number that the report names.
        below: u32,
        /// Messages that were begun.
        sent: u32,
    },
}

/// Why a session is over. Every later operation fails with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(Violation),
    /// The peer gave up, with this reason.
    #[error("the peer closed the session: {0}")]
    Aborted(String),
    /// No channel came up for the configured time.
    #[error("all rails to the peer have been down for {0:?}")]
    AllRailsLost(Duration),
    /// This side ended the session, with this reason for the peer.
    #[error("this side ended the session: {0}")]
    Ended(String),
    /// The local application dropped this operation in the middle of a message.
    #[error("a {0} was cancelled in the middle of a message")]
    Cancelled(&'static str),
}

impl Failure {
    /// The peer ended the session without giving a reason.
    pub fn peer_gone() -> Self {
        Failure::Aborted("it no longer knows the session".to_owned())
    }

    /// The peer has closed all connections without ending the session.
    pub fn peer_left() -> Self {
        Failure::Aborted("it has closed all connections".to_owned())
    }

    /// The peer's host answers, and refuses connections.
    pub fn peer_ended() -> Self {
        Failure::Aborted("its host is up and refuses connections, so that its program has ended".to_owned())
    }

    /// What the peer is told when the session fails; `None` if it knows or cannot be reached.
    pub(super) fn reason_for_peer(&self) -> Option<String> {
        match self {
            Failure::Protocol(violation) => Some(format!("this side broke the protocol: {violation}")),
            Failure::Cancelled(what) => Some(format!("a {what} of its was cancelled in the middle of a message")),
            Failure::Ended(reason) => Some(reason.clone()),
            Failure::Aborted(_) | Failure::AllRailsLost(_) => None,
        }
    }
}
