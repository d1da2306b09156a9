//! The BLAKE3 hash of a file from blocks that are hashed in any order.
//!
//! A block of 2^n KiB at a multiple of its size is a subtree of BLAKE3's tree (paper, section 2.1), so its chaining value can
//! be taken when the block happens to be in memory. Siblings are merged as soon as both are there: what is kept is not
//! one value a block but one a gap.

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use blake3::{Hash, Hasher};
use multirail_proto::ledger::Ledger;
use std::collections::HashMap;
use std::ops::Range;

/// Files from this length on are hashed in large blocks: fewer system calls.
const LARGE_FILE_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: u64 = 64 << 10;
const LARGE_BLOCK_BYTES: u64 = 256 << 10;

/// The hashes of a file's blocks, on the way to the file's hash.
///
/// Memory: about 100 bytes a gap between hashed blocks. Blocks that come in order leave one gap; the worst order, every second
/// block first, costs a 20 GiB file 4 MiB.
#[derive(Debug)]
pub(super) struct BlockHashes {
    total_bytes: u64,
    block_bytes: u64,
    /// Subtrees whose sibling is not there yet, by level and place in it.
    waiting: HashMap<(u32, u64), ChainingValue>,
    /// Blocks that are hashed, by number.
    hashed: Ledger,
    root: Option<Hash>,
}

impl BlockHashes {
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

    /// The bytes of `block`; the last one can be short.
    pub(super) fn range(&self, block: u64) -> Range<u64> {
        let start = block * self.block_bytes;
        start..(start + self.block_bytes).min(self.total_bytes)
    }

    pub(super) fn is_hashed(&self, block: u64) -> bool {
        self.hashed.missing(block..block + 1).is_empty()
    }

    /// The blocks that are not hashed, as ranges.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        self.hashed.missing(0..self.total_bytes.div_ceil(self.block_bytes))
    }

    /// Hashes `block`, whose content is `bytes`. A second time changes nothing.
    pub(super) fn insert(&mut self, block: u64, bytes: &[u8]) {
        let range = self.range(block);
        debug_assert_eq!(bytes.len() as u64, range.end - range.start);
        if self.hashed.insert(block..block + 1) == 0 {
            return;
        }
        let mut nodes = self.total_bytes.div_ceil(self.block_bytes);
        if nodes == 1 {
            self.root = Some(blake3::hash(bytes));
            return;
        }
        let mut value = Hasher::new().set_input_offset(range.start).update(bytes).finalize_non_root();
        let (mut level, mut place) = (0, block);
        // A level's last node, where it has no sibling, is its own parent: that is BLAKE3's rule that a left subtree is full.
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

    /// The file's hash, once every block is hashed.
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
    fn in_order_keeps_a_value_a_level() {
        let mut hashes = BlockHashes::with_blocks(1 << 20, 1 << 10);
        for block in 0..1024 {
            hashes.insert(block, &[7; 1024]);
            assert!(hashes.waiting.len() <= 10);
        }
        assert_eq!(hashes.root(), Some(blake3::hash(&vec![7; 1 << 20])));
    }
}
