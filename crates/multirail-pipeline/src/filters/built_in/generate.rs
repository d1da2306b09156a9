//! `generate`: bytes that depend on their position only, so that the receiver can compare them.

use super::to_all::write_to_all;
use crate::filters::{Parameters, Size};
use crate::runtime::{CopyInfo, Failure, Filter, Io};
use serde_json::Value;

/// Period of the bytes: a prime, so that neighbouring chunks differ.
const PERIOD: usize = 251;

/// Generates bytes. With n copies, each copy writes every n-th chunk.
pub(super) struct Generate {
    bytes: u64,
    chunk_bytes: u64,
    /// Several periods, to copy from.
    pattern: Vec<u8>,
}

impl Generate {
    pub(super) fn new(parameters: &Value, info: &CopyInfo) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let Size(bytes) = parameters.need("bytes")?;
        let chunk_bytes = parameters.take("chunk_bytes")?.map_or(info.chunk_bytes, |Size(bytes)| bytes);
        parameters.end()?;
        if !(1..=info.limit_bytes).contains(&chunk_bytes) {
            let most = info.limit_bytes;
            return Err(format!("its parameter \"chunk_bytes\" is {chunk_bytes}, and must be 1 to {most}").into());
        }
        let pattern = (0..PERIOD * 256).map(|i| (i % PERIOD) as u8).collect();
        Ok(Self { bytes, chunk_bytes, pattern })
    }
}

impl Filter for Generate {
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let (copy, copies) = (io.info().copy, io.info().copies);
        for tag in (0..self.bytes.div_ceil(self.chunk_bytes)).skip(copy).step_by(copies) {
            let start = tag * self.chunk_bytes;
            let length = self.chunk_bytes.min(self.bytes - start) as usize;
            let mut body = io.buffer(length);
            while body.len() < length {
                let at = ((start + body.len() as u64) % PERIOD as u64) as usize;
                let some = (length - body.len()).min(self.pattern.len() - at);
                body.extend_from_slice(&self.pattern[at..at + some]);
            }
            write_to_all(io, tag, body)?;
        }
        Ok(())
    }
}
