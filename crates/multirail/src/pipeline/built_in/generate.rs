//! `generate`: bytes that depend on nothing but where they stand, so that what arrives can be compared.

use super::super::filter::{Failure, Filter, Place};
use super::super::io::Io;
use super::parameters::{Parameters, Size};
use super::write_to_all;
use serde_json::Value;

/// Bytes repeat after so many; a prime, so that no two chunks near each other are alike.
const PERIOD: usize = 251;

/// Every copy writes each so many-th chunk.
pub struct Generate {
    bytes: u64,
    chunk_bytes: u64,
    /// Some periods, to copy from.
    pattern: Vec<u8>,
}

impl Generate {
    pub fn new(parameters: &Value, place: &Place) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let Size(bytes) = parameters.need("bytes")?;
        let chunk_bytes = parameters.take("chunk_bytes")?.map_or(place.chunk_bytes, |Size(bytes)| bytes);
        parameters.end()?;
        if !(1..=place.limit_bytes).contains(&chunk_bytes) {
            let most = place.limit_bytes;
            return Err(format!("its parameter \"chunk_bytes\" is {chunk_bytes}, and must be 1 to {most}").into());
        }
        let pattern = (0..PERIOD * 256).map(|i| (i % PERIOD) as u8).collect();
        Ok(Self { bytes, chunk_bytes, pattern })
    }
}

impl Filter for Generate {
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let (copy, copies) = (io.place().copy, io.place().copies);
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
