//! A file that is being sent: each block is read once, hashed while it is in memory, and sent from where it was read to.

use super::blocks::BlockHashes;
use super::report::{Cause, Problem, Progress, read_problem};
use crate::payload::Source;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Blocks kept in memory at most, however many channels there are: 32 MiB of large ones.
const MAX_BUFFERS: usize = 128;

#[cfg(test)]
pub(super) type Tamper = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

/// One file as a message.
pub(super) struct FileSource<'a> {
    file: &'a File,
    total_bytes: u64,
    hashes: BlockHashes,
    buffers: Vec<Buffer>,
    problem: Option<Problem>,
    progress: Arc<Progress>,
    #[cfg(test)]
    pub(super) tamper: Option<Tamper>,
}

/// A block in memory.
struct Buffer {
    block: u64,
    bytes: Vec<u8>,
}

impl<'a> FileSource<'a> {
    pub(super) fn new(file: &'a File, total_bytes: u64, progress: Arc<Progress>) -> Self {
        Self {
            file,
            total_bytes,
            hashes: BlockHashes::new(total_bytes),
            buffers: Vec::new(),
            problem: None,
            progress,
            #[cfg(test)]
            tamper: None,
        }
    }

    /// The file's hash, or why what was sent is not the file.
    pub(super) fn finish(mut self) -> Result<[u8; 32], Problem> {
        // A block that no channel asked for was sent as padding only, but costs nothing to make sure of.
        for block in self.hashes.missing().into_iter().flatten() {
            self.load(0, block);
        }
        match (self.problem, self.hashes.root()) {
            (Some(problem), _) => Err(problem),
            (None, Some(root)) => Ok(*root.as_bytes()),
            (None, None) => Err(Problem::new(Cause::Read, "not all of it was read")),
        }
    }

    /// Reads `block` into the buffer at `slot`.
    fn load(&mut self, slot: usize, block: u64) {
        let range = self.hashes.range(block);
        let buffer = &mut self.buffers[slot];
        buffer.block = block;
        buffer.bytes.resize((range.end - range.start) as usize, 0);
        if let Err(error) = self.file.read_exact_at(&mut buffer.bytes, range.start) {
            buffer.bytes.fill(0);
            self.problem.get_or_insert_with(|| read_problem(&error));
        }
        self.hashes.insert(block, &buffer.bytes);
        #[cfg(test)]
        if let Some(tamper) = &self.tamper {
            tamper(range.start, &mut buffer.bytes);
        }
    }
}

impl Source for FileSource<'_> {
    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn bytes(&mut self, channel: usize, offset: u64, want: usize) -> &[u8] {
        let block = offset / self.hashes.block_bytes();
        // Strategies with small fragments have several channels take turns in one block.
        let slot = match self.buffers.iter().position(|b| b.block == block) {
            Some(slot) => slot,
            None => {
                let slot = channel % MAX_BUFFERS;
                while self.buffers.len() <= slot {
                    self.buffers.push(Buffer { block: u64::MAX, bytes: Vec::new() });
                }
                self.load(slot, block);
                self.progress.add_bytes(self.buffers[slot].bytes.len() as u64);
                slot
            }
        };
        let within = (offset - block * self.hashes.block_bytes()) as usize;
        let bytes = &self.buffers[slot].bytes[within..];
        &bytes[..want.min(bytes.len())]
    }
}
