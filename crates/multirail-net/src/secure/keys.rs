//! From the secret of a session to the keys of its connections.
//!
//! ```text
//! session secret                        TLS exporter of the session's first connection
//! joining key     HKDF(session secret, "multirail join")
//! direction       HKDF(session secret, salt = hash of the joining packets, "multirail from client")
//! key, iv         HKDF(direction, "key"), HKDF(direction, "iv")
//! next direction  HKDF(direction, "next"), after REKEY_AFTER records
//! ```

use super::cipher::{Cipher, SECRET_BYTES, expand};
use super::layer::RecordLayer;
use super::record::{Opener, Sealer};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use aws_lc_rs::{digest, hmac};
use multirail_proto::session::Role;
use std::fmt;

/// What the two hosts of a session share after its first connection.
#[derive(Clone)]
pub(crate) struct SessionSecret {
    secret: [u8; SECRET_BYTES],
    /// `None`: both sides asked for plaintext.
    cipher: Option<Cipher>,
}

impl SessionSecret {
    pub(crate) fn new(secret: [u8; SECRET_BYTES], cipher: Option<Cipher>) -> Self {
        Self { secret, cipher }
    }

    /// The proof of `side` that it knows the secret, bound to the packets in `said`.
    pub(crate) fn join_proof(&self, side: &[u8], said: &[u8]) -> [u8; SECRET_BYTES] {
        prove(&self.join_key(), side, said)
    }

    /// Whether `proof` is that of `side`, in constant time.
    pub(crate) fn is_join_proof(&self, proof: &[u8], side: &[u8], said: &[u8]) -> bool {
        is_proof(proof, &self.join_key(), side, said)
    }

    fn join_key(&self) -> [u8; SECRET_BYTES] {
        expand(&Prk::new_less_safe(HKDF_SHA256, &self.secret), &[b"multirail join"])
    }

    /// The keys of the connection on which the packets in `said` were exchanged. Both sides chose a
    /// random part of them, so that no two connections have the same keys.
    pub(crate) fn connection(&self, role: Role, said: &[u8]) -> Protection {
        let Some(cipher) = self.cipher else { return Protection::Plaintext };
        let salt = digest::digest(&digest::SHA256, said);
        let all = Salt::new(HKDF_SHA256, salt.as_ref()).extract(&self.secret);
        let client = expand(&all, &[b"multirail from client"]);
        let server = expand(&all, &[b"multirail from server"]);
        let (ours, theirs) = match role {
            Role::Dialler => (client, server),
            Role::Listener => (server, client),
        };
        Protection::Sealed(Box::new(RecordLayer::new(Sealer::new(cipher, ours), Opener::new(cipher, theirs))))
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionSecret").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

/// How a connection's bytes are protected.
#[derive(Debug)]
pub(crate) enum Protection {
    /// Not at all: both sides asked for it.
    Plaintext,
    /// In records.
    Sealed(Box<RecordLayer>),
}

/// The keyed hash by which `side` proves that it knows `key`, bound to `said`.
pub(crate) fn prove(key: &[u8], side: &[u8], said: &[u8]) -> [u8; SECRET_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &[side, said].concat());
    tag.as_ref().try_into().expect("HMAC-SHA-256 makes 32 bytes")
}

/// Whether `proof` is that of `side`, in constant time.
pub(crate) fn is_proof(proof: &[u8], key: &[u8], side: &[u8], said: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), &[side, said].concat(), proof).is_ok()
}
