//! What has arrived: a set of byte ranges that counts every byte once.

use std::collections::BTreeMap;
use std::ops::Range;

/// The bytes of one message that have arrived, whatever the order and however often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Start to end; disjoint and not touching.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ledger {
    /// Notes that `range` has arrived; returns how many of its bytes are new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        let Range { mut start, mut end } = range;
        if start >= end {
            return 0;
        }
        let mut known = 0;
        // Everything that overlaps or touches the new range becomes one with it.
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back().filter(|(_, e)| **e >= start) {
            known += e - s;
            start = start.min(s);
            end = end.max(e);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
        let new = end - start - known;
        self.bytes += new;
        new
    }

    /// Distinct bytes that have arrived.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The parts of `range` that have not arrived, in order.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.ranges.range(..=range.start).next_back().map(|(&s, &e)| (s, e));
        let inside = self.ranges.range(range.start.saturating_add(1)..range.end.max(range.start.saturating_add(1)));
        for (s, e) in before.into_iter().chain(inside.map(|(&s, &e)| (s, e))) {
            if s > at {
                gaps.push(at..s.min(range.end));
            }
            at = at.max(e);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// How many separate ranges are held.
    pub fn fragments(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(inserts in prop::collection::vec((0u64..200, 0u64..40), 0..60), probe in (0u64..220, 0u64..60)) {
            let mut ledger = Ledger::default();
            let mut bitmap = [false; 300];
            for (start, length) in inserts {
                let new = bitmap[start as usize..(start + length) as usize].iter_mut()
                    .map(|b| u64::from(!std::mem::replace(b, true))).sum::<u64>();
                prop_assert_eq!(ledger.insert(start..start + length), new);
            }
            prop_assert_eq!(ledger.bytes(), bitmap.iter().filter(|b| **b).count() as u64);
            let runs = bitmap.windows(2).filter(|w| !w[0] && w[1]).count() + usize::from(bitmap[0]);
            prop_assert_eq!(ledger.fragments(), runs);
            let range = probe.0..probe.0 + probe.1;
            let mut missing = bitmap.map(|b| !b);
            for (i, m) in missing.iter_mut().enumerate() { *m &= range.contains(&(i as u64)); }
            let mut told = [false; 300];
            for gap in ledger.missing(range) {
                prop_assert!(!gap.is_empty());
                for i in gap { told[i as usize] = true; }
            }
            prop_assert_eq!(told, missing);
        }
    }
}
