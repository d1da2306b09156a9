//! When a unit of work counts as stalled, and which copies cause it.
//!
//! The owner calls [`StallDetector::check`] now and then with the counters of all copies. Times are
//! microseconds on the owner's clock.

/// The counters of a copy, which the detector compares with earlier ones of the same copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyActivity<Id> {
    /// The copy.
    pub copy: Id,
    /// Buffers read and written.
    pub buffers: u64,
    /// Nanoseconds in the filter's own code.
    pub busy_ns: u64,
    /// Nanoseconds of waiting for input.
    pub waited_in_ns: u64,
    /// Nanoseconds of waiting until a consumer took output.
    pub waited_out_ns: u64,
}

/// What keeps the buffers of a stalled unit of work from moving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallCause {
    /// The filter's own code does not return.
    Busy,
    /// No copy is busy, and no consumer takes what was written.
    WaitsForOutput,
    /// No copy is busy, and no input comes.
    WaitsForInput,
    /// No copy was in one state for most of the time.
    Unknown,
}

/// A stall and the copies with its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall<Id> {
    /// The cause.
    pub cause: StallCause,
    /// The copies that were in this state for at least half of the time; none if the cause is
    /// unknown.
    pub copies: Vec<Id>,
}

/// Watches the buffers of one unit of work.
#[derive(Debug, Clone)]
pub struct StallDetector<Id> {
    longest_us: Option<u64>,
    /// When a buffer last moved, and the counters of that time.
    since_us: u64,
    then: Vec<CopyActivity<Id>>,
}

impl<Id: Clone + PartialEq> StallDetector<Id> {
    /// A detector that allows no buffer to move for `longest_us`; `None` means forever.
    pub fn new(longest_us: Option<u64>, now_us: u64, copies: Vec<CopyActivity<Id>>) -> Self {
        Self { longest_us, since_us: now_us, then: copies }
    }

    /// Whether no buffer has moved for too long.
    pub fn check(&mut self, now_us: u64, copies: &[CopyActivity<Id>]) -> Option<Stall<Id>> {
        let buffers = |all: &[CopyActivity<Id>]| all.iter().map(|copy| copy.buffers).fold(0, u64::wrapping_add);
        if buffers(copies) != buffers(&self.then) {
            self.since_us = now_us;
            self.then = copies.to_vec();
        }
        let still_us = now_us.saturating_sub(self.since_us);
        if still_us < self.longest_us? {
            return None;
        }
        let causes = [
            (StallCause::Busy, self.mostly(copies, still_us, |copy| copy.busy_ns)),
            (StallCause::WaitsForOutput, self.mostly(copies, still_us, |copy| copy.waited_out_ns)),
            (StallCause::WaitsForInput, self.mostly(copies, still_us, |copy| copy.waited_in_ns)),
        ];
        let found = causes.into_iter().find(|(_, copies)| !copies.is_empty());
        let (cause, copies) = found.unwrap_or((StallCause::Unknown, Vec::new()));
        Some(Stall { cause, copies })
    }

    /// The copies that spent at least half of `still_us` on what `counter` counts.
    fn mostly(
        &self,
        copies: &[CopyActivity<Id>],
        still_us: u64,
        counter: impl Fn(&CopyActivity<Id>) -> u64,
    ) -> Vec<Id> {
        let spent_ns = |now: &CopyActivity<Id>| {
            let then = self.then.iter().find(|then| then.copy == now.copy);
            counter(now).saturating_sub(then.map_or(0, &counter))
        };
        let half_ns = still_us.saturating_mul(1000) / 2;
        copies.iter().filter(|copy| spent_ns(copy) >= half_ns).map(|copy| copy.copy.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_US: u64 = 100;
    /// Half of `LONGEST_US`.
    const HALF_NS: u64 = 50_000;

    fn idle(copy: u32) -> CopyActivity<u32> {
        CopyActivity { copy, buffers: 7, busy_ns: 1_000, waited_in_ns: 2_000, waited_out_ns: 3_000 }
    }

    fn detector() -> StallDetector<u32> {
        StallDetector::new(Some(LONGEST_US), 1000, vec![idle(1), idle(2)])
    }

    #[test]
    fn a_unit_stalls_when_no_buffer_moves_for_too_long() {
        let mut it = detector();
        let copies = [idle(1), idle(2)];
        assert_eq!(it.check(1000 + LONGEST_US - 1, &copies), None);
        let unknown = Some(Stall { cause: StallCause::Unknown, copies: Vec::new() });
        assert_eq!(it.check(1000 + LONGEST_US, &copies), unknown);
        // A buffer that moves begins the time anew.
        let copies = [idle(1), CopyActivity { buffers: 8, ..idle(2) }];
        assert_eq!(it.check(1150, &copies), None);
        assert_eq!(it.check(1150 + LONGEST_US - 1, &copies), None);
        assert_eq!(it.check(1150 + LONGEST_US, &copies), unknown);
        assert_eq!(StallDetector::new(None, 0, vec![idle(1)]).check(u64::MAX, &[idle(1)]), None);
    }

    #[test]
    fn the_copies_that_did_the_same_for_half_of_the_time_are_named() {
        let busy = CopyActivity { busy_ns: 1_000 + HALF_NS, ..idle(1) };
        let less_busy = CopyActivity { busy_ns: 1_000 + HALF_NS - 1, ..idle(1) };
        let writes = CopyActivity { waited_out_ns: 3_000 + HALF_NS, ..idle(2) };
        let reads = CopyActivity { waited_in_ns: 2_000 + HALF_NS, ..idle(1) };
        // A copy that was not known before has spent all that it counts.
        let new = CopyActivity { buffers: 0, waited_in_ns: HALF_NS, ..idle(3) };
        for (copies, cause, named) in [
            (vec![busy.clone(), idle(2)], StallCause::Busy, vec![1]),
            (vec![busy, writes.clone()], StallCause::Busy, vec![1]),
            (vec![less_busy, idle(2)], StallCause::Unknown, vec![]),
            (vec![reads.clone(), writes], StallCause::WaitsForOutput, vec![2]),
            (vec![reads, idle(2), new], StallCause::WaitsForInput, vec![1, 3]),
        ] {
            let stall = detector().check(1000 + LONGEST_US, &copies);
            assert_eq!(stall, Some(Stall { cause, copies: named }), "{copies:?}");
        }
    }
}
