//! Which copy of the consumer gets a producer's next buffer.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a stream's buffers are given to the consumer's copies (paper, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// In turn, whatever they are doing.
    RoundRobin,
    /// To the copy with the fewest buffers that it has not started on.
    #[default]
    DemandDriven,
}

/// Gives the buffers of one producer copy to the copies of a consumer.
#[derive(Debug, Clone)]
pub struct Dealer {
    schedule: Schedule,
    window: u32,
    consumers: Vec<Consumer>,
    /// The copy whose turn it is.
    turn: usize,
}

#[derive(Debug, Clone)]
struct Consumer {
    unacknowledged: u32,
    gone: bool,
}

/// An acknowledgement of something that was never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an acknowledgement of a buffer that was not sent")]
pub struct NotSent;

impl Dealer {
    /// For copy `me` of the producer. Producers begin with different consumers.
    pub fn new(schedule: Schedule, window: u32, consumers: usize, me: usize) -> Self {
        let none = Consumer { unacknowledged: 0, gone: false };
        Self { schedule, window, consumers: vec![none; consumers], turn: me % consumers.max(1) }
    }

    /// The copy that gets the next buffer, which is now on the way. `None`: an acknowledgement must come first, or
    /// nobody is left ([`Dealer::is_anybody_left`]).
    pub fn deal(&mut self) -> Option<usize> {
        let count = self.consumers.len();
        let in_turn = (0..count).map(|i| (self.turn + i) % count).filter(|c| !self.consumers[*c].gone);
        let chosen = match self.schedule {
            Schedule::RoundRobin => in_turn.take(1).next(),
            // The first of those alike, so that they take turns.
            Schedule::DemandDriven => in_turn.min_by_key(|c| self.consumers[*c].unacknowledged),
        }?;
        let consumer = &mut self.consumers[chosen];
        if consumer.unacknowledged >= self.window {
            return None;
        }
        consumer.unacknowledged += 1;
        self.turn = (chosen + 1) % count;
        Some(chosen)
    }

    /// A copy has started on one of its buffers.
    pub fn acknowledged(&mut self, consumer: usize) -> Result<(), NotSent> {
        let consumer = self.consumers.get_mut(consumer).ok_or(NotSent)?;
        consumer.unacknowledged = consumer.unacknowledged.checked_sub(1).ok_or(NotSent)?;
        Ok(())
    }

    /// A copy will never take anything again.
    pub fn gone(&mut self, consumer: usize) {
        if let Some(consumer) = self.consumers.get_mut(consumer) {
            consumer.gone = true;
        }
    }

    /// Whether any copy can still take a buffer, now or later.
    pub fn is_anybody_left(&self) -> bool {
        self.consumers.iter().any(|c| !c.gone)
    }

    /// Buffers on the way that nobody has started on.
    pub fn unacknowledged(&self) -> u32 {
        self.consumers.iter().filter(|c| !c.gone).map(|c| c.unacknowledged).sum()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schedule::RoundRobin => "round-robin",
            Schedule::DemandDriven => "demand-driven",
        })
    }
}

impl FromStr for Schedule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "round-robin" => Ok(Schedule::RoundRobin),
            "demand-driven" => Ok(Schedule::DemandDriven),
            _ => Err(format!("no schedule is called {text:?}; there are round-robin and demand-driven")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_robin_waits_for_the_one_whose_turn_it_is() {
        let mut dealer = Dealer::new(Schedule::RoundRobin, 1, 3, 1);
        assert_eq!([dealer.deal(), dealer.deal(), dealer.deal()], [Some(1), Some(2), Some(0)]);
        dealer.acknowledged(0).unwrap();
        assert_eq!(dealer.deal(), None, "copy 1 has not started");
        dealer.gone(1);
        assert_eq!(dealer.deal(), None, "copy 2 has not started");
        dealer.acknowledged(2).unwrap();
        assert_eq!([dealer.deal(), dealer.deal()], [Some(2), Some(0)]);
    }

    #[test]
    fn demand_goes_to_whoever_has_least_to_start_on() {
        let mut dealer = Dealer::new(Schedule::DemandDriven, 2, 2, 0);
        assert_eq!([dealer.deal(), dealer.deal(), dealer.deal()], [Some(0), Some(1), Some(0)]);
        dealer.acknowledged(0).unwrap();
        dealer.acknowledged(0).unwrap();
        assert_eq!([dealer.deal(), dealer.deal(), dealer.deal()], [Some(0), Some(1), Some(0)]);
        assert_eq!(dealer.deal(), None);
        assert_eq!(dealer.acknowledged(1), Ok(()));
        assert_eq!(dealer.acknowledged(1), Ok(()));
        assert_eq!(dealer.acknowledged(1), Err(NotSent));
        assert_eq!(dealer.acknowledged(7), Err(NotSent));
    }

    proptest! {
        /// Against a list of what each has: never more than the window, never to one that is gone, never idle while one has room.
        #[test]
        fn never_too_much_and_never_idle(
            demand in any::<bool>(), window in 1u32..5, copies in 1usize..6, steps in prop::collection::vec(0u8..20, 1..300),
        ) {
            let schedule = if demand { Schedule::DemandDriven } else { Schedule::RoundRobin };
            let mut dealer = Dealer::new(schedule, window, copies, 0);
            let (mut has, mut gone) = (vec![0u32; copies], vec![false; copies]);
            for step in steps {
                let copy = usize::from(step) % copies;
                match step {
                    0..10 => match dealer.deal() {
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
                        prop_assert_eq!(dealer.acknowledged(copy).is_ok(), has[copy] > 0);
                        has[copy] = has[copy].saturating_sub(1);
                    }
                    _ => {
                        dealer.gone(copy);
                        gone[copy] = true;
                    }
                }
                prop_assert_eq!(dealer.is_anybody_left(), gone.iter().any(|g| !g));
            }
        }
    }
}
