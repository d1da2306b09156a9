//! An edge from a copy of a producer.

use super::types::{InputConfig, Violation};
use crate::pipeline::header::{EdgeMessage, Header};
use crate::pipeline::replay::{MAX_OPEN, OriginLog};
use std::collections::VecDeque;

/// The state of one input edge.
#[derive(Debug)]
pub(super) struct Input<B> {
    pub config: InputConfig,
    /// The producer has ended this unit of work.
    pub has_ended: bool,
    /// The edge is closed.
    pub is_lost: bool,
    /// Messages that were read ahead, while queries were looked for.
    pub early: VecDeque<(Header, B)>,
    /// What has arrived, if the producer is replaceable.
    pub origins: OriginLog,
    /// Queries without an answer: origin and dead copy.
    pub queries: Vec<(u64, u16)>,
}

impl<B> Input<B> {
    pub(super) fn new(config: InputConfig) -> Self {
        let (early, origins, queries) = (VecDeque::new(), OriginLog::default(), Vec::new());
        Self { config, has_ended: false, is_lost: false, early, origins, queries }
    }

    /// Whether the filter can get nothing more from this edge in this unit of work.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended || self.is_lost && self.early.is_empty()
    }

    /// Notes an arriving message. Returns whether it is part of the data.
    pub(super) fn record(&mut self, header: &Header) -> Result<bool, Violation> {
        match header.message {
            EdgeMessage::Data(data) => {
                if self.config.replaceable && data.origin != 0 {
                    self.origins.record(data.origin, data.outputs.into());
                }
                Ok(true)
            }
            EdgeMessage::End { .. } => Ok(true),
            EdgeMessage::Query { origin, dead_copy } if self.config.replaceable && self.queries.len() < MAX_OPEN => {
                self.queries.push((origin, dead_copy));
                Ok(false)
            }
            message => Err(Violation::Unexpected { message, from: "producer" }),
        }
    }

    /// Stores a message until the filter reads it.
    pub(super) fn store(&mut self, header: Header, body: B) -> Result<(), Violation> {
        self.early.push_back((header, body));
        // A producer may be ahead by the window and the end of this unit, and by those of the next.
        let window = self.config.window;
        if self.early.len() as u64 > 2 * (u64::from(window) + 1) {
            return Err(Violation::WindowExceeded { window });
        }
        Ok(())
    }

    /// Closes the edge. What was read ahead is still delivered.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Closes the edge because of a message that makes no sense, and drops what was read ahead.
    pub(super) fn lose_all(&mut self) {
        self.is_lost = true;
        self.early.clear();
    }
}
