//! A file that is being received: pieces in any order, some twice, gathered to blocks that are hashed and written whole.

use super::blocks::BlockHashes;
use super::report::{Cause, Problem, Progress};
use crate::error::Result;
use crate::payload::Sink;
use multirail_proto::ledger::Ledger;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Blocks that are open at once, beyond one a channel: a run's end and the next one's begin meet in a block.
const SPARE_BLOCKS: usize = 8;
/// Never more open blocks: 32 MiB of large ones. With more channels, blocks are written in pieces and read again at the end.
const MAX_OPEN_BLOCKS: usize = 128;
/// What arrives and is not needed goes here.
const SCRATCH_BYTES: usize = 64 << 10;

/// One message as a file.
pub(super) struct FileSink {
    /// `None`: there is nowhere to write to, and the message only has to get out of the way.
    file: Option<File>,
    hashes: BlockHashes,
    /// In the order of their last use, so that the first is the one to give up.
    open: Vec<OpenBlock>,
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
    channels: usize,
    problem: Option<Problem>,
    progress: Arc<Progress>,
}

/// A block of which something has arrived.
struct OpenBlock {
    block: u64,
    bytes: Vec<u8>,
    /// What has arrived, in bytes of the block.
    arrived: Ledger,
}

impl FileSink {
    /// Writes to `file`; with none, throws everything away.
    pub(super) fn new(file: Option<File>, total_bytes: u64, progress: Arc<Progress>) -> Self {
        Self {
            file,
            hashes: BlockHashes::new(total_bytes),
            open: Vec::new(),
            spare: Vec::new(),
            scratch: Vec::new(),
            channels: 0,
            problem: None,
            progress,
        }
    }

    /// Writes what is left and reads again the blocks that were written in pieces. The hash of what is in the file.
    pub(super) fn finish(mut self) -> Result<[u8; 32], Problem> {
        while !self.open.is_empty() {
            self.give_up(0);
        }
        let mut bytes = Vec::new();
        for block in self.hashes.missing().into_iter().flatten() {
            let (Some(file), None) = (&self.file, &self.problem) else { break };
            let range = self.hashes.range(block);
            bytes.resize((range.end - range.start) as usize, 0);
            match file.read_exact_at(&mut bytes, range.start) {
                Ok(()) => self.hashes.insert(block, &bytes),
                Err(error) => self.problem = Some(Problem::io(Cause::Write, &error)),
            }
        }
        match (self.problem, self.hashes.root()) {
            (Some(problem), _) => Err(problem),
            (None, Some(root)) => Ok(*root.as_bytes()),
            (None, None) => Err(Problem::new(Cause::Write, "not all of it was written")),
        }
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        let (Some(file), None) = (&self.file, &self.problem) else { return };
        if let Err(error) = file.write_all_at(bytes, offset) {
            self.problem = Some(Problem::io(Cause::Write, &error));
        }
    }

    /// Where `block` is in the list of open ones: at its end, as the last used.
    fn open(&mut self, block: u64) -> usize {
        let last = self.open.len();
        match self.open.iter().rposition(|o| o.block == block) {
            Some(at) if at + 1 == last => at,
            Some(at) => {
                let open = self.open.remove(at);
                self.open.push(open);
                last - 1
            }
            None => {
                if last >= (self.channels + SPARE_BLOCKS).min(MAX_OPEN_BLOCKS) {
                    self.give_up(0);
                }
                let range = self.hashes.range(block);
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.resize((range.end - range.start) as usize, 0);
                self.open.push(OpenBlock { block, bytes, arrived: Ledger::default() });
                self.open.len() - 1
            }
        }
    }

    /// Writes the pieces of the open block at `at` and forgets it: it is hashed at the end, from the file.
    fn give_up(&mut self, at: usize) {
        let open = self.open.remove(at);
        let mut from = 0;
        let start = self.hashes.range(open.block).start;
        let length = open.bytes.len() as u64;
        for gap in open.arrived.missing(0..length).into_iter().chain(std::iter::once(length..length)) {
            if from < gap.start {
                self.write(&open.bytes[from as usize..gap.start as usize], start + from);
            }
            from = gap.end;
        }
        self.spare.push(open.bytes);
    }
}

impl Sink for FileSink {
    fn begin(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn space(&mut self, channel: usize, offset: u64, want: usize) -> &mut [u8] {
        self.channels = self.channels.max(channel + 1);
        let block = offset / self.hashes.block_bytes();
        let range = self.hashes.range(block);
        // Never beyond the block: it may be here already, and the next one not.
        let want = want.min((range.end - offset) as usize);
        if self.file.is_none() || self.problem.is_some() || self.hashes.is_hashed(block) {
            self.scratch.resize(SCRATCH_BYTES, 0);
            return &mut self.scratch[..want.min(SCRATCH_BYTES)];
        }
        let at = self.open(block);
        let within = (offset - range.start) as usize;
        &mut self.open[at].bytes[within..within + want]
    }

    fn filled(&mut self, _: usize, offset: u64, count: usize) {
        self.progress.add_bytes(count as u64);
        let block = offset / self.hashes.block_bytes();
        let Some(at) = self.open.iter().rposition(|o| o.block == block) else { return };
        let open = &mut self.open[at];
        let within = offset - block * self.hashes.block_bytes();
        open.arrived.insert(within..within + count as u64);
        if open.arrived.bytes() == open.bytes.len() as u64 {
            let open = self.open.remove(at);
            self.hashes.insert(block, &open.bytes);
            self.write(&open.bytes, self.hashes.range(block).start);
            self.spare.push(open.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Seek};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Pieces of a message by any channel, in any order, some bytes again in other pieces, more open blocks than are kept.
        #[test]
        fn the_file_and_its_hash_are_the_message(
            total in 1u64..1_500_000,
            cuts in prop::collection::vec(any::<u64>(), 0..40),
            keys in prop::collection::vec((any::<u32>(), 0usize..3), 41),
            again in prop::collection::vec((any::<u32>(), 3usize..6, any::<u64>(), any::<u64>()), 0..6),
        ) {
            let content: Vec<u8> = (0..total).map(|i| (i * 31 + i / 251) as u8).collect();
            let mut cuts: Vec<u64> = cuts.into_iter().map(|c| c % total).chain([0, total]).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            for (pair, (key, channel)) in cuts.windows(2).zip(&keys) {
                pieces.push((*key, *channel, pair[0]..pair[1]));
            }
            for (key, channel, from, to) in again {
                let (from, to) = (from % total, to % total);
                pieces.push((key, channel, from.min(to)..from.max(to)));
            }
            pieces.sort_by_key(|p| p.0);
            let path = std::env::temp_dir().join(format!("multirail-sink-{}", std::process::id()));
            let options = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
            let mut file = options.unwrap();
            std::fs::remove_file(&path).unwrap();
            let mut sink = FileSink::new(Some(file.try_clone().unwrap()), total, Arc::default());
            for (_, channel, range) in pieces {
                let mut at = range.start;
                while at < range.end {
                    let room = sink.space(channel, at, (range.end - at) as usize);
                    let n = room.len();
                    room.copy_from_slice(&content[at as usize..at as usize + n]);
                    sink.filled(channel, at, n);
                    at += n as u64;
                }
            }
            let hash = sink.finish().map_err(|p| TestCaseError::fail(p.reason))?;
            let mut written = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut written).unwrap();
            prop_assert!(written == content);
            prop_assert_eq!(hash, *blake3::hash(&content).as_bytes());
        }
    }
}
