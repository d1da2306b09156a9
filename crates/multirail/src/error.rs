//! What can go wrong, whose doing it was, and what to do about it.

use multirail_proto::wire::WireError;
use std::io;
use std::time::Duration;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a session, or an operation on it, failed. Text is lower case; the first half says who caused it, the second what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host could not be reached at all.
    #[error("cannot reach {host}: {source}; is `multirail serve` running there, and is the port open?")]
    Unreachable {
        /// Host and port as given.
        host: String,
        /// What the system said.
        source: io::Error,
    },
    /// The peer's bytes are not multirail's.
    #[error("the peer at {peer} does not speak multirail ({what}); check host and port")]
    NotMultirail {
        /// Address of the peer.
        peer: String,
        /// What gave it away.
        what: String,
    },
    /// The peer speaks another version.
    #[error("this side speaks protocol version {ours}, the peer {theirs}; update the older one")]
    Version {
        /// Our version.
        ours: u16,
        /// The peer's version.
        theirs: u16,
    },
    /// The server needs a token and we sent none.
    #[error("the server wants a token; give the one it was started with (--token-file)")]
    TokenMissing,
    /// One side's token is not the other's.
    #[error("the two sides' tokens differ; both must be given the same file (--token-file)")]
    TokenWrong,
    /// The server knows no such session (any more).
    #[error("the server has ended this session; connect again")]
    SessionUnknown,
    /// The handshake did not finish in time.
    #[error("the peer at {peer} did not finish the handshake within {after:?}; is it overloaded, or another program?")]
    HandshakeTimeout {
        /// Address of the peer.
        peer: String,
        /// How long it had.
        after: Duration,
    },
    /// The server would listen beyond this machine with no token.
    #[error(
        "refusing to serve {address} without a token: anyone who reaches it could read and write; give --token-file, listen on 127.0.0.1, or say --insecure-no-token"
    )]
    OpenWithoutToken {
        /// Where it would have listened.
        address: std::net::SocketAddr,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}; the session is closed (please report it if both sides are multirail)")]
    Protocol(String),
    /// The peer gave up.
    #[error("the peer closed the session: {0}")]
    Aborted(String),
    /// All messages have been received and the peer will send no more; or this side has closed.
    #[error("the session is closed")]
    Closed,
    /// No rail came back for the configured time.
    #[error("all rails to the peer have been down for {0:?}; the session is closed")]
    AllRailsLost(Duration),
    /// The next message does not fit the caller's buffer. It is still there: receive it into a larger one.
    #[error(
        "the next message is {message_bytes} bytes long and the buffer {buffer_bytes}; receive it into a larger buffer"
    )]
    MessageTooLarge {
        /// Length of the message.
        message_bytes: u64,
        /// Length of the buffer.
        buffer_bytes: u64,
    },
    /// A future of this session was dropped in the middle of a message.
    #[error("a {0} was cancelled in the middle of a message, so the session cannot go on; connect again")]
    Cancelled(&'static str),
    /// Reading the source or writing the sink of a transfer failed, on this side.
    #[error("{0}")]
    Local(#[source] io::Error),
    /// Something else of this host.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: an I/O error and what was being done.
    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Error::Protocol(error.to_string())
    }
}
