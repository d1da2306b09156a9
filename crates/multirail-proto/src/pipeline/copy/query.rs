//! Queries about replayed buffers: the side that asks, and the side that answers.

use super::protocol::CopyProtocol;
use super::types::{Action, EdgeEnd};
use crate::pipeline::header::{EdgeMessage, Header};
use crate::pipeline::replay::OriginCount;

impl<B> CopyProtocol<B> {
    /// Whether a query waits for its answer. All replaceable inputs must be passed to
    /// [`CopyProtocol::look_ahead`] before [`CopyProtocol::answer_queries`].
    pub fn has_queries(&self) -> bool {
        self.inputs.iter().any(|i| !i.queries.is_empty())
    }

    /// Answers all queries. The edge from the dead copy is closed first, so that the answer stays
    /// true.
    pub fn answer_queries(&mut self) {
        for asking in 0..self.inputs.len() {
            for (origin, dead_copy) in std::mem::take(&mut self.inputs[asking].queries) {
                let count = self.close_and_count(self.inputs[asking].config.stream, dead_copy, origin);
                let limited = |count: u32| count.min(u16::MAX.into()) as u16;
                let (arrived, outputs) = (limited(count.arrived), limited(count.outputs));
                self.send_to_input(asking, EdgeMessage::Answer { origin, arrived, outputs });
            }
        }
    }

    /// Closes the edge from a dead copy, and counts the outputs of `origin` from all copies.
    fn close_and_count(&mut self, stream: usize, dead_copy: u16, origin: u64) -> OriginCount {
        let mut sum = OriginCount { origin, ..OriginCount::default() };
        for (at, input) in self.inputs.iter_mut().enumerate().filter(|(_, i)| i.config.stream == stream) {
            if input.config.producer_copy == usize::from(dead_copy) && !input.is_lost {
                input.lose();
                self.actions.push_back(Action::Close(EdgeEnd::Input(at)));
            }
            let here = input.origins.count(origin);
            sum.arrived += here.arrived;
            sum.outputs = sum.outputs.max(here.outputs);
        }
        sum
    }

    /// Sends a query to all copies of all consumers. Returns how many answers are due.
    pub(super) fn query_consumers(&mut self, origin: u64, dead_copy: u16) -> usize {
        let header = Header { unit: self.unit, message: EdgeMessage::Query { origin, dead_copy } };
        let mut queries = 0;
        for (stream, output) in self.outputs.iter().enumerate() {
            for (copy, _) in output.consumers.iter().enumerate().filter(|(_, c)| !c.is_lost) {
                let edge = EdgeEnd::Output { stream, copy };
                self.actions.push_back(Action::Send { edge, header, body: None });
                queries += 1;
            }
        }
        queries
    }

    /// Takes the answer of one copy of a consumer.
    pub(super) fn on_answer(&mut self, origin: u64, arrived: u16, outputs: u16) {
        let asked = self.open.iter_mut().find(|b| b.origin == origin && b.open_queries > 0);
        if let Some(buffer) = asked {
            buffer.open_queries -= 1;
            buffer.arrived.arrived += u32::from(arrived);
            buffer.arrived.outputs = buffer.arrived.outputs.max(outputs.into());
        }
    }
}
