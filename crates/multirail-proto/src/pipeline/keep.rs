//! What a producer keeps of the buffers it has sent to copies that may die: a buffer is kept until the copy is done with it.

use std::collections::VecDeque;

/// How far a consumer is with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// On the way, or waiting there.
    Sent,
    /// The copy has started on it.
    Started,
}

/// The buffers that one consumer copy has and is not done with, oldest first. `T` is whatever is needed for sending one again.
#[derive(Debug)]
pub struct Kept<T> {
    buffers: VecDeque<(u64, State, T)>,
}

/// What is left of a copy that died.
#[derive(Debug, PartialEq, Eq)]
pub struct Left<T> {
    /// Nobody has touched these: they can be given to another copy.
    pub untouched: Vec<(u64, T)>,
    /// It had started on these. What it made of them may have been sent on before it died, or not.
    pub started: Vec<(u64, T)>,
}

/// A message about a buffer that the copy does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message about buffer {0}, which was not sent there or is done")]
pub struct Unknown(pub u64);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { buffers: VecDeque::new() }
    }
}

impl<T> Kept<T> {
    /// A buffer is on the way. Numbers grow.
    pub fn sent(&mut self, number: u64, again: T) {
        self.buffers.push_back((number, State::Sent, again));
    }

    /// The copy has started on it.
    pub fn started(&mut self, number: u64) -> Result<(), Unknown> {
        let at = self.find(number)?;
        self.buffers[at].1 = State::Started;
        Ok(())
    }

    /// The copy is done with it: what it made of it is sent on.
    pub fn done(&mut self, number: u64) -> Result<T, Unknown> {
        let at = self.find(number)?;
        self.buffers.remove(at).map(|(_, _, again)| again).ok_or(Unknown(number))
    }

    /// Whether the copy is done with everything.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The copy is dead.
    pub fn take(&mut self) -> Left<T> {
        let (mut untouched, mut started) = (Vec::new(), Vec::new());
        for (number, state, again) in self.buffers.drain(..) {
            match state {
                State::Sent => untouched.push((number, again)),
                State::Started => started.push((number, again)),
            }
        }
        Left { untouched, started }
    }

    fn find(&self, number: u64) -> Result<usize, Unknown> {
        self.buffers.binary_search_by_key(&number, |b| b.0).map_err(|_| Unknown(number))
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
        kept.started(1).unwrap();
        kept.started(4).unwrap();
        assert_eq!(kept.done(1), Ok(10));
        assert_eq!(kept.done(1), Err(Unknown(1)));
        assert_eq!(kept.started(7), Err(Unknown(7)));
        assert_eq!(kept.take(), Left { untouched: vec![(5, 50), (9, 90)], started: vec![(4, 40)] });
        assert!(kept.is_empty());
    }
}
