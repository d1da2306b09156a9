//! A file that is being received. Pieces arrive in any order and may repeat. The sink gathers them
//! into blocks, which it hashes and writes.

use super::ahead::Ahead;
use super::blocks::BlockHashes;
use super::pieces::{MAX_PIECES, Pieces};
use multirail_net::error::{Error, Result};
use multirail_net::payload::Sink;
use multirail_proto::ledger::Ledger;
use multirail_tree::journal::Journal;
use multirail_tree::report::{Cause, Problem, Progress};
use multirail_tree::space::allocate;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Open blocks in addition to one for each channel. The end of one run and the start of the next
/// can share a block.
const SPARE_BLOCKS: usize = 8;
/// The most open blocks: 32 MiB of large ones. With more channels, blocks are written in pieces and
/// read again at the end.
const MAX_OPEN_BLOCKS: usize = 128;
/// The size of the buffer for bytes that are thrown away.
const SCRATCH_BYTES: usize = 64 << 10;
/// How many hashes are read from a journal at once: 128 KiB.
const HASHES_AT_ONCE: usize = 4096;

/// Receives one file, as one message or several. The numberings of bytes are those of
/// [`super::source`].
pub(super) struct FileSink {
    /// The destination; `None` if the messages are thrown away.
    file: Option<File>,
    data: Pieces,
    wanted: Pieces,
    /// Where blocks are noted that have been written.
    journal: Option<Journal>,
    /// Is set when a block is noted, so that another copy can continue.
    resumable: Arc<AtomicBool>,
    ahead: Option<Ahead>,
    hashes: BlockHashes,
    /// Open blocks, least recently used first.
    open: Vec<OpenBlock>,
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
    channels: usize,
    /// What earlier messages have brought, in bytes.
    received_bytes: u64,
    /// The length of the present message.
    message_bytes: u64,
    pub(super) trouble: Arc<Trouble>,
    progress: Arc<Progress>,
}

/// The first failure of a sink, so that no task waits for the rest of the file.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    problem: OnceLock<Problem>,
    notify: Notify,
}

impl Trouble {
    /// The failure so far.
    pub(super) fn get(&self) -> Option<&Problem> {
        self.problem.get()
    }

    /// Waits for a failure.
    pub(super) async fn wait(&self) -> Problem {
        loop {
            let notified = self.notify.notified();
            if let Some(problem) = self.get() {
                return problem.clone();
            }
            notified.await;
        }
    }

    fn set(&self, error: &std::io::Error) {
        let _ = self.problem.set(Problem::io(Cause::Write, error));
        self.notify.notify_one();
    }
}

/// A block that has arrived in part.
struct OpenBlock {
    block: u64,
    bytes: Vec<u8>,
    /// Ranges of the block that have arrived, in bytes.
    arrived: Ledger,
}

impl FileSink {
    /// A sink that writes the `data` of a file to `file`, or throws everything away without one.
    pub(super) fn new(file: Option<File>, data: Pieces, progress: Arc<Progress>) -> Self {
        let total_bytes = data.bytes();
        // Room ahead would fill holes.
        let is_sparse = data.place(0).1 < total_bytes;
        Self {
            file,
            wanted: Pieces::whole(total_bytes),
            data,
            journal: None,
            resumable: Arc::default(),
            ahead: (!is_sparse).then(Ahead::default),
            hashes: BlockHashes::new(total_bytes),
            open: Vec::new(),
            spare: Vec::new(),
            scratch: Vec::new(),
            channels: 0,
            received_bytes: 0,
            message_bytes: 0,
            trouble: Arc::default(),
            progress,
        }
    }

    /// Continues what an earlier copy has brought, as far as the `journal` says so and the content
    /// agrees with it, and notes in the journal what arrives from now on. It reads all of what is
    /// there.
    pub(super) fn resume(&mut self, journal: Journal, resumable: Arc<AtomicBool>) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for first in (0..self.hashes.count()).step_by(HASHES_AT_ONCE) {
            let count = (self.hashes.count() - first).min(HASHES_AT_ONCE as u64) as usize;
            for (block, hash) in (first..).zip(journal.read(first, count)?) {
                if hash == [0; 32] {
                    continue;
                }
                // Each gap between blocks is a range on the wire.
                if self.hashes.ranges() >= MAX_PIECES - 1 && !self.hashes.follows(block) {
                    continue;
                }
                self.read_block(block, &mut bytes)?;
                if self.hashes.hash_of(block, &bytes) == hash {
                    self.hashes.insert_hash(block, hash);
                }
            }
        }
        self.wanted = Pieces::new(self.hashes.missing_bytes());
        self.journal = Some(journal);
        resumable.store(self.hashes.ranges() > 0, Ordering::Relaxed);
        self.resumable = resumable;
        Ok(())
    }

    /// What of the data the sender has to send.
    pub(super) fn wanted(&self) -> &Pieces {
        &self.wanted
    }

    /// What was wanted and is in the file, in whole blocks.
    pub(super) fn stored_bytes(&self) -> u64 {
        let missing = Pieces::new(self.hashes.missing_bytes());
        self.wanted.bytes().saturating_sub(missing.bytes())
    }

    /// Whether everything has arrived that is wanted.
    pub(super) fn is_complete(&self) -> bool {
        self.received_bytes >= self.wanted.bytes()
    }

    /// Ends a message that has arrived.
    pub(super) fn end_message(&mut self) {
        self.received_bytes += std::mem::take(&mut self.message_bytes);
    }

    /// Writes the open blocks, reads again the blocks that were written in pieces, and returns the
    /// hash of the data.
    pub(super) fn finish(&mut self) -> Result<[u8; 32], Problem> {
        while !self.open.is_empty() {
            self.give_up(0);
        }
        let mut bytes = Vec::new();
        for block in self.hashes.missing().into_iter().flatten() {
            if self.file.is_none() || self.trouble.get().is_some() {
                break;
            }
            match self.read_block(block, &mut bytes) {
                Ok(()) => drop(self.hashes.insert(block, &bytes)),
                Err(error) => self.trouble.set(&error),
            }
        }
        match (self.trouble.get(), self.hashes.root()) {
            (Some(problem), _) => Err(problem.clone()),
            (None, Some(root)) => Ok(*root.as_bytes()),
            (None, None) => Err(Problem::new(Cause::Write, "not all of it was written")),
        }
    }

    fn read_block(&self, block: u64, bytes: &mut Vec<u8>) -> std::io::Result<()> {
        let range = self.hashes.range(block);
        bytes.resize((range.end - range.start) as usize, 0);
        let Some(file) = &self.file else { return Ok(()) };
        let mut rest = &mut bytes[..];
        for piece in self.data.ranges(range) {
            let (part, after) = rest.split_at_mut((piece.end - piece.start) as usize);
            file.read_exact_at(part, piece.start)?;
            rest = after;
        }
        Ok(())
    }

    /// Writes data from `offset` on.
    fn write(&mut self, bytes: &[u8], offset: u64) {
        let (Some(file), None) = (&self.file, self.trouble.get()) else { return };
        let mut rest = bytes;
        for piece in self.data.ranges(offset..offset + bytes.len() as u64) {
            let (part, after) = rest.split_at((piece.end - piece.start) as usize);
            if let Err(error) = file.write_all_at(part, piece.start) {
                return self.trouble.set(&error);
            }
            rest = after;
        }
    }

    /// Moves `block` to the end of the list of open blocks and returns its index.
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

    /// Writes the pieces of the open block at index `at` and drops it. It is hashed from the file
    /// at the end.
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

    /// Writes a block that is complete, and notes it.
    fn store(&mut self, open: OpenBlock) {
        let range = self.hashes.range(open.block);
        let hash = self.hashes.insert(open.block, &open.bytes);
        let total_bytes = self.hashes.total_bytes();
        let ahead = self.ahead.as_mut().and_then(|ahead| ahead.write(range.clone(), total_bytes));
        if let (Some(file), Some(ahead)) = (&self.file, ahead) {
            allocate(file, ahead);
        }
        self.write(&open.bytes, range.start);
        if let (Some(journal), Some(hash), None) = (&self.journal, hash, self.trouble.get()) {
            match journal.confirm(open.block, &hash) {
                Ok(()) => self.resumable.store(true, Ordering::Relaxed),
                Err(error) => self.trouble.set(&error),
            }
        }
        self.spare.push(open.bytes);
    }
}

impl Sink for FileSink {
    fn begin(&mut self, total_bytes: u64) -> Result<()> {
        let left_bytes = self.wanted.bytes() - self.received_bytes;
        if total_bytes == 0 || total_bytes > left_bytes {
            return Err(Error::Protocol(format!("{total_bytes} bytes of a file came where {left_bytes} were left")));
        }
        self.message_bytes = total_bytes;
        Ok(())
    }

    fn space(&mut self, channel: usize, offset: u64, want: usize) -> &mut [u8] {
        self.channels = self.channels.max(channel + 1);
        let (offset, left) = self.wanted.place(self.received_bytes + offset);
        let block = offset / self.hashes.block_bytes();
        let range = self.hashes.range(block);
        // The next block may be complete while this one is not, so a space never crosses into it.
        let want = want.min((range.end - offset).min(left) as usize);
        if self.file.is_none() || self.trouble.get().is_some() || self.hashes.is_hashed(block) {
            self.scratch.resize(SCRATCH_BYTES, 0);
            return &mut self.scratch[..want.min(SCRATCH_BYTES)];
        }
        let at = self.open(block);
        let within = (offset - range.start) as usize;
        &mut self.open[at].bytes[within..within + want]
    }

    fn filled(&mut self, _: usize, offset: u64, count: usize) {
        let (offset, _) = self.wanted.place(self.received_bytes + offset);
        let block = offset / self.hashes.block_bytes();
        let Some(at) = self.open.iter().rposition(|o| o.block == block) else { return };
        let open = &mut self.open[at];
        let within = offset - block * self.hashes.block_bytes();
        let new_bytes = open.arrived.insert(within..within + count as u64);
        self.progress.add_bytes(new_bytes);
        if open.arrived.bytes() == open.bytes.len() as u64 {
            let open = self.open.remove(at);
            self.store(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use multirail_tree::journal::Identity;
    use proptest::prelude::*;
    use std::io::{Read, Seek};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The file has holes, and is sent in two messages. An earlier copy was stopped, and the disk has
        /// lost a block since. Pieces arrive by any channel, in any order and overlapping, with more
        /// blocks open than are kept.
        #[test]
        fn the_file_and_its_hash_are_the_data(
            total in 1u64..1_500_000,
            holes in prop::collection::vec((0u64..1_500_000, 1u64..100_000), 0..3),
            stopped in (any::<prop::sample::Index>(), any::<bool>()),
            split in any::<prop::sample::Index>(),
            cuts in prop::collection::vec(any::<u64>(), 0..40),
            keys in prop::collection::vec((any::<u32>(), 0usize..3), 41),
            again in prop::collection::vec((any::<u32>(), 3usize..6, any::<u64>(), any::<u64>()), 0..6),
        ) {
            let mut content: Vec<u8> = (0..total).map(|i| (i * 31 + i / 251) as u8).collect();
            let mut is_data = vec![true; total as usize];
            for (start, length) in holes {
                let hole = start.min(total) as usize..(start + length).min(total) as usize;
                content[hole.clone()].fill(0);
                is_data[hole].fill(false);
            }
            let chunks = is_data.chunk_by(|one, other| one == other);
            let data = chunks.scan(0, |at, chunk| {
                let start = *at;
                *at += chunk.len() as u64;
                Some(if chunk[0] { start..*at } else { start..start })
            });
            let data = Pieces::new(data);
            let packed: Vec<u8> =
                data.ranges(0..data.bytes()).flat_map(|r| content[r.start as usize..r.end as usize].to_vec()).collect();
            let path = std::env::temp_dir().join(format!("multirail-sink-{}", std::process::id()));
            let options = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
            let mut file = options.unwrap();
            std::fs::remove_file(&path).unwrap();
            let blocks = BlockHashes::new(data.bytes()).count();
            let identity = Identity { total_bytes: total, blocks, fingerprint: [1; 32] };
            let mut sink = FileSink::new(Some(file.try_clone().unwrap()), data.clone(), Arc::default());
            if blocks > 1 {
                let journal = Journal::begin(&file, &identity).unwrap();
                sink.resume(journal, Arc::default()).unwrap();
                let stopped_at = stopped.0.index(packed.len());
                deliver(&mut sink, 0, 0..stopped_at as u64, &packed);
                drop(sink);
                if stopped.1 {
                    file.write_all_at(&[0xaa; 1], data.place(0).0).unwrap();
                }
                let journal = Journal::open(&file, &identity).unwrap().unwrap();
                sink = FileSink::new(Some(file.try_clone().unwrap()), data.clone(), Arc::default());
                sink.resume(journal, Arc::default()).unwrap();
                let whole = stopped_at as u64 / (64 << 10) - u64::from(stopped.1 && stopped_at >= 64 << 10);
                prop_assert_eq!(sink.wanted().bytes(), packed.len() as u64 - whole * (64 << 10));
            } else {
                file.set_len(total).unwrap();
            }
            let wanted: Vec<u8> = sink.wanted().clone().ranges(0..sink.wanted().bytes())
                .flat_map(|r| packed[r.start as usize..r.end as usize].to_vec()).collect();
            let first = split.index(wanted.len() + 1);
            for message in [&wanted[..first], &wanted[first..]] {
                let length = message.len() as u64;
                if length == 0 {
                    continue;
                }
                sink.begin(length).unwrap();
                let mut cuts: Vec<u64> = cuts.iter().map(|c| c % length).chain([0, length]).collect();
                cuts.sort_unstable();
                let mut pieces = Vec::new();
                for (pair, (key, channel)) in cuts.windows(2).zip(&keys) {
                    pieces.push((*key, *channel, pair[0]..pair[1]));
                }
                for (key, channel, from, to) in &again {
                    let (from, to) = (from % length, to % length);
                    pieces.push((*key, *channel, from.min(to)..from.max(to)));
                }
                pieces.sort_by_key(|p| p.0);
                for (_, channel, range) in pieces {
                    deliver(&mut sink, channel, range, message);
                }
                sink.end_message();
            }
            prop_assert!(sink.is_complete());
            let hash = sink.finish().map_err(|p| TestCaseError::fail(p.reason))?;
            file.set_len(total).unwrap();
            let mut written = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut written).unwrap();
            prop_assert!(written == content);
            prop_assert_eq!(hash, *blake3::hash(&packed).as_bytes());
        }
    }

    /// Gives the sink `range` of a message.
    fn deliver(sink: &mut FileSink, channel: usize, range: std::ops::Range<u64>, message: &[u8]) {
        let mut at = range.start;
        while at < range.end {
            let room = sink.space(channel, at, (range.end - at) as usize);
            let n = room.len();
            room.copy_from_slice(&message[at as usize..at as usize + n]);
            sink.filled(channel, at, n);
            at += n as u64;
        }
    }

    /// `/dev/full` fails every write as a full disk does.
    #[test]
    fn a_full_disk_is_told_at_once() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut sink = FileSink::new(Some(full), Pieces::whole(10 << 20), Arc::default());
        let trouble = sink.trouble.clone();
        sink.begin(10 << 20).unwrap();
        deliver(&mut sink, 0, 0..64 << 10, &[7; 64 << 10]);
        let waiting = futures_util::FutureExt::now_or_never(trouble.wait());
        assert_eq!(waiting.expect("at once").reason, "No space left on device");
    }
}
