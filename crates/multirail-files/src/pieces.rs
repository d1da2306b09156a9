//! Ranges that are laid end to end: what of a file is data and no hole, or what of its data is still
//! missing.

use multirail_net::error::{Error, Result};
use std::ops::Range;

/// The most ranges of one file. An announcement or a reply with that many
/// fits a message.
pub(super) const MAX_PIECES: usize = 1024;

/// Ranges in order, as if there were nothing between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Each range with the sum of the lengths before it.
    ranges: Vec<(u64, Range<u64>)>,
    bytes: u64,
}

impl Pieces {
    /// The whole of a file.
    pub(super) fn whole(total_bytes: u64) -> Self {
        Self::new(std::iter::once(0..total_bytes))
    }

    /// The ranges are in order and do not overlap.
    pub(super) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut this = Self { ranges: Vec::new(), bytes: 0 };
        for range in ranges {
            if range.start < range.end {
                let before = this.bytes;
                this.bytes += range.end - range.start;
                this.ranges.push((before, range));
            }
        }
        this
    }

    /// The ranges that a peer sent, as start and length, of something of `total_bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if they are too many, empty, out of order, or beyond the end.
    pub(super) fn parse(sent: &[(u64, u64)], total_bytes: u64) -> Result<Self> {
        let wrong = || Error::Protocol("invalid ranges of a file".to_owned());
        let mut end = 0;
        let mut ranges = Vec::with_capacity(sent.len().min(MAX_PIECES));
        for (start, length) in sent {
            let after = start.checked_add(*length).filter(|after| *after <= total_bytes).ok_or_else(wrong)?;
            if *start < end || *length == 0 || ranges.len() >= MAX_PIECES {
                return Err(wrong());
            }
            end = after;
            ranges.push(*start..after);
        }
        Ok(Self::new(ranges))
    }

    /// As [`Pieces::parse`] takes them.
    pub(super) fn to_wire(&self) -> Vec<(u64, u64)> {
        self.ranges.iter().map(|(_, range)| (range.start, range.end - range.start)).collect()
    }

    /// The sum of the lengths.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The ranges that `part` of the whole stands for.
    pub(super) fn ranges(&self, part: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.ranges.partition_point(|(before, range)| before + (range.end - range.start) <= part.start);
        let ranges = self.ranges.iter().skip(first).take_while(move |(before, _)| *before < part.end);
        ranges.map(move |(before, range)| {
            let start = range.start + part.start.saturating_sub(*before);
            start..range.end.min(range.start + (part.end - before))
        })
    }

    /// Where byte `at` of the whole is, and how many follow it in the same range.
    pub(super) fn place(&self, at: u64) -> (u64, u64) {
        let range = self.ranges(at..self.bytes).next().unwrap_or(0..0);
        (range.start, range.end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle writes down every byte.
        #[test]
        fn each_byte_is_where_it_was_laid(
            lengths in prop::collection::vec((0u64..20, 0u64..20), 0..10),
            part in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) {
            let (mut at, mut ranges, mut bytes) = (0, Vec::new(), Vec::new());
            for (gap, length) in lengths {
                at += gap;
                ranges.push(at..at + length);
                bytes.extend(at..at + length);
                at += length;
            }
            let pieces = Pieces::new(ranges);
            prop_assert_eq!(pieces.bytes(), bytes.len() as u64);
            for (index, place) in bytes.iter().enumerate() {
                let (found, left) = pieces.place(index as u64);
                prop_assert_eq!(found, *place);
                prop_assert!(left > 0 && bytes[index..].iter().take(left as usize).copied().eq(found..found + left));
            }
            let (one, other) = (part.0.index(bytes.len() + 1), part.1.index(bytes.len() + 1));
            let part = one.min(other)..one.max(other);
            let found: Vec<u64> = pieces.ranges(part.start as u64..part.end as u64).flatten().collect();
            prop_assert_eq!(&found, &bytes[part]);
            prop_assert_eq!(Pieces::parse(&pieces.to_wire(), at).unwrap(), pieces);
        }
    }

    #[test]
    fn ranges_of_a_hostile_peer_are_refused() {
        for sent in [&[(0, 0)][..], &[(0, 11)], &[(5, 2), (6, 1)], &[(5, 1), (0, 1)], &[(u64::MAX, 2)]] {
            assert!(Pieces::parse(sent, 10).is_err(), "{sent:?}");
        }
        let many: Vec<_> = (0..=MAX_PIECES as u64).map(|n| (2 * n, 1)).collect();
        assert!(Pieces::parse(&many, 1 << 40).is_err());
        assert!(Pieces::parse(&many[1..], 1 << 40).is_ok());
    }
}
