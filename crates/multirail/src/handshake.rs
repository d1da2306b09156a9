//! How two hosts come to trust a connection, before anything is allocated for it.
//!
//! ```text
//! client                                     server
//!   Hello     magic, version, purpose, nonce  ->
//!                                            <-  Challenge  version, nonce
//!   Proof     keyed hash "client"             ->
//!                                            <-  Verdict    keyed hash "server", session; or a refusal
//! ```
//!
//! Both hashes are BLAKE3, keyed by the token, over both packets before them: a recorded handshake is worth nothing against
//! another nonce, and a server that lacks the token is found out too. Without a token the key is a constant: the
//! handshake then only tells multirail from other programs. What follows is neither encrypted nor signed; a network whose
//! wires are not trusted needs a tunnel below.

use crate::error::{Error, Result};
use multirail_proto::wire::packet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Raised whenever the bytes on a connection change their meaning.
pub const PROTOCOL_VERSION: u16 = 1;
/// A peer that has not finished by then is shown the door.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// No handshake packet is longer.
const MAX_PACKET_BYTES: usize = 256;
const MAGIC: [u8; 8] = *b"mltirail";
/// Shorter tokens can be guessed.
const MIN_TOKEN_BYTES: usize = 8;

/// What both sides must know.
#[derive(Clone)]
pub struct Token {
    key: [u8; 32],
}

impl Token {
    /// A token from bytes that both sides have.
    pub fn new(secret: &[u8]) -> Self {
        Self { key: blake3::derive_key("multirail 2026 session token", secret) }
    }

    /// A token from a file, white space at its ends left out.
    pub fn from_file(path: &Path) -> Result<Self> {
        let bad = |why: String| Error::Local(std::io::Error::other(format!("token file {}: {why}", path.display())));
        let bytes = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
        let secret = bytes.trim_ascii();
        if secret.len() < MIN_TOKEN_BYTES {
            return Err(bad(format!("holds {} bytes, at least {MIN_TOKEN_BYTES} are needed", secret.len())));
        }
        Ok(Self::new(secret))
    }

    /// A key for another use than sessions, from which the token cannot be told.
    pub(crate) fn key_for(&self, use_: &'static str) -> [u8; 32] {
        blake3::derive_key(use_, &self.key)
    }

    fn none() -> Self {
        Self::new(b"")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A session's name: unguessable, so that only its two hosts can join it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId([u8; 16]);

impl SessionId {
    pub(crate) fn random() -> Self {
        Self(random())
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The control connection of a session that begins.
    New,
    /// A new control connection for a session that lost its own.
    Control {
        /// The session.
        session: SessionId,
    },
    /// A data channel.
    Data {
        /// The session.
        session: SessionId,
        /// The channel's id, chosen by the client, never used before in this session.
        channel: u32,
        /// The rail it runs on, as the client numbers them.
        rail: u32,
        /// The channel it replaces, which is dead whether the server has noticed or not.
        replaces: Option<u32>,
    },
    /// Nothing of ours follows: the server answers as a plain TCP peer, which `multirail bench` measures against.
    Plain,
    /// An edge of a pipeline: [`crate::transport::connect`].
    Edge,
}

#[derive(Serialize, Deserialize)]
struct Hello {
    magic: [u8; 8],
    version: u16,
    purpose: Purpose,
    nonce: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Challenge {
    magic: [u8; 8],
    version: u16,
    token_required: bool,
    nonce: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Proof {
    hash: [u8; 32],
}

#[derive(Serialize, Deserialize)]
enum Verdict {
    Accepted { session: SessionId, hash: [u8; 32] },
    Refused(Refusal),
}

/// Why a server refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The proof does not fit.
    Token,
    /// No such session.
    Session,
    /// The session has as many channels as it may.
    Channels,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Token => Error::TokenWrong,
            Refusal::Session => Error::SessionUnknown,
            Refusal::Channels => Error::Io {
                what: "opening a channel",
                source: io::Error::other("the session has as many as the server allows; use fewer channels per rail"),
            },
        }
    }
}

/// The client's side. Returns the session's id: for [`Purpose::New`] the one the server chose.
pub async fn connect(stream: &mut TcpStream, token: Option<&Token>, purpose: Purpose) -> Result<SessionId> {
    let peer = peer_name(stream);
    let exchange = async {
        let mut said = Vec::with_capacity(2 * MAX_PACKET_BYTES);
        let hello = Hello { magic: MAGIC, version: PROTOCOL_VERSION, purpose, nonce: random() };
        send(stream, &hello, &mut said).await?;
        let body = receive_body(stream, &mut said).await?;
        check_version(greeting_version(body, &peer)?)?;
        let challenge: Challenge = decode(body, &peer)?;
        if challenge.token_required && token.is_none() {
            return Err(Error::TokenMissing);
        }
        let token = token.cloned().unwrap_or_else(Token::none);
        send(stream, &Proof { hash: proof(&token, b"client", &said) }, &mut Vec::new()).await?;
        match receive(stream, &mut Vec::new()).await? {
            Verdict::Refused(refusal) => Err(refusal.into()),
            Verdict::Accepted { session, hash } => {
                said.extend_from_slice(&session.0);
                let expected = blake3::Hash::from_bytes(proof(&token, b"server", &said));
                // blake3::Hash compares in constant time.
                if expected == blake3::Hash::from_bytes(hash) { Ok(session) } else { Err(Error::TokenWrong) }
            }
        }
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(done) => done,
        Err(_) => Err(Error::HandshakeTimeout { peer, after: TIMEOUT }),
    }
}

/// The server's side. `admit` says which session a proven peer belongs to.
pub async fn accept(
    stream: &mut TcpStream,
    token: Option<&Token>,
    admit: impl FnOnce(Purpose) -> Result<SessionId, Refusal>,
) -> Result<(Purpose, SessionId)> {
    let peer = peer_name(stream);
    let exchange = async {
        let mut said = Vec::with_capacity(2 * MAX_PACKET_BYTES);
        let body = receive_body(stream, &mut said).await?;
        let version = greeting_version(body, &peer)?;
        // Of another version nothing more is known than this.
        let hello = if version == PROTOCOL_VERSION { Some(decode::<Hello>(body, &peer)?) } else { None };
        let challenge =
            Challenge { magic: MAGIC, version: PROTOCOL_VERSION, token_required: token.is_some(), nonce: random() };
        send(stream, &challenge, &mut said).await?;
        let Some(hello) = hello else { return Err(Error::Version { ours: PROTOCOL_VERSION, theirs: version }) };
        let proven: Proof = receive(stream, &mut Vec::new()).await?;
        let token = token.cloned().unwrap_or_else(Token::none);
        let expected = blake3::Hash::from_bytes(proof(&token, b"client", &said));
        let admitted =
            if expected == blake3::Hash::from_bytes(proven.hash) { admit(hello.purpose) } else { Err(Refusal::Token) };
        let verdict = match admitted {
            Ok(session) => {
                said.extend_from_slice(&session.0);
                Verdict::Accepted { session, hash: proof(&token, b"server", &said) }
            }
            Err(refusal) => Verdict::Refused(refusal),
        };
        send(stream, &verdict, &mut Vec::new()).await?;
        match admitted {
            Ok(session) => Ok((hello.purpose, session)),
            Err(refusal) => Err(refusal.into()),
        }
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(done) => done,
        Err(_) => Err(Error::HandshakeTimeout { peer, after: TIMEOUT }),
    }
}

/// Reads `bytes` as each of the handshake's packets: for fuzzing.
#[doc(hidden)]
pub fn decode_any(bytes: &[u8]) {
    let Some((prefix, body)) = bytes.split_first_chunk() else { return };
    let Ok(length) = packet::body_bytes(*prefix, MAX_PACKET_BYTES) else { return };
    let Some(body) = body.get(..length) else { return };
    let version = greeting_version(body, "");
    let hello = decode::<Hello>(body, "");
    let challenge = decode::<Challenge>(body, "");
    assert!(hello.is_err() || hello.is_ok_and(|h| h.magic != MAGIC || version.as_ref().ok() == Some(&h.version)));
    assert!(challenge.is_err() || challenge.is_ok_and(|c| c.magic != MAGIC || version.ok() == Some(c.version)));
    let _ = (decode::<Proof>(body, ""), decode::<Verdict>(body, ""));
}

fn proof(token: &Token, side: &[u8; 6], said: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(&token.key);
    hasher.update(side).update(said);
    *hasher.finalize().as_bytes()
}

/// Every version's first packets begin with the magic and the version.
fn greeting_version(body: &[u8], peer: &str) -> Result<u16> {
    match postcard::take_from_bytes::<([u8; 8], u16)>(body) {
        Ok(((MAGIC, version), _)) => Ok(version),
        _ => Err(not_multirail(peer, "another program's greeting")),
    }
}

fn check_version(theirs: u16) -> Result<()> {
    if theirs == PROTOCOL_VERSION { Ok(()) } else { Err(Error::Version { ours: PROTOCOL_VERSION, theirs }) }
}

fn not_multirail(peer: &str, what: impl Into<String>) -> Error {
    Error::NotMultirail { peer: peer.to_owned(), what: what.into() }
}

fn peer_name(stream: &TcpStream) -> String {
    stream.peer_addr().map_or_else(|_| "a peer that is gone".to_owned(), |a| a.to_string())
}

async fn send<T: Serialize>(stream: &mut TcpStream, body: &T, said: &mut Vec<u8>) -> Result<()> {
    let start = said.len();
    packet::encode(body, said);
    stream.write_all(&said[start..]).await.map_err(|e| not_multirail(&peer_name(stream), e.to_string()))
}

async fn receive<T: DeserializeOwned>(stream: &mut TcpStream, said: &mut Vec<u8>) -> Result<T> {
    let peer = peer_name(stream);
    decode(receive_body(stream, said).await?, &peer)
}

fn decode<T: DeserializeOwned>(body: &[u8], peer: &str) -> Result<T> {
    packet::decode_body(body).map_err(|e| not_multirail(peer, e.to_string()))
}

/// The body of the next packet, which is appended to `said`.
async fn receive_body<'a>(stream: &mut TcpStream, said: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    let peer = peer_name(stream);
    let broken = |e: std::io::Error| not_multirail(&peer, e.to_string());
    let mut prefix = [0; packet::PREFIX_BYTES];
    stream.read_exact(&mut prefix).await.map_err(broken)?;
    let length = packet::body_bytes(prefix, MAX_PACKET_BYTES).map_err(|e| not_multirail(&peer, e.to_string()))?;
    said.extend_from_slice(&prefix);
    let start = said.len();
    said.resize(start + length, 0);
    stream.read_exact(&mut said[start..]).await.map_err(broken)?;
    Ok(&said[start..])
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}
