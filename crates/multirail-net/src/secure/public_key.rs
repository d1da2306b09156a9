//! The public half of a key pair, and its text.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use data_encoding::BASE64URL_NOPAD;
use std::fmt;
use std::str::FromStr;

/// What the text of a public key begins with.
const PREFIX: &str = "ed25519:";
const KEY_BYTES: usize = 32;
/// The text is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public key is `ed25519:` and 43 characters of base64url")]
pub struct ParsePublicKeyError;

/// The public half of an [`Identity`](super::identity::Identity): `ed25519:` and 43 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// The bytes of the key, as RFC 8032 has them.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Whether `signature` is that of the key's owner for this context and message.
    pub fn has_signed(&self, context: &str, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        key.verify(&signed_bytes(context, message), signature).is_ok()
    }

    /// The key with these bytes. Whether they are a key shows when a signature is checked.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = ParsePublicKeyError;

    fn from_str(text: &str) -> Result<Self, ParsePublicKeyError> {
        let bytes = text.strip_prefix(PREFIX).and_then(|digits| BASE64URL_NOPAD.decode(digits.as_bytes()).ok());
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(ParsePublicKeyError)
    }
}

/// What is signed. The length keeps contexts apart.
pub(super) fn signed_bytes(context: &str, message: &[u8]) -> Vec<u8> {
    [&(context.len() as u64).to_le_bytes(), context.as_bytes(), message].concat()
}
