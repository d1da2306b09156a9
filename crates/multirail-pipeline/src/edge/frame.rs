//! The encoding of a message in a stream of bytes: the body's length, the header, the body.

use super::buffer::{Buffer, Pool};
use super::connection::{HEADER_BYTES, Message};
use multirail_net::error::{Error, Result};
use std::sync::Arc;

/// Size of the length and the header.
pub(super) const PREFIX_BYTES: usize = 8 + HEADER_BYTES;
/// Bytes that are allocated for a body before any of it has arrived.
const STEP_BYTES: usize = 1 << 20;

/// The bytes before a body.
pub(super) fn prefix(head: &[u8; HEADER_BYTES], body: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..8].copy_from_slice(&(body.len() as u64).to_le_bytes());
    prefix[8..].copy_from_slice(head);
    prefix
}

/// The length of the body that follows, if it is within the limit, and the header.
pub(super) fn read(prefix: &[u8; PREFIX_BYTES], limit_bytes: u64) -> Result<(usize, [u8; HEADER_BYTES])> {
    let (length, head) = prefix.split_first_chunk().expect("eight bytes");
    let body_bytes = checked(u64::from_le_bytes(*length), limit_bytes)?;
    Ok((body_bytes, head.try_into().expect("the head")))
}

/// A body's length, if it is within the limit.
pub(super) fn checked(body_bytes: u64, limit_bytes: u64) -> Result<usize> {
    if body_bytes > limit_bytes {
        return Err(Error::Protocol(format!("a buffer of {body_bytes} bytes, the limit is {limit_bytes}")));
    }
    Ok(body_bytes as usize)
}

/// A message of which a part has arrived.
#[derive(Debug)]
pub(super) struct Incoming {
    head: [u8; HEADER_BYTES],
    /// It grows with what arrives.
    body: Buffer,
    total_bytes: usize,
    got_bytes: usize,
}

impl Incoming {
    pub(super) fn begin(prefix: &[u8; PREFIX_BYTES], limit_bytes: u64, pool: &Arc<Pool>) -> Result<Self> {
        let (total_bytes, head) = read(prefix, limit_bytes)?;
        Ok(Self { head, body: pool.sized(total_bytes.min(STEP_BYTES)), total_bytes, got_bytes: 0 })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.got_bytes == self.total_bytes
    }

    /// Room for the next bytes: at most as much as has arrived, or one step.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.got_bytes == self.body.len() {
            self.body.resize(self.total_bytes.min(2 * self.got_bytes), 0);
        }
        &mut self.body[self.got_bytes..]
    }

    /// The first `bytes` bytes of the space are filled.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.got_bytes += bytes;
    }
}

impl From<Incoming> for Message {
    fn from(incoming: Incoming) -> Self {
        Self { head: incoming.head, body: incoming.body }
    }
}
