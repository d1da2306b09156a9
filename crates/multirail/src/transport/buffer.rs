//! Bodies of messages, whose memory is used again: to map, clear and unmap a MiB takes longer than to copy it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// A pool keeps no more than this for later.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// Nor more buffers.
const MAX_KEPT: usize = 256;

/// Bytes that return to their pool when they are dropped, on whichever thread that is.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    home: Option<Arc<Pool>>,
}

/// Memory for buffers.
#[derive(Debug, Default)]
pub struct Pool {
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// An empty buffer with room for so many bytes.
    pub fn buffer(self: &Arc<Self>, capacity_bytes: usize) -> Buffer {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = kept.unwrap_or_default();
        bytes.clear();
        bytes.reserve(capacity_bytes);
        Buffer { bytes, home: Some(self.clone()) }
    }

    /// A buffer of so many bytes, whatever they are.
    pub fn sized(self: &Arc<Self>, bytes: usize) -> Buffer {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = Buffer { bytes: kept.unwrap_or_default(), home: Some(self.clone()) };
        buffer.resize(bytes, 0);
        buffer
    }
}

impl Buffer {
    /// Takes the bytes out; their memory is no longer the pool's.
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
        let mut kept = home.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept_bytes: usize = kept.iter().map(Vec::capacity).sum();
        if kept.len() < MAX_KEPT && kept_bytes + bytes.capacity() <= MAX_KEPT_BYTES {
            kept.push(bytes);
        }
    }
}
