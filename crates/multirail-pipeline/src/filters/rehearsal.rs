//! The filters of a rehearsal, which every host can make: they compute nothing.

use crate::runtime::{CopyInfo, Failure, Filter, Io, MakeFilter};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A source that writes the chunks that it is asked for.
pub(crate) const SOURCE_KIND: &str = "rehearse-source";
/// A filter that passes chunks on.
pub(crate) const PASS_KIND: &str = "rehearse-pass";
/// Largest chunk that a host accepts a request for.
const MAX_CHUNK_BYTES: u64 = 64 << 20;
/// Most chunks that a host accepts a request for.
pub(crate) const MAX_CHUNKS: u64 = 1 << 24;

/// A request to the source.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Request {
    pub chunks: u64,
    pub chunk_bytes: u64,
}

/// The maker of one of these kinds.
pub(super) fn maker(kind: &str) -> Option<MakeFilter> {
    match kind {
        SOURCE_KIND => Some(Arc::new(|_: &CopyInfo| -> Result<Box<dyn Filter>, Failure> { Ok(Box::new(source)) })),
        PASS_KIND => Some(Arc::new(|_: &CopyInfo| -> Result<Box<dyn Filter>, Failure> { Ok(Box::new(pass)) })),
        _ => None,
    }
}

fn source(io: &mut Io<'_>) -> Result<(), Failure> {
    while let Some(received) = io.read()? {
        let Request { chunks, chunk_bytes } = postcard::from_bytes(&received.body)?;
        if chunk_bytes > MAX_CHUNK_BYTES || chunks > MAX_CHUNKS {
            return Err(format!("a rehearsal of {chunks} chunks of {chunk_bytes} bytes is too large").into());
        }
        for chunk in 0..chunks {
            let body = io.buffer_of(chunk_bytes as usize);
            io.write(0, chunk, body)?;
        }
    }
    Ok(())
}

fn pass(io: &mut Io<'_>) -> Result<(), Failure> {
    while let Some(received) = io.read()? {
        io.write(0, received.tag, received.body)?;
    }
    Ok(())
}
