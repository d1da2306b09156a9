//! Where a message's bytes come from and where they go: memory, or anything addressable.

use crate::error::{Error, Result};

/// The bytes of one message to send. Ranges are requested in any order, and some more than once.
///
/// It cannot fail. A source that meets an error, such as a file that shrank, records it, supplies
/// zeros, and reports the error in a later message.
pub trait Source: Send {
    /// Length of the message in bytes.
    fn total_bytes(&self) -> u64;
    /// Bytes from `offset` on: at least one, at most `want`, which is not 0. A channel asks for the
    /// bytes of a run in order, so that a source can keep one buffer for each channel.
    fn bytes(&mut self, channel: usize, offset: u64, want: usize) -> &[u8];
    /// Called now and then while the message is sent: the peer has received `bytes` of it, as far as
    /// is known. When sending has succeeded it has all of them.
    fn confirmed(&mut self, bytes: u64) {
        let _ = bytes;
    }
}

/// Where one message is stored as it is received.
///
/// It cannot fail after [`Sink::begin`]. A sink that meets an error, such as a full disk, records
/// it and discards the rest.
pub trait Sink: Send {
    /// Called when the message's length is known. An error leaves the message pending for another
    /// sink.
    fn begin(&mut self, total_bytes: u64) -> Result<()>;
    /// Room for bytes from `offset` on: at least one, at most `want`, which is not 0.
    fn space(&mut self, channel: usize, offset: u64, want: usize) -> &mut [u8];
    /// Called when `count` bytes have arrived in the room last given to `channel` for `offset`. The
    /// same bytes can arrive twice.
    fn filled(&mut self, channel: usize, offset: u64, count: usize);
}

/// A message in memory.
#[derive(Debug)]
pub struct SliceSource<'a>(pub &'a [u8]);

impl Source for SliceSource<'_> {
    fn total_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn bytes(&mut self, _: usize, offset: u64, want: usize) -> &[u8] {
        let start = offset as usize;
        &self.0[start..start + want]
    }
}

/// A buffer in memory. The message must fit in it.
#[derive(Debug)]
pub struct SliceSink<'a>(pub &'a mut [u8]);

impl Sink for SliceSink<'_> {
    fn begin(&mut self, total_bytes: u64) -> Result<()> {
        let buffer_bytes = self.0.len() as u64;
        if total_bytes > buffer_bytes {
            return Err(Error::MessageTooLarge { message_bytes: total_bytes, buffer_bytes });
        }
        Ok(())
    }
    fn space(&mut self, _: usize, offset: u64, want: usize) -> &mut [u8] {
        let start = offset as usize;
        &mut self.0[start..start + want]
    }
    fn filled(&mut self, _: usize, _: u64, _: usize) {}
}

/// A buffer that grows to the message, up to a limit.
#[derive(Debug)]
pub struct VecSink {
    /// The bytes that have arrived.
    pub bytes: Vec<u8>,
    /// The limit, in bytes; longer messages are refused.
    pub limit_bytes: u64,
}

impl VecSink {
    /// An empty buffer for messages of at most `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        Self { bytes: Vec::new(), limit_bytes }
    }
}

impl Sink for VecSink {
    fn begin(&mut self, total_bytes: u64) -> Result<()> {
        if total_bytes > self.limit_bytes {
            return Err(Error::MessageTooLarge { message_bytes: total_bytes, buffer_bytes: self.limit_bytes });
        }
        let length = total_bytes as usize;
        if length <= self.bytes.capacity() {
            self.bytes.resize(length, 0);
        } else {
            // Fresh zeroed memory: the system provides a page when bytes arrive for it, not before.
            self.bytes = Vec::new();
            self.bytes = vec![0; length];
        }
        Ok(())
    }
    fn space(&mut self, _: usize, offset: u64, want: usize) -> &mut [u8] {
        let start = offset as usize;
        &mut self.bytes[start..start + want]
    }
    fn filled(&mut self, _: usize, _: u64, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of this process that is in use, in bytes.
    fn resident_bytes() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[test]
    fn an_announced_message_uses_no_memory_before_it_arrives() {
        let mut sink = VecSink::new(1 << 30);
        let before_bytes = resident_bytes();
        sink.begin(1 << 30).unwrap();
        assert!(resident_bytes() < before_bytes + (64 << 20));
        sink.space(0, 0, 1 << 20).fill(7);
        sink.begin(1 << 20).unwrap();
        assert_eq!(sink.bytes.len(), 1 << 20);
    }
}
