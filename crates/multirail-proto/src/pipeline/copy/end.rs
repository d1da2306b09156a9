//! The end of a unit of work: complete, or after a failure.

use super::protocol::CopyProtocol;
use super::types::{Action, EdgeEnd, Violation};
use crate::pipeline::header::{EdgeMessage, Header};

impl<B> CopyProtocol<B> {
    /// Whether everything that this copy has read is done, and everything that it has sent is
    /// done where it would otherwise be replayed.
    ///
    /// Consumers are told of the end only then: afterwards no host could take over a dead copy's
    /// buffers.
    pub fn is_settled(&self) -> bool {
        let kept = self.outputs.iter().flat_map(|o| &o.consumers).any(|c| !c.sent.is_empty());
        !kept && self.open.is_empty() && self.outbox.is_empty()
    }

    /// Ends the unit of work on all output edges.
    pub fn end(&mut self) {
        self.send_ends(false);
    }

    /// Gives up a failed unit of work: drops all its buffers and ends it on all output edges.
    ///
    /// The owner then passes the messages of all readable inputs to [`CopyProtocol::discard`]
    /// until every input [has ended](CopyProtocol::has_input_ended).
    pub fn abandon(&mut self) {
        (self.current, self.next_input) = (None, 0);
        self.staged.clear();
        self.open.clear();
        self.outbox.clear();
        for output in &mut self.outputs {
            output.abandoned_up_to = self.last_number;
            output.consumers.iter_mut().for_each(|c| drop(c.sent.take()));
        }
        self.send_ends(true);
    }

    /// Drops what was read ahead on an input of an abandoned unit, up to the unit's end.
    ///
    /// # Errors
    ///
    /// [`Violation`], after which the edge counts as lost.
    pub fn discard_early(&mut self, edge: usize) -> Result<(), Violation> {
        while !self.inputs[edge].has_ended
            && let Some((header, _)) = self.inputs[edge].early.pop_front()
        {
            self.discard_data(edge, header)?;
        }
        Ok(())
    }

    /// Takes a message from a producer in an abandoned unit: acknowledges it, so that the producer
    /// reaches its end, and drops it.
    ///
    /// # Errors
    ///
    /// [`Violation`], after which the edge counts as lost.
    pub fn discard(&mut self, edge: usize, header: Header) -> Result<(), Violation> {
        if self.inputs[edge].record(&header)? { self.discard_data(edge, header) } else { Ok(()) }
    }

    fn discard_data(&mut self, edge: usize, header: Header) -> Result<(), Violation> {
        self.check_unit(&header)?;
        match header.message {
            EdgeMessage::Data(data) => self.send_to_input(edge, EdgeMessage::Started(data.number)),
            _ => self.inputs[edge].has_ended = true,
        }
        Ok(())
    }

    fn send_ends(&mut self, aborted: bool) {
        if std::mem::replace(&mut self.ends_sent, true) {
            return;
        }
        let header = Header { unit: self.unit, message: EdgeMessage::End { aborted } };
        for (stream, output) in self.outputs.iter().enumerate() {
            for (copy, _) in output.consumers.iter().enumerate().filter(|(_, c)| !c.is_lost) {
                let edge = EdgeEnd::Output { stream, copy };
                self.actions.push_back(Action::Send { edge, header, body: None });
            }
        }
    }
}
