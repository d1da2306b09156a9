//! The BLAKE3 hash of a file from blocks that are hashed in any order.
//!
//! A block of 2^n KiB at a multiple of its size is a subtree of BLAKE3's tree (BLAKE3 paper,
//! section 2.1). Its chaining value can be computed while the block is in memory. Two siblings are
//! merged as soon as both are known, so one value is kept for each gap and not for each block.

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use blake3::{Hash, Hasher};
use multirail_proto::ledger::Ledger;
use std::collections::HashMap;
use std::ops::Range;

/// Files from this length on are hashed in large blocks, which takes fewer system calls.
const LARGE_FILE_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: u64 = 64 << 10;
const LARGE_BLOCK_BYTES: u64 = 256 << 10;

/// Computes a file's hash from its blocks.
///
/// It uses about 100 bytes for each gap between hashed blocks. Blocks in order leave one gap. The
/// worst order, every second block first, takes 4 MiB for a file of 20 GiB.
#[derive(Debug)]
pub(super) struct BlockHashes {
    total_bytes: u64,
    block_bytes: u64,
    /// Subtrees whose sibling is unknown, by level and position in it.
    waiting: HashMap<(u32, u64), ChainingValue>,
    /// Numbers of the hashed blocks.
    hashed: Ledger,
    root: Option<Hash>,
}

impl BlockHashes {
    /// Length of the file, in bytes.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(super) fn new(total_bytes: u64) -> Self {
        let block_bytes = if total_bytes < LARGE_FILE_BYTES { BLOCK_BYTES } else { LARGE_BLOCK_BYTES };
        Self::with_blocks(total_bytes, block_bytes)
    }

    /// `block_bytes` is a power of two of at least 1 KiB.
    fn with_blocks(total_bytes: u64, block_bytes: u64) -> Self {
        debug_assert!(block_bytes.is_power_of_two() && block_bytes >= blake3::CHUNK_LEN as u64);
        let root = (total_bytes == 0).then(|| blake3::hash(&[]));
        Self { total_bytes, block_bytes, waiting: HashMap::new(), hashed: Ledger::default(), root }
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// The bytes of `block`. The last block may be shorter.
    pub(super) fn range(&self, block: u64) -> Range<u64> {
        let start = block * self.block_bytes;
        start..(start + self.block_bytes).min(self.total_bytes)
    }

    pub(super) fn is_hashed(&self, block: u64) -> bool {
        self.hashed.missing(block..block + 1).is_empty()
    }

    /// Whether the block before `block` is hashed.
    pub(super) fn follows(&self, block: u64) -> bool {
        block > 0 && self.is_hashed(block - 1)
    }

    /// How many ranges of hashed blocks there are.
    pub(super) fn ranges(&self) -> usize {
        self.hashed.fragments()
    }

    /// Ranges of blocks that are not hashed.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        self.hashed.missing(0..self.count())
    }

    /// The number of blocks.
    pub(super) fn count(&self) -> u64 {
        self.total_bytes.div_ceil(self.block_bytes)
    }

    /// Hashes `block`, whose content is `bytes`, and returns its hash. A block that is already hashed
    /// is ignored.
    pub(super) fn insert(&mut self, block: u64, bytes: &[u8]) -> Option<[u8; 32]> {
        if self.is_hashed(block) {
            return None;
        }
        if self.count() == 1 {
            self.hashed.insert(0..1);
            let root = blake3::hash(bytes);
            self.root = Some(root);
            return Some(*root.as_bytes());
        }
        let value = self.hash_of(block, bytes);
        self.insert_hash(block, value);
        Some(value)
    }

    /// The hash of `block`, which is not the only one, if its content is `bytes`.
    pub(super) fn hash_of(&self, block: u64, bytes: &[u8]) -> [u8; 32] {
        let range = self.range(block);
        debug_assert_eq!(bytes.len() as u64, range.end - range.start);
        Hasher::new().set_input_offset(range.start).update(bytes).finalize_non_root()
    }

    /// Adds the hash of `block`, which is not the only one.
    pub(super) fn insert_hash(&mut self, block: u64, mut value: ChainingValue) {
        if self.hashed.insert(block..block + 1) == 0 {
            return;
        }
        let mut nodes = self.count();
        let (mut level, mut place) = (0, block);
        // The last node of a level without a sibling is its own parent, since in BLAKE3 every left
        // subtree is full.
        loop {
            let sibling = place ^ 1;
            if sibling < nodes {
                let Some(other) = self.waiting.remove(&(level, sibling)) else {
                    self.waiting.insert((level, place), value);
                    return;
                };
                let (left, right) = if place < sibling { (value, other) } else { (other, value) };
                if nodes == 2 {
                    self.root = Some(merge_subtrees_root(&left, &right, Mode::Hash));
                    return;
                }
                value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            }
            (level, place, nodes) = (level + 1, place / 2, nodes.div_ceil(2));
        }
    }

    /// What of the file is in blocks that are not hashed.
    pub(super) fn missing_bytes(&self) -> Vec<Range<u64>> {
        let range = |blocks: Range<u64>| self.range(blocks.start).start..self.range(blocks.end - 1).end;
        self.missing().into_iter().map(range).collect()
    }

    /// The file's hash; `None` while a block is missing.
    pub(super) fn root(&self) -> Option<Hash> {
        self.root
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_gives_the_hash_of_the_file(
            total in 0u64..70_000,
            shift in 10u32..14,
            keys in prop::collection::vec(any::<u32>(), 80),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let content: Vec<u8> = (0..total).map(|i| (i * 31 + i / 251) as u8).collect();
            let mut hashes = BlockHashes::with_blocks(total, 1 << shift);
            let count = total.div_ceil(1 << shift);
            let mut order: Vec<u64> = (0..count).collect();
            order.sort_by_key(|b| keys[*b as usize]);
            for (n, block) in order.iter().enumerate() {
                prop_assert_eq!(hashes.root(), None);
                let put = |hashes: &mut BlockHashes, block: u64| {
                    let range = hashes.range(block);
                    hashes.insert(block, &content[range.start as usize..range.end as usize]);
                };
                put(&mut hashes, *block);
                if let Some(index) = again.get(n) {
                    put(&mut hashes, *index.get(&order[..=n]));
                }
            }
            prop_assert!(hashes.missing().is_empty() && hashes.waiting.is_empty());
            prop_assert_eq!(hashes.root(), Some(blake3::hash(&content)));
        }
    }

    #[test]
    fn blocks_in_order_keep_one_value_for_each_level() {
        let mut hashes = BlockHashes::with_blocks(1 << 20, 1 << 10);
        for block in 0..1024 {
            hashes.insert(block, &[7; 1024]);
            assert!(hashes.waiting.len() <= 10);
        }
        assert_eq!(hashes.root(), Some(blake3::hash(&vec![7; 1 << 20])));
    }
}
