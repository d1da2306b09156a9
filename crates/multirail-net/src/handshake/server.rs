//! The server's side.

use super::agreed::{Agreed, CLIENT, SERVER, cipher, in_time};
use super::packets::{
    Answer, Hello, JoinProof, Opening, Request, Terms, Verdict, answer, decode, greeting_version, not_multirail,
    peer_name, read_tls, receive, receive_body, welcome_packet, write,
};
use super::types::{Joined, Opened, PROTOCOL_VERSION, Peer, Purpose, Refusal, SessionId};
use crate::error::{Error, Result};
use crate::secure::cipher::Cipher;
use crate::secure::keys::{Protection, SessionSecret, is_proof, prove};
use crate::secure::pake;
use crate::secure::public_key::PublicKey;
use crate::session::Config;
use multirail_proto::session::Role;
use multirail_proto::wire::packet;
use std::io;
use tokio::net::TcpStream;

/// What a server has admitted.
pub(crate) enum Admitted<S> {
    /// The first connection of a session, or one outside of sessions.
    Opened(Opened, Purpose),
    /// A further connection of the session that `find` returned.
    Joined(S, Joined, Protection),
}

/// What a server decides about those that open and join sessions.
pub(crate) trait Doorkeeper {
    /// A session that exists.
    type Session;
    /// Whether a client with this identity gets what it asks for.
    fn enter(&mut self, peer: Peer, purpose: Purpose) -> Result<SessionId, Refusal>;
    /// The session with this id, and its secret.
    fn find(&mut self, id: SessionId) -> Result<(Self::Session, SessionSecret), Refusal>;
}

/// The server's side.
///
/// # Errors
///
/// [`Error::NotMultirail`], [`Error::Version`], [`Error::TokenWrong`], [`Error::KeyRefused`] with the
/// client's key, [`Error::PlaintextDiffers`], [`Error::Handshake`], what `door` refuses,
/// [`Error::HandshakeTimeout`] after [`TIMEOUT`], or [`Error::Closed`] if the client has sent nothing.
///
/// # Cancel safety
///
/// Not cancel-safe: close the connection.
pub(crate) async fn accept<D: Doorkeeper>(
    stream: &mut TcpStream,
    config: &Config,
    door: &mut D,
) -> Result<Admitted<D::Session>> {
    let peer = peer_name(stream);
    in_time(&peer, async {
        // A health check, or a peer that measures the round trip, closes the connection and sends nothing.
        if matches!(stream.peek(&mut [0]).await, Ok(0)) {
            return Err(Error::Closed);
        }
        let mut said = Vec::new();
        let body = receive_body(stream, &mut said).await?;
        let version = greeting_version(body, &peer)?;
        if version != PROTOCOL_VERSION {
            // Only the version number can be read from a peer of another version.
            let refused = Answer::Refused(Refusal::Session);
            answer(stream, refused, &mut said).await?;
            return Err(Error::Version { ours: PROTOCOL_VERSION, theirs: version });
        }
        match decode::<Hello>(body, &peer)?.opening {
            // On the heap, so that a connection that is silent does not take their room.
            Opening::Open(theirs) => Box::pin(accept_open(stream, config, door, said, theirs, &peer)).await,
            Opening::Join { session, joined } => {
                Box::pin(accept_join(stream, door, said, session, joined, &peer)).await
            }
        }
    })
    .await
}

async fn accept_open<D: Doorkeeper>(
    stream: &mut TcpStream,
    config: &Config,
    door: &mut D,
    mut said: Vec<u8>,
    theirs: Terms,
    peer: &str,
) -> Result<Admitted<D::Session>> {
    let failed = |what: io::Error| Error::Handshake { peer: peer.to_owned(), what: what.to_string() };
    let (pake, message) = match (&config.token, theirs.pake) {
        (Some(token), Some(_)) => Some(pake::Exchange::server(&token.handshake_secret())).unzip(),
        _ => (None, None),
    };
    let ours = Terms { plaintext: config.plaintext, fast_aes: Cipher::has_fast_aes(), pake: message };
    answer(stream, Answer::Open(ours), &mut said).await?;
    if ours.plaintext != theirs.plaintext {
        return Err(Error::PlaintextDiffers { ours: ours.plaintext });
    }
    let token_key = match pake.zip(theirs.pake) {
        Some((pake, message)) => Some(pake.finish(&message).ok_or(Error::TokenWrong)?),
        None => None,
    };
    let has_token = token_key.is_some();
    let mut tls = config.identity.tls().server();
    tls.shake(stream).await.map_err(failed)?;
    let agreed = Agreed { said, cipher: cipher(&ours, &theirs), token_key: token_key.unwrap_or_default() };
    let (secret, protection, bound) = agreed.finish(&tls, Role::Listener).map_err(failed)?;
    let Request { purpose, proof: proven } = read_tls(&mut tls, stream, peer).await?;
    let key = tls.peer().ok_or_else(|| not_multirail(peer, "a key of another kind"))?;
    let known = Peer { key, has_token };
    let token = config.token.as_ref().filter(|_| has_token);
    let admitted = if token.is_some_and(|token| !token.take_attempt()) {
        Err(Refusal::Token)
    } else if !is_proof(&proven, &agreed.token_key, CLIENT, &bound) {
        token.inspect(|token| token.fail());
        Err(Refusal::Token)
    } else if let Some(client) = config.client(known) {
        door.enter(known, purpose).map(|session| (session, client))
    } else {
        Err(Refusal::Key { has_token: config.token.is_some() })
    };
    let verdict = match &admitted {
        Ok((session, _)) => Verdict::Accepted { session: *session, proof: prove(&agreed.token_key, SERVER, &bound) },
        Err(refusal) => Verdict::Refused(*refusal),
    };
    let (mut packet, mut out) = (Vec::new(), Vec::new());
    packet::encode(&verdict, &mut packet);
    tls.write(&packet).and_then(|()| tls.output(&mut out)).map_err(failed)?;
    write(stream, &out).await?;
    let (session, client) = admitted.map_err(|refusal| refusal.error(key))?;
    Ok(Admitted::Opened(Opened { session, secret, protection, peer: known, client }, purpose))
}

async fn accept_join<D: Doorkeeper>(
    stream: &mut TcpStream,
    door: &mut D,
    mut said: Vec<u8>,
    id: SessionId,
    joined: Joined,
    peer: &str,
) -> Result<Admitted<D::Session>> {
    let (session, secret) = match door.find(id) {
        Ok(found) => found,
        Err(refusal) => {
            answer(stream, Answer::Refused(refusal), &mut said).await?;
            return Err(refusal.error(PublicKey::from_bytes([0; 32])));
        }
    };
    let mut packets = welcome_packet(Answer::Join);
    said.extend_from_slice(&packets);
    packet::encode(&JoinProof(secret.join_proof(SERVER, &said)), &mut packets);
    write(stream, &packets).await?;
    let JoinProof(proof) = receive(stream, peer).await?;
    if !secret.is_join_proof(&proof, CLIENT, &said) {
        let what = "the client does not know the keys of the session".to_owned();
        return Err(Error::Handshake { peer: peer.to_owned(), what });
    }
    Ok(Admitted::Joined(session, joined, secret.connection(Role::Listener, &said)))
}
