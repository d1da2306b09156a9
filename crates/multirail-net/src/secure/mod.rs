//! Encryption: who the two sides are, the keys that they agree on, and the records that carry bytes.
//!
//! The design is in [decision 21](../../../../docs/decisions/0021-encryption.md), what it promises in
//! `docs/security.md`, and the bytes in `docs/reference/wire.md`.

pub(crate) mod authorized_keys;
pub(crate) mod cipher;
pub(crate) mod identity;
mod key_file;
pub(crate) mod keys;
pub(crate) mod known_hosts;
pub(crate) mod layer;
pub(crate) mod pake;
pub(crate) mod public_key;
pub(crate) mod record;
pub(crate) mod tls;

#[cfg(test)]
mod tests;
