//! A limit on the bytes that the sessions of one key may store.

use crate::sync::lock;
use multirail_proto::units::format_size;
use std::sync::{Arc, Mutex};

/// What an entry takes at least, and the unit in which it counts: a block of usual file systems.
const BLOCK_BYTES: u64 = 4096;

/// Bytes that may be stored. Clones count together.
#[derive(Debug, Clone)]
pub struct Quota {
    limit_bytes: u64,
    used_bytes: Arc<Mutex<u64>>,
}

/// Bytes that were reserved before they are stored. Dropping it gives them back, unless they were
/// [kept](Reservation::keep).
#[derive(Debug, Default)]
pub struct Reservation {
    bytes: u64,
    /// `None`: there is no limit.
    used_bytes: Option<Arc<Mutex<u64>>>,
}

impl Quota {
    /// At most `limit_bytes`, of which nothing is used.
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, used_bytes: Arc::default() }
    }

    /// As this one, with what `other` has used and will use.
    pub(crate) fn counting_with(&self, other: &Self) -> Self {
        Self { limit_bytes: self.limit_bytes, used_bytes: other.used_bytes.clone() }
    }

    /// The limit, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What is stored or reserved, in bytes.
    pub fn used_bytes(&self) -> u64 {
        *lock(&self.used_bytes)
    }

    /// What an entry with this content counts: whole blocks, and at least one.
    pub fn cost(content_bytes: u64) -> u64 {
        content_bytes.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX)
    }

    /// Reserves `bytes`.
    ///
    /// # Errors
    ///
    /// In words, how many bytes are left, if those are fewer.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, String> {
        let mut used_bytes = lock(&self.used_bytes);
        match used_bytes.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes) {
            Some(sum) => *used_bytes = sum,
            None => {
                let left_bytes = self.limit_bytes.saturating_sub(*used_bytes);
                return Err(format!(
                    "it takes {}, and {} of this key's quota of {} are left",
                    format_size(bytes),
                    format_size(left_bytes),
                    format_size(self.limit_bytes)
                ));
            }
        }
        Ok(Reservation { bytes, used_bytes: Some(self.used_bytes.clone()) })
    }
}

impl Reservation {
    /// What is reserved, in bytes; 0 where there is no limit.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        let given_back = self.bytes.saturating_sub(bytes);
        if let Some(used_bytes) = &self.used_bytes {
            let mut used_bytes = lock(used_bytes);
            *used_bytes = used_bytes.saturating_sub(given_back);
        }
        self.bytes -= given_back;
    }

    /// The bytes were stored: they count from now on.
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Reserve(u64),
        Shrink(prop::sample::Index, u64),
        Keep(prop::sample::Index),
        GiveUp(prop::sample::Index),
        /// The file of keys was read again, with another limit.
        Reload(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop_oneof![0u64..2000, Just(u64::MAX)].prop_map(Step::Reserve),
            1 => (any::<prop::sample::Index>(), 0u64..2000).prop_map(|(at, bytes)| Step::Shrink(at, bytes)),
            2 => any::<prop::sample::Index>().prop_map(Step::Keep),
            2 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
            1 => (0u64..5000).prop_map(Step::Reload),
        ]
    }

    proptest! {
        /// Beside a model: the sum of what is stored and reserved is right after each step, and no
        /// reservation brings it above the limit of its time.
        #[test]
        fn what_is_used_is_what_is_stored_and_reserved(limit in 0u64..5000, steps in prop::collection::vec(step(), 0..60)) {
            let mut quota = Quota::new(limit);
            let (mut stored, mut open): (u64, Vec<(u64, Reservation)>) = (0, Vec::new());
            for step in steps {
                let reserved = |open: &[(u64, Reservation)]| open.iter().map(|(bytes, _)| bytes).sum::<u64>();
                match step {
                    Step::Reserve(bytes) => {
                        let fits = (stored + reserved(&open)).checked_add(bytes).is_some_and(|sum| sum <= quota.limit_bytes());
                        let made = quota.reserve(bytes);
                        prop_assert_eq!(made.is_ok(), fits);
                        open.extend(made.ok().map(|made| (bytes, made)));
                    }
                    Step::Shrink(at, bytes) if !open.is_empty() => {
                        let at = at.index(open.len());
                        open[at].1.shrink(bytes);
                        open[at].0 = open[at].0.min(bytes);
                    }
                    Step::Keep(at) if !open.is_empty() => {
                        let (bytes, kept) = open.swap_remove(at.index(open.len()));
                        kept.keep();
                        stored += bytes;
                    }
                    Step::GiveUp(at) if !open.is_empty() => drop(open.swap_remove(at.index(open.len()))),
                    Step::Reload(limit) => quota = Quota::new(limit).counting_with(&quota),
                    _ => {}
                }
                prop_assert_eq!(quota.used_bytes(), stored + reserved(&open));
            }
            drop(open);
            prop_assert_eq!(quota.used_bytes(), stored);
        }
    }

    #[test]
    fn an_entry_takes_whole_blocks() {
        assert_eq!([0, 1, 4096, 4097].map(Quota::cost), [4096, 4096, 4096, 8192]);
        assert_eq!(Quota::cost(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_refusal_says_what_is_left() {
        let quota = Quota::new(3 << 10);
        quota.reserve(1 << 10).unwrap().keep();
        let why = quota.reserve(4 << 10).unwrap_err();
        assert_eq!(why, "it takes 4 KiB, and 2 KiB of this key's quota of 3 KiB are left");
    }
}
