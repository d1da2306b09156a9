//! Bodies of messages, whose memory is reused: mapping, clearing and unmapping a MiB takes longer
//! than copying it.

use multirail_net::sync::lock;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

/// Most bytes that a pool keeps.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// Most buffers that a pool keeps.
const MAX_KEPT: usize = 256;

/// Bytes whose memory returns to a pool when they are dropped, on any thread.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    home: Option<Arc<Pool>>,
}

/// Memory for buffers, shared by the threads that use them.
#[derive(Debug, Default)]
pub struct Pool {
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// An empty buffer with room for `capacity_bytes`.
    pub fn buffer(self: &Arc<Self>, capacity_bytes: usize) -> Buffer {
        let kept = lock(&self.kept).pop();
        let mut bytes = kept.unwrap_or_default();
        bytes.clear();
        bytes.reserve(capacity_bytes);
        Buffer { bytes, home: Some(self.clone()) }
    }

    /// A buffer of `bytes` bytes with unspecified content.
    pub fn sized(self: &Arc<Self>, bytes: usize) -> Buffer {
        let kept = lock(&self.kept).pop();
        let mut buffer = Buffer { bytes: kept.unwrap_or_default(), home: Some(self.clone()) };
        buffer.resize(bytes, 0);
        buffer
    }
}

impl Buffer {
    /// The bytes, whose memory does not return to the pool.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, home: None }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes.len())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() == 0 {
            return;
        }
        let mut kept = lock(&home.kept);
        let kept_bytes: usize = kept.iter().map(Vec::capacity).sum();
        if kept.len() < MAX_KEPT && kept_bytes + bytes.capacity() <= MAX_KEPT_BYTES {
            kept.push(bytes);
        }
    }
}
