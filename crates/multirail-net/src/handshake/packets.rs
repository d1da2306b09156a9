//! The packets of the handshake, and how they are sent and received.

use super::types::{Joined, PROTOCOL_VERSION, Purpose, Refusal, SessionId};
use crate::error::{Error, Result};
use crate::random;
use crate::secure::cipher::SECRET_BYTES;
use crate::secure::{pake, tls};
use multirail_proto::wire::packet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest handshake packet.
const MAX_PACKET_BYTES: usize = 256;
const MAGIC: [u8; 8] = *b"mltirail";

/// The cipher, and the PAKE of a side that has a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    pub(super) plaintext: bool,
    pub(super) fast_aes: bool,
    pub(super) pake: Option<pake::Message>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Opening {
    Open(Terms),
    Join { session: SessionId, joined: Joined },
}

#[derive(Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) magic: [u8; 8],
    pub(super) version: u16,
    pub(super) opening: Opening,
    pub(super) nonce: [u8; 32],
}

#[derive(Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) magic: [u8; 8],
    pub(super) version: u16,
    pub(super) answer: Answer,
    pub(super) nonce: [u8; 32],
}

#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    /// TLS follows.
    Open(Terms),
    /// The server's proof follows.
    Join,
    Refused(Refusal),
}

#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) purpose: Purpose,
    pub(super) proof: [u8; SECRET_BYTES],
}

#[derive(Serialize, Deserialize)]
pub(super) enum Verdict {
    Accepted { session: SessionId, proof: [u8; SECRET_BYTES] },
    Refused(Refusal),
}

#[derive(Serialize, Deserialize)]
pub(super) struct JoinProof(pub(super) [u8; SECRET_BYTES]);

pub(super) fn hello(opening: Opening, said: &mut Vec<u8>) {
    packet::encode(&Hello { magic: MAGIC, version: PROTOCOL_VERSION, opening, nonce: random::bytes() }, said);
}

pub(super) async fn welcome(stream: &mut TcpStream, said: &mut Vec<u8>, peer: &str) -> Result<Welcome> {
    let body = receive_body(stream, said).await?;
    check_version(greeting_version(body, peer)?)?;
    decode(body, peer)
}

pub(super) fn welcome_packet(answer: Answer) -> Vec<u8> {
    let mut packet = Vec::new();
    packet::encode(&Welcome { magic: MAGIC, version: PROTOCOL_VERSION, answer, nonce: random::bytes() }, &mut packet);
    packet
}

pub(super) async fn answer(stream: &mut TcpStream, answer: Answer, said: &mut Vec<u8>) -> Result<()> {
    let packet = welcome_packet(answer);
    said.extend_from_slice(&packet);
    write(stream, &packet).await
}

pub(super) async fn read_tls<T: DeserializeOwned>(
    tls: &mut tls::Handshake,
    stream: &mut TcpStream,
    peer: &str,
) -> Result<T> {
    let failed = |what: io::Error| Error::Handshake { peer: peer.to_owned(), what: what.to_string() };
    let mut prefix = [0; packet::PREFIX_BYTES];
    tls.read_exact(stream, &mut prefix).await.map_err(failed)?;
    let length = packet::body_bytes(prefix, MAX_PACKET_BYTES).map_err(|e| not_multirail(peer, e.to_string()))?;
    let mut body = vec![0; length];
    tls.read_exact(stream, &mut body).await.map_err(failed)?;
    decode(&body, peer)
}

/// Parses `bytes` as each of the handshake's packets, for fuzzing.
#[doc(hidden)]
pub fn decode_any(bytes: &[u8]) {
    let Some((prefix, body)) = bytes.split_first_chunk() else { return };
    let Ok(length) = packet::body_bytes(*prefix, MAX_PACKET_BYTES) else { return };
    let Some(body) = body.get(..length) else { return };
    let version = greeting_version(body, "");
    let hello = decode::<Hello>(body, "");
    let welcome = decode::<Welcome>(body, "");
    assert!(hello.is_err() || hello.is_ok_and(|h| h.magic != MAGIC || version.as_ref().ok() == Some(&h.version)));
    assert!(welcome.is_err() || welcome.is_ok_and(|w| w.magic != MAGIC || version.ok() == Some(w.version)));
    let _ = (decode::<Request>(body, ""), decode::<Verdict>(body, ""), decode::<JoinProof>(body, ""));
}

/// The first bytes of a connection that tell multirail from other programs.
pub(crate) const GREETING_BYTES: usize = packet::PREFIX_BYTES + MAGIC.len();

/// Whether these are the first bytes of a client.
pub(crate) fn is_greeting(bytes: &[u8; GREETING_BYTES]) -> bool {
    bytes[packet::PREFIX_BYTES..] == MAGIC
}

/// Every version's first packets begin with the magic and the version.
pub(super) fn greeting_version(body: &[u8], peer: &str) -> Result<u16> {
    match postcard::take_from_bytes::<([u8; 8], u16)>(body) {
        Ok(((MAGIC, version), _)) => Ok(version),
        _ => Err(not_multirail(peer, "another program's greeting")),
    }
}

pub(super) fn check_version(theirs: u16) -> Result<()> {
    if theirs == PROTOCOL_VERSION { Ok(()) } else { Err(Error::Version { ours: PROTOCOL_VERSION, theirs }) }
}

pub(super) fn not_multirail(peer: &str, what: impl Into<String>) -> Error {
    Error::NotMultirail { peer: peer.to_owned(), what: what.into() }
}

pub(super) fn peer_name(stream: &TcpStream) -> String {
    stream.peer_addr().map_or_else(|_| "a disconnected peer".to_owned(), |a| a.to_string())
}

pub(super) async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    stream.write_all(bytes).await.map_err(|e| not_multirail(&peer_name(stream), e.to_string()))
}

pub(super) async fn receive<T: DeserializeOwned>(stream: &mut TcpStream, peer: &str) -> Result<T> {
    let mut packet = Vec::new();
    decode(receive_body(stream, &mut packet).await?, peer)
}

pub(super) fn decode<T: DeserializeOwned>(body: &[u8], peer: &str) -> Result<T> {
    packet::decode_body(body).map_err(|e| not_multirail(peer, e.to_string()))
}

/// Receives the body of the next packet and appends it to `said`.
pub(super) async fn receive_body<'a>(stream: &mut TcpStream, said: &'a mut Vec<u8>) -> Result<&'a [u8]> {
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
