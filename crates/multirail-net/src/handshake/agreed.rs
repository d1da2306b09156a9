//! What the two sides of a first connection make of their packets.

use super::packets::Terms;
use super::types::TIMEOUT;
use crate::error::{Error, Result};
use crate::secure::cipher::{Cipher, SECRET_BYTES};
use crate::secure::keys::{Protection, SessionSecret};
use crate::secure::tls;
use multirail_proto::session::Role;
use std::io;

/// The labels of TLS's exporter.
const SESSION_LABEL: &str = "EXPORTER-multirail-session";
const PROOF_LABEL: &str = "EXPORTER-multirail-proof";

/// What the two sides make of their packets in clear.
pub(super) struct Agreed {
    /// What the exporter is bound to.
    pub(super) said: Vec<u8>,
    pub(super) cipher: Option<Cipher>,
    /// What the PAKE made of the token; empty without one.
    pub(super) token_key: Vec<u8>,
}

impl Agreed {
    /// The secret of the session, and the two proofs' key and message.
    pub(super) fn finish(
        &self,
        tls: &tls::Handshake,
        role: Role,
    ) -> io::Result<(SessionSecret, Protection, [u8; SECRET_BYTES])> {
        let secret = SessionSecret::new(tls.export(SESSION_LABEL, &self.said)?, self.cipher);
        let protection = secret.connection(role, &self.said);
        Ok((secret, protection, tls.export(PROOF_LABEL, &self.said)?))
    }
}

pub(super) const CLIENT: &[u8] = b"client";
pub(super) const SERVER: &[u8] = b"server";

/// The cipher that both sides can use well; `None` if they want plaintext.
pub(super) fn cipher(ours: &Terms, theirs: &Terms) -> Option<Cipher> {
    (!ours.plaintext).then(|| Cipher::choose(ours.fast_aes && theirs.fast_aes))
}

pub(super) async fn in_time<T>(peer: &str, exchange: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(done) => done,
        Err(_) => Err(Error::HandshakeTimeout { peer: peer.to_owned(), after: TIMEOUT }),
    }
}
