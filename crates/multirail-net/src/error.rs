//! The errors of sessions, streams and requests.

use crate::secure::public_key::PublicKey;
use multirail_proto::wire::WireError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a session, or an operation on it, failed.
///
/// The text of an error says what failed, where, and the cause once, so
/// [`std::error::Error::source`] is `None`. It names no option of a command; hints belong to the
/// program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host could not be reached.
    #[error("cannot reach {host}: {cause}")]
    Unreachable {
        /// Host and port as the caller gave them.
        host: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The host answers, and no rail to it can be used.
    #[error("no rail to {host} can be used: {}{why}", rail.as_ref().map(|rail| format!("{rail}: ")).unwrap_or_default())]
    NoRail {
        /// Host and port as the caller gave them.
        host: String,
        /// The interface of this host, if the filter names one only, or if no other one was tried.
        rail: Option<String>,
        /// Why that one, or the first one, cannot be used.
        why: String,
    },
    /// The peer does not speak multirail's protocol.
    #[error("the peer at {peer} does not speak multirail: {what}")]
    NotMultirail {
        /// Address of the peer.
        peer: String,
        /// The evidence for it.
        what: String,
    },
    /// The peer speaks another version of the protocol.
    #[error("this side speaks protocol version {ours}, the peer {theirs}; update the older one")]
    Version {
        /// This side's version.
        ours: u16,
        /// The peer's version.
        theirs: u16,
    },
    /// The server does not know this side's key, and requires a token, which was not given.
    #[error("the server requires a token, and none was given; it does not know this side's key {key} either")]
    TokenMissing {
        /// This side's key.
        key: PublicKey,
    },
    /// The tokens of the two sides differ.
    #[error("the token differs from the token of the peer")]
    TokenWrong,
    /// The codes of two hosts that are to be paired differ. Somebody may be in between.
    #[error("the code is wrong, or somebody intercepts the connection; the code is used up, and no key was kept")]
    CodeWrong,
    /// This side has a token, and the server has none.
    #[error("the server has no token, and this side requires one")]
    TokenUnknown,
    /// The server does not know this side's key.
    #[error("the server does not know this side's key {key}; add it to the server's authorized keys")]
    KeyRefused {
        /// This side's key.
        key: PublicKey,
    },
    /// This side does not know the server's key.
    #[error("the key {key} of the server {host} is not known; add it to the known hosts if it is the right one")]
    HostUnknown {
        /// The server as the caller named it.
        host: String,
        /// The key that it has.
        key: PublicKey,
    },
    /// The server's key is another one than this side knows. Somebody may be in between.
    #[error(
        "the key of the server {host} has changed: it is {key}, and {} has another one in line {line}; if the server \
         has a new key, edit that line, else somebody intercepts the connection",
        file.display()
    )]
    HostChanged {
        /// The server as the caller named it.
        host: String,
        /// The key that it has.
        key: PublicKey,
        /// The file with the other key.
        file: PathBuf,
        /// The line in the file, from 1.
        line: usize,
    },
    /// One side wants its data encrypted, and the other one does not.
    #[error(
        "this side wants {}, and the peer {}; both must want the same",
        protection(*.ours), protection(!*.ours)
    )]
    PlaintextDiffers {
        /// Whether this side wants plaintext.
        ours: bool,
    },
    /// The handshake failed: the peer is another program, or somebody changed its bytes on the way.
    #[error("the handshake with {peer} failed: {what}")]
    Handshake {
        /// Address of the peer.
        peer: String,
        /// What failed.
        what: String,
    },
    /// The file of a key pair or of keys cannot be used, or not be created.
    #[error("key file {}: {why}", path.display())]
    IdentityFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: IdentityError,
    },
    /// The file of a token cannot be used, or not be created.
    #[error("token file {}: {why}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: TokenError,
    },
    /// The server does not know the session, or has ended it.
    #[error("the server has ended this session; connect again")]
    SessionUnknown,
    /// The server serves as many sessions and connections as it may, and none of them is idle.
    #[error("the server is busy: it serves {sessions} sessions, its limit; try again later")]
    Busy {
        /// How many sessions and connections it serves.
        sessions: u32,
    },
    /// The server finishes what it has begun, and then ends.
    #[error("the server is shutting down, and accepts no new session; try again when it has been started again")]
    Stopping,
    /// The handshake did not finish in time.
    #[error(
        "the peer at {peer} did not finish the handshake within {after:?}; it may be overloaded, or another program"
    )]
    HandshakeTimeout {
        /// Address of the peer.
        peer: String,
        /// How long the handshake may take.
        after: Duration,
    },
    /// The peer broke the protocol. The session is closed.
    #[error("the peer broke the protocol: {0}; the session is closed")]
    Protocol(String),
    /// The peer closed the session and said why.
    #[error("the peer closed the session: {0}")]
    Aborted(String),
    /// The peer has sent its last message, or this side has closed the session.
    #[error("the session is closed")]
    Closed,
    /// No rail came back within [`crate::Config::give_up_after`].
    #[error("all rails to the peer have been down for {0:?}; the session is closed")]
    AllRailsLost(Duration),
    /// The next message does not fit the caller's buffer. It can still be received into a larger
    /// one.
    #[error(
        "the next message has {message_bytes} bytes and the buffer {buffer_bytes}; receive it into a larger buffer"
    )]
    MessageTooLarge {
        /// Length of the message.
        message_bytes: u64,
        /// Length of the buffer.
        buffer_bytes: u64,
    },
    /// A request needs more memory than this host's requests have left.
    #[error(
        "the request needs {wanted_bytes} bytes of memory, and {left_bytes} of this host's {limit_bytes} for requests \
         are left"
    )]
    OverMemoryBudget {
        /// What the request needs.
        wanted_bytes: u64,
        /// What is left for all requests.
        left_bytes: u64,
        /// The budget of the host.
        limit_bytes: u64,
    },
    /// A future of this session was dropped in the middle of a message.
    #[error("a {0} was cancelled in the middle of a message, so the session cannot go on; connect again")]
    Cancelled(&'static str),
    /// Reading the source or writing the sink of a transfer failed on this side.
    #[error("{0}")]
    Local(io::Error),
    /// A system call of this host failed.
    #[error("{what}: {cause}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

impl Error {
    /// For `map_err`: makes an [`Error::Io`] of an I/O error in the operation `what`.
    pub fn io(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |cause| Error::Io { what, cause }
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Error::Protocol(error.to_string())
    }
}

fn protection(plaintext: bool) -> &'static str {
    if plaintext { "plaintext" } else { "encryption" }
}

/// Why a key, or a file of keys, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The mode of the file lets users other than its owner read or write it.
    #[error("its mode is {mode:04o}, so that other users can read or write it; allow its owner alone to do so")]
    Shared {
        /// The mode, with permission bits only.
        mode: u32,
    },
    /// The file has no Ed25519 key in PKCS #8 and PEM.
    #[error("it holds no Ed25519 key pair in PEM")]
    PrivateKey,
    /// The mode of a file of keys lets users other than its owner write it.
    #[error("its mode is {mode:04o}, so that other users can write it; allow its owner alone to do so")]
    Writable {
        /// The mode, with permission bits only.
        mode: u32,
    },
    /// A line of a file of keys cannot be read.
    #[error("line {number} has no key; a public key is `ed25519:` and 43 characters of base64url")]
    Line {
        /// The line, from 1.
        number: usize,
    },
    /// The options of a line of a file of keys are not valid.
    #[error("line {number}: {why}")]
    Options {
        /// The line, from 1.
        number: usize,
        /// What is wrong, and what is allowed.
        why: String,
    },
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for IdentityError {
    fn from(error: io::Error) -> Self {
        IdentityError::Io(error)
    }
}

/// Why a secret, or the file of a secret, cannot be a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The mode of the file lets users other than its owner read or write it.
    #[error("its mode is {mode:04o}, so that other users can read or write it; allow its owner alone to do so")]
    Shared {
        /// The mode, with permission bits only.
        mode: u32,
    },
    /// The secret carries fewer than 128 bits, if it is random.
    #[error("it has {length} {unit}, and at least {needed} are needed, so that it cannot be guessed")]
    Short {
        /// The length of the secret.
        length: usize,
        /// The shortest length that is accepted.
        needed: usize,
        /// What is counted.
        unit: &'static str,
    },
    /// The secret is longer than any token.
    #[error("it has more than {most_bytes} bytes; is it another file?")]
    Long {
        /// The longest length that is accepted.
        most_bytes: usize,
    },
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for TokenError {
    fn from(error: io::Error) -> Self {
        TokenError::Io(error)
    }
}
