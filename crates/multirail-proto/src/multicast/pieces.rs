//! How the data is cut into pieces, and sets of pieces.

use crate::rng::Rng;
use std::ops::Range;

/// The smallest size of a piece. Sizes are powers of two.
pub const MIN_PIECE_BYTES: u32 = 16 << 10;
/// The largest size of a piece.
pub const MAX_PIECE_BYTES: u32 = 1 << 20;
/// The number of pieces aimed at. More pieces make the last ones cheap; fewer make announcing each
/// of them cheap.
const WANTED_PIECES: u64 = 4096;

/// How the data is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// The length of the data.
    pub total_bytes: u64,
    /// The length of every piece but the last.
    pub piece_bytes: u32,
}

impl Pieces {
    /// Cuts `total_bytes` into some thousand pieces.
    pub fn of(total_bytes: u64) -> Self {
        let wanted = (total_bytes / WANTED_PIECES).next_power_of_two();
        let piece_bytes = wanted.clamp(u64::from(MIN_PIECE_BYTES), u64::from(MAX_PIECE_BYTES)) as u32;
        Self { total_bytes, piece_bytes }
    }

    /// The number of pieces.
    pub fn count(&self) -> u32 {
        u32::try_from(self.total_bytes.div_ceil(u64::from(self.piece_bytes))).unwrap_or(u32::MAX)
    }

    /// The byte range of `piece` in the data.
    pub fn range(&self, piece: u32) -> Range<u64> {
        let start = u64::from(piece) * u64::from(self.piece_bytes);
        start.min(self.total_bytes)..(start + u64::from(self.piece_bytes)).min(self.total_bytes)
    }
}

/// A set of pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PieceSet {
    words: Vec<u64>,
    pieces: u32,
    held: u32,
}

impl PieceSet {
    /// The empty set of `pieces`.
    pub fn none(pieces: u32) -> Self {
        Self { words: vec![0; pieces.div_ceil(64) as usize], pieces, held: 0 }
    }

    /// The full set of `pieces`.
    pub fn all(pieces: u32) -> Self {
        let mut set = Self::none(pieces);
        (0..pieces).for_each(|p| {
            set.insert(p);
        });
        set
    }

    /// The set from bits as [`PieceSet::to_bytes`] makes them. `None` if the length does not fit,
    /// or bits beyond the last piece are set.
    pub fn from_bytes(pieces: u32, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != pieces.div_ceil(8) as usize {
            return None;
        }
        let mut set = Self::none(pieces);
        for piece in 0..pieces {
            if bytes[piece as usize / 8] & (1 << (piece % 8)) != 0 {
                set.insert(piece);
            }
        }
        let spare = bytes.iter().map(|b| b.count_ones()).sum::<u32>() != set.held;
        (!spare).then_some(set)
    }

    /// One bit for each piece, the first piece in the lowest bit of the first byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.truncate(self.pieces.div_ceil(8) as usize);
        bytes
    }

    /// Adds `piece`; whether it was absent. A piece beyond the end is ignored.
    pub fn insert(&mut self, piece: u32) -> bool {
        if piece >= self.pieces || self.contains(piece) {
            return false;
        }
        self.words[piece as usize / 64] |= 1 << (piece % 64);
        self.held += 1;
        true
    }

    /// Removes `piece`; whether it was present.
    pub fn remove(&mut self, piece: u32) -> bool {
        if !self.contains(piece) {
            return false;
        }
        self.words[piece as usize / 64] &= !(1 << (piece % 64));
        self.held -= 1;
        true
    }

    /// Whether the set contains `piece`.
    pub fn contains(&self, piece: u32) -> bool {
        piece < self.pieces && self.words[piece as usize / 64] & (1 << (piece % 64)) != 0
    }

    /// The number of pieces in the set.
    pub fn len(&self) -> u32 {
        self.held
    }

    /// Whether the set has no piece.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Whether the set has all pieces.
    pub fn is_full(&self) -> bool {
        self.held == self.pieces
    }

    /// The number of pieces of the data, in the set or not.
    pub fn pieces(&self) -> u32 {
        self.pieces
    }

    /// The pieces in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| Bits(*word).map(move |bit| index as u32 * 64 + bit))
    }

    /// Adds all pieces of `range`.
    pub(crate) fn insert_range(&mut self, range: Range<u32>) {
        range.for_each(|p| {
            self.insert(p);
        });
    }

    /// The number of pieces in this set that `other` lacks.
    pub(crate) fn count_without(&self, other: &Self) -> u32 {
        self.words.iter().zip(&other.words).map(|(one, two)| (one & !two).count_ones()).sum()
    }

    /// A random piece of this set that is in all of `within` and in none of `not`. All sets are of
    /// the same pieces.
    pub(crate) fn pick(&self, within: &[&Self], not: &[&Self], rng: &mut Rng) -> Option<u32> {
        let count = self.words.len();
        let first = rng.below(count as u64) as usize;
        (first..count).chain(0..first).find_map(|index| {
            let word = within.iter().fold(self.words[index], |word, set| word & set.words[index]);
            if word == 0 {
                return None;
            }
            let mut word = not.iter().fold(word, |word, set| word & !set.words[index]);
            let skip = if word == 0 { return None } else { rng.below(u64::from(word.count_ones())) };
            for _ in 0..skip {
                word &= word - 1;
            }
            Some(index as u32 * 64 + word.trailing_zeros())
        })
    }

    /// The pieces in this set that `other` lacks, in order.
    pub fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u32> + 'a {
        let words = self.words.iter().zip(&other.words).enumerate();
        words.flat_map(|(index, (one, two))| Bits(one & !two).map(move |bit| index as u32 * 64 + bit))
    }
}

/// Iterates over the set bits, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        let bit = self.0.trailing_zeros();
        (bit < 64).then(|| {
            self.0 &= self.0 - 1;
            bit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_is_a_set(pieces in 0u32..300, ops in prop::collection::vec((any::<bool>(), 0u32..320), 0..200), other in prop::collection::vec(0u32..320, 0..50)) {
            let (mut set, mut oracle) = (PieceSet::none(pieces), BTreeSet::new());
            for (add, piece) in ops {
                if add {
                    prop_assert_eq!(set.insert(piece), piece < pieces && oracle.insert(piece));
                } else {
                    prop_assert_eq!(set.remove(piece), oracle.remove(&piece));
                }
            }
            prop_assert_eq!(set.len() as usize, oracle.len());
            prop_assert_eq!(set.is_full(), oracle.len() == pieces as usize);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), oracle.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(PieceSet::from_bytes(pieces, &set.to_bytes()), Some(set.clone()));
            let mut without = PieceSet::none(pieces);
            other.iter().for_each(|p| { without.insert(*p); });
            let left: Vec<_> = oracle.iter().copied().filter(|p| !other.contains(p)).collect();
            prop_assert_eq!(set.count_without(&without) as usize, left.len());
            let picked = PieceSet::all(pieces).pick(&[&set], &[&without], &mut Rng::new(left.len() as u64));
            prop_assert_eq!(picked.is_some(), !left.is_empty());
            prop_assert!(picked.is_none_or(|p| left.contains(&p)));
            prop_assert_eq!(set.without(&without).collect::<Vec<_>>(), left);
        }

        #[test]
        fn pieces_cut_everything(total in prop_oneof![0u64..100_000_000, any::<u64>().prop_map(|t| t >> 20)]) {
            let pieces = Pieces::of(total);
            let count = pieces.count();
            prop_assert_eq!(count == 0, total == 0);
            if count > 0 {
                prop_assert_eq!(pieces.range(0).start, 0);
                prop_assert_eq!(pieces.range(count - 1).end, total);
                prop_assert!(!pieces.range(count - 1).is_empty());
            }
        }
    }

    #[test]
    fn bits_beyond_the_end_are_refused() {
        assert_eq!(PieceSet::from_bytes(9, &[0, 2]), None);
        assert_eq!(PieceSet::from_bytes(9, &[0]), None);
        assert!(PieceSet::from_bytes(9, &[0, 1]).is_some());
    }
}
