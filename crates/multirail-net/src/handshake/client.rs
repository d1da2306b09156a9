//! The client's side.

use super::agreed::{Agreed, CLIENT, SERVER, cipher, in_time};
use super::packets::{
    Answer, JoinProof, Opening, Request, Terms, Verdict, hello, not_multirail, peer_name, read_tls, receive, welcome,
    write,
};
use super::types::{Joined, Opened, Peer, Purpose, Refusal, SessionId};
use crate::error::{Error, Result};
use crate::secure::authorized_keys::Client;
use crate::secure::cipher::Cipher;
use crate::secure::keys::{Protection, SessionSecret, is_proof, prove};
use crate::secure::pake;
use crate::secure::public_key::PublicKey;
use crate::session::Config;
use multirail_proto::session::Role;
use multirail_proto::wire::packet;
use std::io;
use tokio::net::TcpStream;

/// The client's side of the first connection. `host` is how the caller named the server.
///
/// # Errors
///
/// [`Error::NotMultirail`], [`Error::Version`], [`Error::TokenMissing`], [`Error::TokenWrong`],
/// [`Error::TokenUnknown`], [`Error::KeyRefused`], [`Error::HostUnknown`], [`Error::HostChanged`],
/// [`Error::PlaintextDiffers`], [`Error::Handshake`], [`Error::Busy`],
/// [`Error::Stopping`], or
/// [`Error::HandshakeTimeout`] after [`TIMEOUT`].
///
/// # Cancel safety
///
/// Not cancel-safe: close the connection.
pub(crate) async fn open(stream: &mut TcpStream, host: &str, config: &Config, purpose: Purpose) -> Result<Opened> {
    let peer = peer_name(stream);
    let failed = |what: io::Error| Error::Handshake { peer: peer.clone(), what: what.to_string() };
    in_time(&peer, async {
        let (pake, message) = config.token.as_ref().map(|t| pake::Exchange::client(&t.handshake_secret())).unzip();
        let terms = Terms { plaintext: config.plaintext, fast_aes: Cipher::has_fast_aes(), pake: message };
        let mut said = Vec::new();
        hello(Opening::Open(terms), &mut said);
        let mut tls = config.identity.tls().client();
        let mut first = said.clone();
        tls.output(&mut first).map_err(failed)?;
        write(stream, &first).await?;
        let theirs = match welcome(stream, &mut said, &peer).await?.answer {
            Answer::Open(theirs) => theirs,
            Answer::Refused(refusal) => return Err(refusal.error(config.identity.public_key())),
            Answer::Join => return Err(not_multirail(&peer, "an answer to another question")),
        };
        if theirs.plaintext != terms.plaintext {
            return Err(Error::PlaintextDiffers { ours: terms.plaintext });
        }
        let token_key = match (pake, theirs.pake) {
            (None, _) => Vec::new(),
            (Some(_), None) => return Err(Error::TokenUnknown),
            (Some(pake), Some(message)) => pake.finish(&message).ok_or(Error::TokenWrong)?,
        };
        tls.shake(stream).await.map_err(failed)?;
        let key = tls.peer().ok_or_else(|| not_multirail(&peer, "a key of another kind"))?;
        config.check_server(host, key)?;
        let agreed = Agreed { said, cipher: cipher(&terms, &theirs), token_key };
        let (secret, protection, bound) = agreed.finish(&tls, Role::Dialler).map_err(failed)?;
        let mut packet = Vec::new();
        packet::encode(&Request { purpose, proof: prove(&agreed.token_key, CLIENT, &bound) }, &mut packet);
        let mut out = Vec::new();
        tls.write(&packet).and_then(|()| tls.output(&mut out)).map_err(failed)?;
        write(stream, &out).await?;
        match read_tls(&mut tls, stream, &peer).await? {
            Verdict::Refused(refusal) => Err(refusal.error(config.identity.public_key())),
            Verdict::Accepted { session, proof } if is_proof(&proof, &agreed.token_key, SERVER, &bound) => {
                let peer = Peer { key, has_token: config.token.is_some() };
                // Whom this side has dialled may answer with whatever this side asked for.
                Ok(Opened { session, secret, protection, peer, client: Client::default() })
            }
            Verdict::Accepted { .. } => Err(Error::TokenWrong),
        }
    })
    .await
}

/// The client's side of a further connection of a session.
///
/// # Errors
///
/// [`Error::NotMultirail`], [`Error::Version`], [`Error::SessionUnknown`], [`Error::Handshake`] if
/// the server does not know the session's keys, or [`Error::HandshakeTimeout`] after [`TIMEOUT`].
///
/// # Cancel safety
///
/// Not cancel-safe: close the connection.
pub(crate) async fn join(
    stream: &mut TcpStream,
    session: SessionId,
    secret: &SessionSecret,
    joined: Joined,
) -> Result<Protection> {
    let peer = peer_name(stream);
    in_time(&peer, async {
        let mut said = Vec::new();
        hello(Opening::Join { session, joined }, &mut said);
        write(stream, &said).await?;
        match welcome(stream, &mut said, &peer).await?.answer {
            Answer::Join => {}
            Answer::Refused(Refusal::Channels) => return Err(Refusal::Channels.error(PublicKey::from_bytes([0; 32]))),
            Answer::Refused(_) => return Err(Error::SessionUnknown),
            Answer::Open(_) => return Err(not_multirail(&peer, "an answer to another question")),
        }
        let JoinProof(theirs) = receive(stream, &peer).await?;
        if !secret.is_join_proof(&theirs, SERVER, &said) {
            let what = "the server does not know the keys of the session".to_owned();
            return Err(Error::Handshake { peer: peer.clone(), what });
        }
        let mut packet = Vec::new();
        packet::encode(&JoinProof(secret.join_proof(CLIENT, &said)), &mut packet);
        write(stream, &packet).await?;
        Ok(secret.connection(Role::Dialler, &said))
    })
    .await
}
