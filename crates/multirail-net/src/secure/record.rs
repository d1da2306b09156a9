//! Records: authenticated pieces of a connection's byte stream.
//!
//! ```text
//! length: u16   ciphertext: length - 16 bytes   tag: 16 bytes
//! ```
//!
//! The length is little-endian and authenticated with the record. The nonce is a counter, so a
//! record that is missing, repeated or out of order does not open. This module does no I/O.

use super::cipher::{Cipher, SECRET_BYTES, expand};
use aws_lc_rs::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use std::fmt;
use std::io::IoSliceMut;
use std::ops::Range;

/// The most plaintext of a record. A receiver uses no byte of a record before all of it has arrived,
/// which takes 13 ms at 10 Mbit/s.
pub(crate) const MAX_PLAINTEXT_BYTES: usize = 16 << 10;
const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;
/// Each direction gets a new key after this many records: 128 GiB at most. AES-GCM stays secure for
/// 2^24.5 full records with one key (RFC 8446, section 5.5).
/// Tests come to it sooner.
const REKEY_AFTER: u64 = if cfg!(test) { 5 } else { 1 << 23 };
/// Received records are buffered in this much memory.
const BUFFER_BYTES: usize = 128 << 10;

/// A received record is not one that the peer sealed. The connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record was changed on its way, or is not the peer's")]
pub(crate) struct BadRecord;

impl From<BadRecord> for std::io::Error {
    fn from(error: BadRecord) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// The key of one direction of a connection.
struct RecordKey {
    cipher: Cipher,
    secret: [u8; SECRET_BYTES],
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// Records with this key.
    count: u64,
}

impl RecordKey {
    fn new(cipher: Cipher, secret: [u8; SECRET_BYTES]) -> Self {
        let prk = Prk::new_less_safe(HKDF_SHA256, &secret);
        let unbound = match cipher {
            Cipher::Aes128Gcm => UnboundKey::new(&AES_128_GCM, &expand::<16>(&prk, &[b"key"])),
            Cipher::ChaCha20Poly1305 => UnboundKey::new(&CHACHA20_POLY1305, &expand::<32>(&prk, &[b"key"])),
        };
        let key = LessSafeKey::new(unbound.expect("the key has the cipher's length"));
        Self { cipher, secret, key, iv: expand(&prk, &[b"iv"]), count: 0 }
    }

    /// The nonce of the next record, after a change of keys where it is due.
    fn next_nonce(&mut self) -> Nonce {
        if self.count == REKEY_AFTER {
            let next = expand(&Prk::new_less_safe(HKDF_SHA256, &self.secret), &[b"next"]);
            *self = Self::new(self.cipher, next);
        }
        let mut nonce = self.iv;
        for (byte, count) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.count.to_be_bytes()) {
            *byte ^= count;
        }
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordKey").field("cipher", &self.cipher).field("count", &self.count).finish_non_exhaustive()
    }
}

/// Makes records of one direction's bytes.
#[derive(Debug)]
pub(crate) struct Sealer {
    key: RecordKey,
}

impl Sealer {
    pub(crate) fn new(cipher: Cipher, secret: [u8; SECRET_BYTES]) -> Self {
        Self { key: RecordKey::new(cipher, secret) }
    }

    /// Makes one record of the first bytes of `parts`, as many as fit, in `buffer` from `start` on. The
    /// buffer grows if it is too short. Returns the plaintext's length and where the record ends;
    /// without a byte in `parts`, there is no record.
    pub(crate) fn seal(&mut self, parts: &[&[u8]], buffer: &mut Vec<u8>, start: usize) -> (usize, usize) {
        let length = parts.iter().map(|part| part.len()).sum::<usize>().min(MAX_PLAINTEXT_BYTES);
        if length == 0 {
            return (0, start);
        }
        let end = start + LENGTH_BYTES + length + TAG_BYTES;
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        let prefix = ((length + TAG_BYTES) as u16).to_le_bytes();
        let (nonce, aad) = (self.key.next_nonce(), Aad::from(prefix));
        let (prefix_out, rest) = buffer[start..end].split_at_mut(LENGTH_BYTES);
        prefix_out.copy_from_slice(&prefix);
        let (ciphertext, tag_out) = rest.split_at_mut(length);
        let sealed = match parts.iter().find(|part| !part.is_empty()) {
            // Most bytes of a large message are in records of one part, which need no copy.
            Some(part) if part.len() >= length => {
                self.key.key.seal_out_of_place_scatter(nonce, aad, &part[..length], ciphertext, &[], tag_out)
            }
            _ => {
                let mut room = &mut ciphertext[..];
                for part in parts {
                    let (taken, rest) = room.split_at_mut(part.len().min(room.len()));
                    taken.copy_from_slice(&part[..taken.len()]);
                    room = rest;
                }
                let sealed = self.key.key.seal_in_place_separate_tag(nonce, aad, ciphertext);
                sealed.map(|tag| tag_out.copy_from_slice(tag.as_ref()))
            }
        };
        sealed.expect("a record is far shorter than the cipher's limit");
        (length, end)
    }
}

/// Takes the bytes out of received records.
#[derive(Debug)]
pub(crate) struct Opener {
    key: RecordKey,
    /// Allocated when the first bytes arrive.
    buffer: Box<[u8]>,
    /// Bytes in the buffer that were opened and not taken.
    opened: Range<usize>,
    /// Bytes in the buffer that were received and not opened. They follow those that were opened.
    received: Range<usize>,
    /// A record was bad.
    failed: bool,
}

impl Opener {
    pub(crate) fn new(cipher: Cipher, secret: [u8; SECRET_BYTES]) -> Self {
        Self {
            key: RecordKey::new(cipher, secret),
            buffer: Box::default(),
            opened: 0..0,
            received: 0..0,
            failed: false,
        }
    }

    /// Room for bytes from the connection. It can take at least a whole record.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES].into();
        }
        if self.opened.is_empty() && self.received.start > 0 {
            self.buffer.copy_within(self.received.clone(), 0);
            self.received = 0..self.received.len();
        }
        &mut self.buffer[self.received.end..]
    }

    /// Notes that `count` bytes of the room were filled.
    pub(crate) fn filled(&mut self, count: usize) {
        self.received.end += count;
    }

    /// Bytes that were received and not taken.
    pub(crate) fn held_bytes(&self) -> usize {
        self.opened.len() + self.received.len()
    }

    /// Whether a whole record waits.
    pub(crate) fn is_readable(&self) -> bool {
        let held = &self.buffer[self.received.clone()];
        let whole = |prefix: &[u8; LENGTH_BYTES]| held.len() >= LENGTH_BYTES + usize::from(u16::from_le_bytes(*prefix));
        !self.opened.is_empty() || held.first_chunk().is_some_and(whole)
    }

    /// Moves bytes of whole records into `parts` and returns how many. 0 means that a record is
    /// incomplete.
    ///
    /// # Errors
    ///
    /// [`BadRecord`], now and in every later call for this record. What was moved before that is
    /// authentic.
    pub(crate) fn open(&mut self, parts: &mut [IoSliceMut<'_>]) -> Result<usize, BadRecord> {
        let mut total = 0;
        for part in parts {
            let mut part = &mut part[..];
            while !part.is_empty() {
                if self.opened.is_empty() {
                    match self.open_next(part) {
                        Ok(Next::Direct(count)) => {
                            total += count;
                            part = &mut part[count..];
                            continue;
                        }
                        Ok(Next::Buffered) => {}
                        Ok(Next::Incomplete) => return Ok(total),
                        // The bytes before the bad record count.
                        Err(BadRecord) if total > 0 => return Ok(total),
                        Err(error) => return Err(error),
                    }
                }
                let count = part.len().min(self.opened.len());
                let (taken, rest) = part.split_at_mut(count);
                taken.copy_from_slice(&self.buffer[self.opened.start..][..count]);
                self.opened.start += count;
                total += count;
                part = rest;
            }
        }
        Ok(total)
    }

    /// Opens the next record: into `part` if it fits, else within the buffer.
    fn open_next(&mut self, part: &mut [u8]) -> Result<Next, BadRecord> {
        if self.failed {
            return Err(BadRecord);
        }
        let held = &mut self.buffer[self.received.clone()];
        let Some((prefix, rest)) = held.split_first_chunk_mut::<LENGTH_BYTES>() else { return Ok(Next::Incomplete) };
        let prefix = *prefix;
        let sealed_bytes = usize::from(u16::from_le_bytes(prefix));
        if !(TAG_BYTES + 1..=TAG_BYTES + MAX_PLAINTEXT_BYTES).contains(&sealed_bytes) {
            self.failed = true;
            return Err(BadRecord);
        }
        let Some(sealed) = rest.get_mut(..sealed_bytes) else { return Ok(Next::Incomplete) };
        let count = sealed_bytes - TAG_BYTES;
        let (nonce, aad) = (self.key.next_nonce(), Aad::from(prefix));
        let (next, opened) = if count <= part.len() {
            let (ciphertext, tag) = sealed.split_at(count);
            let opened = self.key.key.open_separate_gather(nonce, aad, ciphertext, tag, &mut part[..count]);
            (Next::Direct(count), opened)
        } else {
            let start = self.received.start + LENGTH_BYTES;
            self.opened = start..start + count;
            (Next::Buffered, self.key.key.open_in_place(nonce, aad, sealed).map(drop))
        };
        if opened.is_err() {
            self.opened = 0..0;
            self.failed = true;
            return Err(BadRecord);
        }
        self.received.start += LENGTH_BYTES + sealed_bytes;
        Ok(next)
    }
}

/// What became of the next record.
enum Next {
    /// Its bytes are in the caller's memory.
    Direct(usize),
    /// Its bytes are in the buffer.
    Buffered,
    /// It has not arrived whole.
    Incomplete,
}
