//! What a producer keeps of the buffers that it has sent to copies which may die, and how nothing exists twice when others get them.
//!
//! ```text
//! producer A              copies of F                    consumers G
//!   Data n       ->  F1 works on it
//!                    what it made, with n as origin  ->  remember n for a while
//!                                                    <-  Started, for all of it
//!   forgets n    <-  Done n
//! ```
//!
//! If F1 dies before `Done`, A gives n to F2 as a replay. F2 works on it, holds what it made, and asks every copy of G whether something
//! with the origin n has come: each takes what F1 sent it, closes its edge from F1, and answers. If nothing has come, F2 sends what it
//! holds; if all of it has, F2 lets it go; if a part has, the unit of work fails, for nobody can take it back.

use std::collections::VecDeque;

/// Origins that a consumer remembers of each of its producer's copies. A copy has fewer buffers that it is not done with
/// ([`MAX_OPEN`]).
pub const MAX_REMEMBERED: usize = 1024;
/// A copy takes no further buffer while it is not done with so many.
pub const MAX_OPEN: usize = 256;

/// The buffers that one consumer copy has and is not done with. `T` is whatever is needed for sending one again.
#[derive(Debug)]
pub struct Kept<T> {
    buffers: VecDeque<(u64, T)>,
}

/// A message about a buffer that the copy does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message about buffer {0}, which is not there")]
pub struct NotThere(pub u64);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { buffers: VecDeque::new() }
    }
}

impl<T> Kept<T> {
    /// A buffer is on the way.
    pub fn sent(&mut self, number: u64, again: T) {
        self.buffers.push_back((number, again));
    }

    /// What the copy made of it is with the next filter.
    pub fn done(&mut self, number: u64) -> Result<T, NotThere> {
        // In no order: one that is sent again has its old number.
        let at = self.buffers.iter().position(|b| b.0 == number).ok_or(NotThere(number))?;
        self.buffers.remove(at).map(|b| b.1).ok_or(NotThere(number))
    }

    /// Whether the copy is done with everything.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The copy is dead: what it had.
    pub fn take(&mut self) -> Vec<(u64, T)> {
        self.buffers.drain(..).collect()
    }
}

/// What came of which origin, lately.
#[derive(Debug, Default)]
pub struct Remembered {
    origins: VecDeque<Seen>,
}

/// What came of one origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The buffer that it was made of.
    pub origin: u64,
    /// So many buffers came.
    pub came: u32,
    /// Of so many that were made of it.
    pub of: u32,
}

impl Remembered {
    /// A buffer came, one of those made of `origin`.
    pub fn came(&mut self, origin: u64, of: u32) {
        match self.origins.back_mut() {
            Some(last) if last.origin == origin => last.came += 1,
            _ => self.origins.push_back(Seen { origin, came: 1, of }),
        }
        if self.origins.len() > MAX_REMEMBERED {
            self.origins.pop_front();
        }
    }

    /// What came of it.
    pub fn of(&self, origin: u64) -> Seen {
        let all = self.origins.iter().filter(|s| s.origin == origin);
        all.fold(Seen { origin, ..Seen::default() }, |sum, s| Seen { came: sum.came + s.came, of: s.of, ..sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_dead_copy() {
        let mut kept = Kept::default();
        for number in [4, 1, 9, 5] {
            kept.sent(number, number * 10);
        }
        assert_eq!(kept.done(1), Ok(10));
        assert_eq!(kept.done(1), Err(NotThere(1)));
        assert_eq!(kept.take(), vec![(4, 40), (9, 90), (5, 50)]);
        assert!(kept.is_empty());
    }

    #[test]
    fn what_came_is_remembered_for_as_long_as_it_can_matter() {
        let mut seen = Remembered::default();
        seen.came(1, 3);
        seen.came(2, 1);
        seen.came(1, 3);
        assert_eq!(seen.of(1), Seen { origin: 1, came: 2, of: 3 });
        assert_eq!(seen.of(7), Seen { origin: 7, came: 0, of: 0 });
        (10..10 + MAX_REMEMBERED as u64 - 1).for_each(|origin| seen.came(origin, 1));
        assert_eq!(seen.of(1).came, 1, "the older one is forgotten");
    }
}
