//! A file that is being sent. Each block is read once, hashed while it is in memory, and sent from
//! there.
//!
//! Three numberings of bytes meet here. The file has offsets. Its data without holes, which is what is
//! hashed, is cut into blocks. What the receiver lacks of the data is sent, in one message or several.

use super::blocks::BlockHashes;
use super::pieces::Pieces;
use multirail_net::payload::Source;
use multirail_tree::report::{Cause, Problem, Progress, read_problem};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The most blocks in memory, for any number of channels: 32 MiB of large ones.
const MAX_BUFFERS: usize = 128;
/// Other tasks of this thread run after this many blocks that are only hashed.
const BLOCKS_AT_ONCE: u64 = 16;

#[cfg(test)]
pub(super) type Tamper = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

/// Sends what the peer wants of one file, as one message.
pub(super) struct FileSource<'a> {
    file: &'a File,
    data: Pieces,
    wanted: Pieces,
    hashes: BlockHashes,
    buffers: Vec<Buffer>,
    problem: Option<Problem>,
    /// Bytes that the peer is known to have, of those that it wanted.
    confirmed_bytes: u64,
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
    /// Sends `wanted` of the `data` of the file.
    pub(super) fn new(file: &'a File, data: Pieces, wanted: Pieces, progress: Arc<Progress>) -> Self {
        Self {
            file,
            hashes: BlockHashes::new(data.bytes()),
            data,
            wanted,
            buffers: Vec::new(),
            problem: None,
            confirmed_bytes: 0,
            progress,
            #[cfg(test)]
            tamper: None,
        }
    }

    /// The data's hash, or why the bytes that were sent are not the file's. The peer has all of them.
    pub(super) async fn finish(mut self) -> Result<[u8; 32], Problem> {
        self.confirmed(self.wanted.bytes());
        // A block that no channel has asked for is hashed here, so that the hash covers all data.
        self.buffers.truncate(1);
        if self.buffers.is_empty() {
            self.buffers.push(Buffer { block: u64::MAX, bytes: Vec::new() });
        }
        for block in self.hashes.missing().into_iter().flatten() {
            self.load(0, block);
            if block % BLOCKS_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
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
        let mut rest = &mut buffer.bytes[..];
        for piece in self.data.ranges(range.clone()) {
            let (part, after) = rest.split_at_mut((piece.end - piece.start) as usize);
            if let Err(error) = self.file.read_exact_at(part, piece.start) {
                part.fill(0);
                self.problem.get_or_insert_with(|| read_problem(&error));
            }
            rest = after;
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
        self.wanted.bytes()
    }

    fn bytes(&mut self, channel: usize, offset: u64, want: usize) -> &[u8] {
        let (offset, left) = self.wanted.place(offset);
        let block = offset / self.hashes.block_bytes();
        // With small fragments, several channels read from one block in turn.
        let slot = match self.buffers.iter().position(|b| b.block == block) {
            Some(slot) => slot,
            None => {
                let slot = channel % MAX_BUFFERS;
                while self.buffers.len() <= slot {
                    self.buffers.push(Buffer { block: u64::MAX, bytes: Vec::new() });
                }
                self.load(slot, block);
                slot
            }
        };
        let within = (offset - block * self.hashes.block_bytes()) as usize;
        let bytes = &self.buffers[slot].bytes[within..];
        &bytes[..want.min(bytes.len()).min(usize::try_from(left).unwrap_or(usize::MAX))]
    }

    fn confirmed(&mut self, bytes: u64) {
        // What is sent twice is unconfirmed again for a while.
        let more = bytes.saturating_sub(self.confirmed_bytes);
        self.confirmed_bytes += more;
        self.progress.add_bytes(more);
    }
}
