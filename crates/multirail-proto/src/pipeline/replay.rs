//! Buffers that a producer keeps until they are done, and the record that prevents duplicates.
//!
//! ```text
//! producer A              copies of F                        consumers G
//!   Data n       ->  F1 works on it
//!                    its outputs, with n as origin  ->  record n in the OriginLog
//!                                                   <-  Started, for every output
//!   forgets n    <-  Done n
//! ```
//!
//! If F1 dies before `Done`, A sends n to F2 as a replay. F2 works on it, holds its outputs back,
//! and queries every copy of G for outputs of the origin n. Each of them takes what F1 has sent,
//! closes its edge from F1, and answers. If nothing has arrived, F2 sends its outputs. If all
//! outputs have arrived, F2 drops them. If a part has arrived, the unit of work fails, since the
//! part cannot be taken back.

use std::collections::VecDeque;

/// Origins that a consumer remembers of each copy of its producer. It exceeds [`MAX_OPEN`], the
/// number of origins that a query can still be about.
pub(crate) const MAX_REMEMBERED: usize = 1024;
/// A copy reads no further buffer while this many are not done.
pub(crate) const MAX_OPEN: usize = 256;

/// The buffers that one consumer copy was sent and has not reported as done.
///
/// `T` is whatever the owner needs to send a buffer again.
#[derive(Debug)]
pub(crate) struct ReplayBuffer<T> {
    buffers: VecDeque<(u64, T)>,
}

/// A message about a buffer that is not in the replay buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message about buffer {0}, which was not sent or is done already")]
pub(crate) struct UnknownBuffer(pub u64);

impl<T> Default for ReplayBuffer<T> {
    fn default() -> Self {
        Self { buffers: VecDeque::new() }
    }
}

impl<T> ReplayBuffer<T> {
    /// Keeps a buffer that is being sent.
    pub(crate) fn insert(&mut self, number: u64, buffer: T) {
        self.buffers.push_back((number, buffer));
    }

    /// Removes a buffer that is done.
    pub(crate) fn remove(&mut self, number: u64) -> Result<T, UnknownBuffer> {
        // Not necessarily in order: a replayed buffer keeps its old number.
        let at = self.buffers.iter().position(|b| b.0 == number).ok_or(UnknownBuffer(number))?;
        self.buffers.remove(at).map(|b| b.1).ok_or(UnknownBuffer(number))
    }

    /// Whether all buffers are done.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Empties the replay buffer, in the order of insertion.
    pub(crate) fn take(&mut self) -> Vec<(u64, T)> {
        self.buffers.drain(..).collect()
    }
}

/// Which outputs have arrived from one copy of a producer, by origin.
#[derive(Debug, Default)]
pub(crate) struct OriginLog {
    origins: VecDeque<OriginCount>,
}

/// How many outputs of one origin have arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OriginCount {
    /// The buffer that the outputs were made of.
    pub origin: u64,
    /// Outputs that have arrived.
    pub arrived: u32,
    /// Outputs that were made in total; 0 if none has arrived.
    pub outputs: u32,
}

impl OriginLog {
    /// Records the arrival of one of `outputs` buffers that were made of `origin`.
    pub(crate) fn record(&mut self, origin: u64, outputs: u32) {
        match self.origins.back_mut() {
            Some(last) if last.origin == origin => last.arrived += 1,
            _ => self.origins.push_back(OriginCount { origin, arrived: 1, outputs }),
        }
        if self.origins.len() > MAX_REMEMBERED {
            self.origins.pop_front();
        }
    }

    /// How many outputs of `origin` have arrived.
    pub(crate) fn count(&self, origin: u64) -> OriginCount {
        let none = OriginCount { origin, ..OriginCount::default() };
        self.origins.iter().filter(|c| c.origin == origin).fold(none, |sum, c| OriginCount {
            arrived: sum.arrived + c.arrived,
            outputs: c.outputs,
            ..sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_dead_copy_are_returned() {
        let mut buffer = ReplayBuffer::default();
        for number in [4, 1, 9, 5] {
            buffer.insert(number, number * 10);
        }
        assert_eq!(buffer.remove(1), Ok(10));
        assert_eq!(buffer.remove(1), Err(UnknownBuffer(1)));
        assert_eq!(buffer.take(), vec![(4, 40), (9, 90), (5, 50)]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn arrivals_are_remembered_for_as_long_as_they_can_matter() {
        let mut log = OriginLog::default();
        log.record(1, 3);
        log.record(2, 1);
        log.record(1, 3);
        assert_eq!(log.count(1), OriginCount { origin: 1, arrived: 2, outputs: 3 });
        assert_eq!(log.count(7), OriginCount { origin: 7, arrived: 0, outputs: 0 });
        (10..10 + MAX_REMEMBERED as u64 - 1).for_each(|origin| log.record(origin, 1));
        assert_eq!(log.count(1).arrived, 1, "the older entry is forgotten");
    }
}
