//! Writing to all output streams.

use crate::edge::Buffer;
use crate::runtime::{Failure, Io};

/// Writes a buffer to every output stream of the filter.
pub(super) fn write_to_all(io: &mut Io<'_>, tag: u64, body: Buffer) -> Result<(), Failure> {
    for stream in 1..io.info().outputs {
        let mut copy = io.buffer(body.len());
        copy.extend_from_slice(&body);
        io.write(stream, tag, copy)?;
    }
    io.write(0, tag, body)
}
