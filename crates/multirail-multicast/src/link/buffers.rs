//! Buffers that links share, since a link needs one only while a piece arrives.

use multirail_net::sync::lock;
use std::sync::Mutex;

/// The most buffers that are kept for the next pieces.
const MAX_BUFFERS: usize = 8;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    pub(crate) fn take(&self) -> Vec<u8> {
        lock(&self.0).pop().unwrap_or_default()
    }

    pub(crate) fn put(&self, buffer: Vec<u8>) {
        let mut buffers = lock(&self.0);
        if buffers.len() < MAX_BUFFERS && buffer.capacity() > 0 {
            buffers.push(buffer);
        }
    }
}
