//! Room on the disk that is taken a little ahead of a file's content.
//!
//! A file system writes faster where it has allocated the blocks before, in one piece. The room ahead
//! is a part of what has arrived, so a peer that only announces a file takes none.

use multirail_proto::ledger::Ledger;
use std::ops::Range;

/// The room ahead is at most this part of what has arrived ...
const AHEAD_PART: u64 = 8;
/// ... and at most this long.
const MAX_AHEAD_BYTES: u64 = 64 << 20;
/// Less is not worth a system call.
const MIN_AHEAD_BYTES: u64 = 1 << 20;

/// What of a file has room on the disk.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    written_bytes: u64,
    /// Written ranges, and ranges that were allocated.
    allocated: Ledger,
}

impl Ahead {
    /// `range` of a file of `total_bytes` is about to be written for the first time. Returns the range
    /// to allocate before, if any.
    pub(super) fn write(&mut self, range: Range<u64>, total_bytes: u64) -> Option<Range<u64>> {
        self.written_bytes += range.end - range.start;
        if self.allocated.missing(range.clone()).is_empty() {
            return None;
        }
        self.allocated.insert(range.clone());
        let ahead_bytes = (self.written_bytes / AHEAD_PART).min(MAX_AHEAD_BYTES);
        let more_bytes = (self.written_bytes + ahead_bytes).saturating_sub(self.allocated.bytes());
        let end = (range.end + more_bytes).min(total_bytes);
        if end < range.end + MIN_AHEAD_BYTES {
            return None;
        }
        self.allocated.insert(range.end..end);
        Some(range.start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_BYTES: u64 = 256 << 10;

    /// Writes the blocks in this order and returns how often room was allocated.
    fn write(order: impl Iterator<Item = u64>, blocks: u64) -> u32 {
        let (mut ahead, mut room, mut calls) = (Ahead::default(), Ledger::default(), 0);
        for (written, block) in (1..).zip(order) {
            let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
            room.insert(range.clone());
            if let Some(range) = ahead.write(range, blocks * BLOCK_BYTES) {
                assert!(range.end <= blocks * BLOCK_BYTES);
                room.insert(range);
                calls += 1;
            }
            let written_bytes = written * BLOCK_BYTES;
            let limit_bytes = written_bytes + (written_bytes / AHEAD_PART).min(MAX_AHEAD_BYTES);
            assert!(room.bytes() <= limit_bytes, "{} of {limit_bytes} bytes", room.bytes());
        }
        calls
    }

    #[test]
    fn the_room_ahead_is_a_part_of_what_was_written() {
        let blocks = 16_384;
        let in_order = write(0..blocks, blocks);
        assert!((20..200).contains(&in_order), "{in_order} calls");
        write((0..blocks).rev(), blocks);
        write((0..blocks).map(|n| n / 4 + n % 4 * (blocks / 4)), blocks);
        assert_eq!(write(0..32, 32), 0, "a short file");
    }
}
