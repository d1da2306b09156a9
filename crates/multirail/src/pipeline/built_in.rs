//! Filters that every host can make. Each takes its parameters from the group's description.

mod compute;
mod generate;
mod parameters;
mod read;
mod relay;
mod write;

pub(super) use parameters::{Parameters, Size};

use super::filter::Failure;
use super::io::Io;
use super::registry::Filters;
use crate::transport::Buffer;
use std::path::Path;
use std::sync::Arc;

/// Why a server runs no programs unless it is told to.
const NO_PROGRAMS: &str =
    "this host runs no programs for others; start its server with --allow-programs to change that";

impl Filters {
    /// The kinds that come with multirail; files are read and written below `root`, and nowhere else.
    ///
    /// | kind | parameters | what it does |
    /// | --- | --- | --- |
    /// | `generate` | `bytes`, `chunk_bytes` | writes so many bytes, every copy its part |
    /// | `read` | `file` | writes a file's chunks, every copy its part |
    /// | `write` | `file` | makes a file of all buffers, in the order of their tags |
    /// | `compute` | `ns_per_byte`, `slow` | works on each buffer for so long, and passes it on |
    /// | `pass` | | passes buffers on |
    /// | `discard` | | reads, and no more |
    ///
    /// Sizes are numbers of bytes, or text as `"64k"`. A source's tags are the chunks' numbers.
    pub fn built_in(root: &Path) -> Self {
        let root: Arc<Path> = root.into();
        let (for_read, for_write) = (root.clone(), root);
        Self::none()
            .with("generate", generate::Generate::new)
            .with("read", move |parameters, place| read::Read::new(parameters, place, for_read.clone()))
            .with("write", move |parameters, place| write::Write::new(parameters, place, for_write.clone()))
            .with("compute", compute::Compute::new)
            .with("pass", relay::pass)
            .with("discard", relay::discard)
            .without("program", NO_PROGRAMS)
    }
}

/// Writes a buffer to every stream that leads out.
fn write_to_all(io: &mut Io<'_>, tag: u64, body: Buffer) -> Result<(), Failure> {
    for stream in 1..io.place().outputs {
        let mut copy = io.buffer(body.len());
        copy.extend_from_slice(&body);
        io.write(stream, tag, copy)?;
    }
    io.write(0, tag, body)
}

#[cfg(test)]
mod tests;
