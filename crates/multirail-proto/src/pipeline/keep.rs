//! What a producer keeps of the buffers that it has sent to copies which may die, and who may go on when.
//!
//! ```text
//! producer                          stateless copy                      next filter
//!    Data n            ->  works on it, holds what it makes of it
//!                      <-  Ready n
//!    Go n              ->  sends what it made on                 ->
//!                                                                <-   Started, for all of it
//!    forgets n         <-  Done n
//! ```
//!
//! Before `Go` nothing that the copy made of the buffer can be anywhere: if it dies, another copy gets the buffer, and its output exists once.
//! After `Done` the output is with the next filter. Only in between nobody can know, and the unit of work fails.

use std::collections::VecDeque;

/// The buffers that one consumer copy has and is not done with, oldest first. `T` is whatever is needed for sending one again.
#[derive(Debug)]
pub struct Kept<T> {
    buffers: VecDeque<Buffer<T>>,
}

#[derive(Debug)]
struct Buffer<T> {
    number: u64,
    /// The copy was told `Go`.
    released: bool,
    again: T,
}

/// What is left of a copy that died.
#[derive(Debug, PartialEq, Eq)]
pub struct Left<T> {
    /// Another copy can be given these.
    pub again: Vec<(u64, T)>,
    /// Nobody knows what has become of so many.
    pub unknown: usize,
}

/// A message about a buffer that the copy does not have, or that comes too early or twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message about buffer {0}, which it does not fit")]
pub struct Unfit(pub u64);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { buffers: VecDeque::new() }
    }
}

impl<T> Kept<T> {
    /// A buffer is on the way. Numbers grow.
    pub fn sent(&mut self, number: u64, again: T) {
        self.buffers.push_back(Buffer { number, released: false, again });
    }

    /// The copy is ready, and told `Go`.
    pub fn release(&mut self, number: u64) -> Result<(), Unfit> {
        let at = self.find(number)?;
        let before = std::mem::replace(&mut self.buffers[at].released, true);
        if before { Err(Unfit(number)) } else { Ok(()) }
    }

    /// What the copy made of it is with the next filter.
    pub fn done(&mut self, number: u64) -> Result<T, Unfit> {
        let at = self.find(number)?;
        let done = if self.buffers[at].released { self.buffers.remove(at) } else { None };
        done.map(|b| b.again).ok_or(Unfit(number))
    }

    /// Whether the copy is done with everything.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The copy is dead.
    pub fn take(&mut self) -> Left<T> {
        let unknown = self.buffers.iter().filter(|b| b.released).count();
        let again = self.buffers.drain(..).filter(|b| !b.released).map(|b| (b.number, b.again)).collect();
        Left { again, unknown }
    }

    fn find(&self, number: u64) -> Result<usize, Unfit> {
        self.buffers.binary_search_by_key(&number, |b| b.number).map_err(|_| Unfit(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_dead_copy() {
        let mut kept = Kept::default();
        for number in [1, 4, 5, 9] {
            kept.sent(number, number * 10);
        }
        assert_eq!(kept.done(1), Err(Unfit(1)), "before it was ready");
        kept.release(1).unwrap();
        kept.release(4).unwrap();
        assert_eq!(kept.release(4), Err(Unfit(4)), "twice");
        assert_eq!(kept.done(1), Ok(10));
        assert_eq!(kept.done(1), Err(Unfit(1)));
        assert_eq!(kept.release(7), Err(Unfit(7)));
        assert_eq!(kept.take(), Left { again: vec![(5, 50), (9, 90)], unknown: 1 });
        assert!(kept.is_empty());
    }
}
