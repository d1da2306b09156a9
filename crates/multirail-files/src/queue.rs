//! The entries that were announced and not yet dealt with, in the order of the source. Some wait for
//! an answer of the receiver, and those behind them wait with them.

use super::wire::Answer;
use multirail_net::error::{Error, Result};
use std::collections::VecDeque;

/// The most entries that wait.
const MAX_ENTRIES: usize = 8192;
/// What waiting entries may take, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Entries in order.
#[derive(Debug)]
pub(super) struct Queue<T> {
    entries: VecDeque<Waiting<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    entry: T,
    bytes: usize,
    is_answered: bool,
}

/// The answers to entries of a queue.
#[derive(Debug, Default)]
pub(super) struct Answers {
    answers: VecDeque<Answer>,
    /// How many entries have no answer.
    open: usize,
}

impl Answers {
    /// Expects one more answer.
    pub(super) fn expect(&mut self) {
        self.open += 1;
    }

    /// Adds answers that have arrived.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for more answers than entries.
    pub(super) fn add(&mut self, answers: Vec<Answer>) -> Result<()> {
        self.open = self
            .open
            .checked_sub(answers.len())
            .ok_or_else(|| Error::Protocol("an answer to nothing that was announced".to_owned()))?;
        self.answers.extend(answers);
        Ok(())
    }
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }

    /// Adds an entry that takes `bytes`. The receiver answers it if `is_answered`.
    pub(super) fn push(&mut self, entry: T, bytes: usize, is_answered: bool) {
        self.bytes += bytes;
        self.entries.push_back(Waiting { entry, bytes, is_answered });
    }

    /// Whether nothing more may be added.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_ENTRIES || self.bytes >= MAX_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the first entry, with its answer; `None` if it still waits for that.
    pub(super) fn take(&mut self, answers: &mut Answers) -> Option<(T, Option<Answer>)> {
        let answer = match self.entries.front()?.is_answered {
            true => Some(answers.answers.pop_front()?),
            false => None,
        };
        let waiting = self.entries.pop_front()?;
        self.bytes -= waiting.bytes;
        Some((waiting.entry, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The answer to an entry carries its number. Whatever the order of events is, each entry
        /// comes out once, in order, with its own answer.
        #[test]
        fn each_entry_gets_its_own_answer(steps in prop::collection::vec((0u8..3, 1usize..5), 0..200)) {
            let (mut queue, mut answers) = (Queue::new(), Answers::default());
            let (mut next, mut asked, mut taken) = (0u8, VecDeque::new(), Vec::new());
            let answer = |number: u8| Answer::Compare([number; 32]);
            for (step, count) in steps {
                match step {
                    0 => for _ in 0..count {
                        let is_answered = !next.is_multiple_of(3);
                        if is_answered {
                            asked.push_back(next);
                            answers.expect();
                        }
                        queue.push(next, 1, is_answered);
                        next = next.wrapping_add(1);
                    },
                    1 => {
                        let some: Vec<u8> = asked.drain(..count.min(asked.len())).collect();
                        answers.add(some.into_iter().map(answer).collect()).unwrap();
                    }
                    _ => taken.extend(queue.take(&mut answers)),
                }
            }
            answers.add(asked.into_iter().map(answer).collect()).unwrap();
            while let Some(entry) = queue.take(&mut answers) {
                taken.push(entry);
            }
            prop_assert!(queue.is_empty() && queue.bytes == 0);
            let mut number = 0u8;
            for (entry, given) in taken {
                prop_assert_eq!((entry, given), (number, (!number.is_multiple_of(3)).then(|| answer(number))));
                number = number.wrapping_add(1);
            }
            prop_assert_eq!(number, next);
            prop_assert!(answers.add(vec![Answer::Done]).is_err());
        }
    }

    #[test]
    fn a_queue_is_bounded_in_entries_and_bytes() {
        let mut queue = Queue::new();
        (1..MAX_ENTRIES).for_each(|_| queue.push((), 0, true));
        assert!(!queue.is_full());
        queue.push((), 0, true);
        assert!(queue.is_full());
        let mut queue = Queue::new();
        queue.push((), MAX_BYTES - 1, true);
        assert!(!queue.is_full());
        queue.push((), 1, true);
        assert!(queue.is_full());
    }
}
