//! Which stream sends next.
//!
//! Deficit round robin with precedence for new streams, as FQ-CoDel has it (RFC 8290, section 4.2):
//! a stream that begins to send goes before those that have sent [`QUANTUM_BYTES`] since. So a
//! short transfer overtakes long ones, and long ones get equal shares.

use super::limits::QUANTUM_BYTES;
use super::stream_id::StreamId;
use std::collections::VecDeque;

/// Where a stream waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Queued {
    /// It has nothing to send.
    #[default]
    No,
    /// It has begun to send and has used less than a quantum.
    Fresh,
    /// It takes turns with others.
    Served,
}

/// A stream's part of the schedule.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Turn {
    queued: Queued,
    /// What it may still send before it is another stream's turn.
    deficit_bytes: i64,
}

impl Turn {
    /// What the stream may send before it is another one's turn. It is positive while it waits.
    pub(super) fn left_bytes(self) -> usize {
        self.deficit_bytes.max(0) as usize
    }
}

/// The queues of streams that have something to send.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    fresh: VecDeque<StreamId>,
    served: VecDeque<StreamId>,
}

impl Schedule {
    /// A stream has something to send.
    pub(super) fn activate(&mut self, stream: StreamId, turn: &mut Turn) {
        if turn.queued == Queued::No {
            *turn = Turn { queued: Queued::Fresh, deficit_bytes: QUANTUM_BYTES };
            self.fresh.push_back(stream);
        }
    }

    /// The stream whose turn it is. [`Schedule::sent`] or [`Schedule::remove_first`] must follow.
    pub(super) fn first(&self) -> Option<StreamId> {
        self.fresh.front().or(self.served.front()).copied()
    }

    /// Whether the first stream has begun to send lately.
    pub(super) fn is_first_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// The first stream has sent `bytes`. `is_due`: it has more to send now.
    pub(super) fn sent(&mut self, turn: &mut Turn, bytes: usize, is_due: bool) {
        turn.deficit_bytes -= bytes as i64;
        let is_fresh = !self.fresh.is_empty();
        let Some(stream) = self.pop() else { return };
        if is_due && turn.deficit_bytes > 0 {
            let queue = if is_fresh { &mut self.fresh } else { &mut self.served };
            queue.push_front(stream);
        } else if is_due || (is_fresh && !self.served.is_empty()) {
            // A fresh one waits a round also without anything to send, so that many short transfers
            // of one stream do not keep the others from their turns.
            turn.queued = Queued::Served;
            turn.deficit_bytes += if turn.deficit_bytes > 0 { 0 } else { QUANTUM_BYTES };
            self.served.push_back(stream);
        } else {
            turn.queued = Queued::No;
        }
    }

    /// The first stream has nothing to send any more, or does not exist any more.
    pub(super) fn remove_first(&mut self, turn: Option<&mut Turn>) {
        self.pop();
        if let Some(turn) = turn {
            turn.queued = Queued::No;
        }
    }

    fn pop(&mut self) -> Option<StreamId> {
        self.fresh.pop_front().or_else(|| self.served.pop_front())
    }
}
