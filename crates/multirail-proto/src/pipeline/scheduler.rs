//! Which copy of the consumer gets a producer's next buffer.

use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

/// How the buffers of a logical stream are distributed over the consumer's transparent copies
/// ("Impact of High Performance Sockets on Data Intensive Applications", section 4.1).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = unknown_schedule)]
pub enum Schedule {
    /// The copies take turns, whatever their load.
    RoundRobin,
    /// The copy with the fewest unacknowledged buffers gets the next one.
    #[default]
    DemandDriven,
}

fn unknown_schedule(given: &str) -> UnknownName {
    UnknownName::new("schedule", given, <Schedule as VariantNames>::VARIANTS)
}

/// Assigns the buffers of one producer copy to the copies of a consumer.
///
/// A copy never has more than a window of buffers that it has not acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Scheduler {
    schedule: Schedule,
    window: u32,
    consumers: Vec<ConsumerLoad>,
    /// The copy that comes first among equals.
    next: usize,
}

#[derive(Debug, Clone)]
struct ConsumerLoad {
    unacknowledged: u32,
    removed: bool,
}

/// An acknowledgement of a buffer that was never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an acknowledgement of a buffer that was not sent")]
pub(crate) struct NotSent;

impl Scheduler {
    /// A scheduler for the given copy of the producer.
    ///
    /// Different producer copies start with different consumers.
    pub(crate) fn new(schedule: Schedule, window: u32, consumers: usize, producer_copy: usize) -> Self {
        let idle = ConsumerLoad { unacknowledged: 0, removed: false };
        Self { schedule, window, consumers: vec![idle; consumers], next: producer_copy % consumers.max(1) }
    }

    /// Chooses the copy for the next buffer and counts the buffer as unacknowledged.
    ///
    /// `None` means that an acknowledgement must come first, or that no copy is left
    /// ([`Scheduler::has_consumers`]).
    pub(crate) fn assign(&mut self) -> Option<usize> {
        let count = self.consumers.len();
        let in_turn = (0..count).map(|i| (self.next + i) % count).filter(|c| !self.consumers[*c].removed);
        let chosen = match self.schedule {
            Schedule::RoundRobin => in_turn.take(1).next(),
            // `min_by_key` returns the first of equal copies, so that equal copies take turns.
            Schedule::DemandDriven => in_turn.min_by_key(|c| self.consumers[*c].unacknowledged),
        }?;
        let consumer = &mut self.consumers[chosen];
        if consumer.unacknowledged >= self.window {
            return None;
        }
        consumer.unacknowledged += 1;
        self.next = (chosen + 1) % count;
        Some(chosen)
    }

    /// A copy has started on one of its buffers.
    pub(crate) fn acknowledge(&mut self, consumer: usize) -> Result<(), NotSent> {
        let consumer = self.consumers.get_mut(consumer).ok_or(NotSent)?;
        consumer.unacknowledged = consumer.unacknowledged.checked_sub(1).ok_or(NotSent)?;
        Ok(())
    }

    /// Excludes a lost copy.
    pub(crate) fn remove(&mut self, consumer: usize) {
        if let Some(consumer) = self.consumers.get_mut(consumer) {
            consumer.removed = true;
        }
    }

    /// Whether any copy is left.
    pub(crate) fn has_consumers(&self) -> bool {
        self.consumers.iter().any(|c| !c.removed)
    }

    /// Buffers that the remaining copies have not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u32 {
        self.consumers.iter().filter(|c| !c.removed).map(|c| c.unacknowledged).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn schedules_have_names() {
        for schedule in [Schedule::RoundRobin, Schedule::DemandDriven] {
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        assert_eq!(
            "random".parse::<Schedule>().unwrap_err().to_string(),
            "unknown schedule `random`; expected one of round-robin or demand-driven"
        );
    }

    #[test]
    fn round_robin_waits_for_the_copy_whose_turn_it_is() {
        let mut scheduler = Scheduler::new(Schedule::RoundRobin, 1, 3, 1);
        assert_eq!([scheduler.assign(), scheduler.assign(), scheduler.assign()], [Some(1), Some(2), Some(0)]);
        scheduler.acknowledge(0).unwrap();
        assert_eq!(scheduler.assign(), None, "copy 1 has not started");
        scheduler.remove(1);
        assert_eq!(scheduler.assign(), None, "copy 2 has not started");
        scheduler.acknowledge(2).unwrap();
        assert_eq!([scheduler.assign(), scheduler.assign()], [Some(2), Some(0)]);
    }

    #[test]
    fn demand_driven_chooses_the_least_loaded_copy() {
        let mut scheduler = Scheduler::new(Schedule::DemandDriven, 2, 2, 0);
        assert_eq!([scheduler.assign(), scheduler.assign(), scheduler.assign()], [Some(0), Some(1), Some(0)]);
        scheduler.acknowledge(0).unwrap();
        scheduler.acknowledge(0).unwrap();
        assert_eq!([scheduler.assign(), scheduler.assign(), scheduler.assign()], [Some(0), Some(1), Some(0)]);
        assert_eq!(scheduler.assign(), None);
        assert_eq!(scheduler.acknowledge(1), Ok(()));
        assert_eq!(scheduler.acknowledge(1), Ok(()));
        assert_eq!(scheduler.acknowledge(1), Err(NotSent));
        assert_eq!(scheduler.acknowledge(7), Err(NotSent));
    }

    proptest! {
        /// Compared with a plain list: a copy never exceeds its window, a removed copy gets
        /// nothing, and no buffer waits while a copy has room.
        #[test]
        fn windows_are_respected_and_used(
            demand in any::<bool>(), window in 1u32..5, copies in 1usize..6, steps in prop::collection::vec(0u8..20, 1..300),
        ) {
            let schedule = if demand { Schedule::DemandDriven } else { Schedule::RoundRobin };
            let mut scheduler = Scheduler::new(schedule, window, copies, 0);
            let (mut has, mut gone) = (vec![0u32; copies], vec![false; copies]);
            for step in steps {
                let copy = usize::from(step) % copies;
                match step {
                    0..10 => match scheduler.assign() {
                        Some(to) => {
                            prop_assert!(!gone[to] && has[to] < window);
                            if demand {
                                prop_assert!((0..copies).all(|c| gone[c] || has[c] >= has[to]));
                            }
                            has[to] += 1;
                        }
                        None if demand => prop_assert!((0..copies).all(|c| gone[c] || has[c] >= window)),
                        None => prop_assert!((0..copies).any(|c| !gone[c] && has[c] >= window) || gone.iter().all(|g| *g)),
                    },
                    10..19 => {
                        prop_assert_eq!(scheduler.acknowledge(copy).is_ok(), has[copy] > 0);
                        has[copy] = has[copy].saturating_sub(1);
                    }
                    _ => {
                        scheduler.remove(copy);
                        gone[copy] = true;
                    }
                }
                prop_assert_eq!(scheduler.has_consumers(), gone.iter().any(|g| !g));
            }
        }
    }
}
