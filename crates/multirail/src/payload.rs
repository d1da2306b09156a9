//! Where a message's bytes come from and where they go: memory, or anything addressable.

use crate::error::{Error, Result};

/// The bytes of one message that is being sent. Ranges are asked for in any order, some more than once.
///
/// It cannot fail: a source that meets an error (a file that shrank) remembers it, gives zeros, and tells in what it sends next.
pub trait Source: Send {
    /// Length of the message in bytes.
    fn total_bytes(&self) -> u64;
    /// Bytes from `offset` on: at least one, at most `want` (which is not 0). `channel` asks in order within a run, so that
    /// a source can keep one buffer a channel.
    fn bytes(&mut self, channel: usize, offset: u64, want: usize) -> &[u8];
}

/// Where one message is received into.
///
/// It cannot fail after [`Sink::begin`]: a sink that meets an error (a full disk) remembers it and throws the rest away.
pub trait Sink: Send {
    /// The message's length is known. Refusing leaves the message where it is, for another sink.
    fn begin(&mut self, total_bytes: u64) -> Result<()>;
    /// Room for bytes from `offset` on: at least one, at most `want` (which is not 0).
    fn space(&mut self, channel: usize, offset: u64, want: usize) -> &mut [u8];
    /// `count` bytes have arrived in the room last given to `channel` for `offset`. The same bytes can arrive twice.
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

/// A buffer in memory that the message must fit.
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
    /// What has arrived.
    pub bytes: Vec<u8>,
    /// Longer messages are refused.
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
        self.bytes.resize(total_bytes as usize, 0);
        Ok(())
    }
    fn space(&mut self, _: usize, offset: u64, want: usize) -> &mut [u8] {
        let start = offset as usize;
        &mut self.bytes[start..start + want]
    }
    fn filled(&mut self, _: usize, _: u64, _: usize) {}
}
