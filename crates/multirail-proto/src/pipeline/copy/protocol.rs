//! The state machine of one copy.

use super::input::Input;
use super::output::Output;
use super::types::{Action, CopyError, Delivery, EdgeEnd, InputConfig, OutputConfig, Read, Violation};
use crate::pipeline::header::{DataHeader, EdgeMessage, Header, origin};
use crate::pipeline::replay::{MAX_OPEN, OriginCount};
use std::collections::VecDeque;

/// One copy's part in the group. `B` is the body of a message.
#[derive(Debug)]
pub struct CopyProtocol<B> {
    pub(super) unit: u32,
    pub(super) inputs: Vec<Input<B>>,
    pub(super) outputs: Vec<Output<B>>,
    /// The buffer that the filter works on.
    pub(super) current: Option<Current>,
    /// What the filter has made of the current buffer, if its producer keeps buffers.
    pub(super) staged: Vec<Written<B>>,
    /// Buffers of producers that keep them, which the filter has finished and which are not done.
    pub(super) open: Vec<OpenBuffer<B>>,
    /// Buffers without a consumer's copy, since all copies have a full window.
    pub(super) outbox: VecDeque<(usize, DataHeader, B)>,
    pub(super) actions: VecDeque<Action<B>>,
    /// The end of this unit was sent to the consumers.
    pub(super) ends_sent: bool,
    /// The input that is read first.
    pub(super) next_input: usize,
    /// The number of the last buffer that was sent. It grows over all units of work.
    pub(super) last_number: u64,
}

/// The buffer that the filter works on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    edge: usize,
    number: u64,
    replay_of: Option<u16>,
}

/// A buffer that the filter has written.
#[derive(Debug)]
pub(super) struct Written<B> {
    stream: usize,
    tag: u64,
    body: B,
}

/// A buffer that the filter has finished and that is not done.
#[derive(Debug)]
pub(super) struct OpenBuffer<B> {
    edge: usize,
    number: u64,
    pub origin: u64,
    /// Outputs that wait for the answers to the queries.
    held: Vec<Written<B>>,
    /// Numbers of the outputs that no consumer has started on.
    in_flight: Vec<u64>,
    /// Answers that are missing.
    pub open_queries: usize,
    /// The sum of the answers.
    pub arrived: OriginCount,
}

impl<B> CopyProtocol<B> {
    /// The state of copy number `copy` of its filter, before the first unit of work.
    pub fn new(copy: usize, inputs: &[InputConfig], outputs: &[OutputConfig]) -> Self {
        Self {
            unit: 0,
            inputs: inputs.iter().map(|config| Input::new(*config)).collect(),
            outputs: outputs.iter().map(|config| Output::new(config, copy)).collect(),
            current: None,
            staged: Vec::new(),
            open: Vec::new(),
            outbox: VecDeque::new(),
            actions: VecDeque::new(),
            ends_sent: false,
            next_input: 0,
            last_number: 0,
        }
    }

    /// Begins a unit of work.
    ///
    /// # Errors
    ///
    /// [`CopyError::PeerLost`] if an edge was lost in an earlier unit and no other copy can stand
    /// in for its peer.
    pub fn begin(&mut self, unit: u32) -> Result<(), CopyError> {
        (self.unit, self.ends_sent) = (unit, false);
        self.inputs.iter_mut().for_each(|i| i.has_ended = false);
        let input = self.inputs.iter().position(|i| i.is_lost && !i.config.replaceable).map(EdgeEnd::Input);
        let output = || {
            let needed = self.outputs.iter().enumerate().filter(|(_, o)| !o.survives_loss());
            let edges = needed.flat_map(|(stream, o)| o.consumers.iter().enumerate().map(move |c| (stream, c)));
            let mut lost = edges.filter(|(_, (_, c))| c.is_lost);
            lost.next().map(|(stream, (copy, _))| EdgeEnd::Output { stream, copy })
        };
        input.or_else(output).map_or(Ok(()), |edge| Err(CopyError::PeerLost(edge)))
    }

    /// Whether the filter may get another buffer: not too many are open, and nothing that it has
    /// written waits for a consumer.
    pub fn may_read(&self) -> bool {
        self.open.len() < MAX_OPEN && self.outbox.is_empty()
    }

    /// The inputs in the order in which they are to be read.
    pub fn read_order(&self) -> impl Iterator<Item = usize> + use<B> {
        let (first, count) = (self.next_input, self.inputs.len());
        (0..count).map(move |i| (first + i) % count)
    }

    /// Whether the filter can get more from an input in this unit of work.
    pub fn is_readable(&self, edge: usize) -> bool {
        !self.inputs[edge].is_over()
    }

    /// Whether all inputs have ended this unit of work.
    pub fn has_input_ended(&self) -> bool {
        self.inputs.iter().all(Input::is_over)
    }

    /// Whether an input's messages are to be passed to [`CopyProtocol::look_ahead`].
    pub fn looks_ahead(&self, edge: usize) -> bool {
        self.inputs[edge].config.replaceable && !self.inputs[edge].is_lost
    }

    /// Whether some producer keeps its buffers until they are done. If so, the filter must write
    /// what it makes of a buffer before it reads the next one.
    pub fn is_kept_by_producer(&self) -> bool {
        self.inputs.iter().any(|i| i.config.kept_by_producer)
    }

    /// Takes the oldest message that was read ahead. To be called before an input's connection is
    /// read.
    pub fn read_early(&mut self, edge: usize) -> Option<Result<Read<B>, Violation>> {
        let (header, body) = self.inputs[edge].early.pop_front()?;
        Some(self.deliver(edge, header, body))
    }

    /// Takes a message from a producer, for the filter.
    ///
    /// # Errors
    ///
    /// [`Violation`], after which the edge counts as lost.
    pub fn read(&mut self, edge: usize, header: Header, body: B) -> Result<Read<B>, Violation> {
        if self.inputs[edge].record(&header)? { self.deliver(edge, header, body) } else { Ok(Read::Control) }
    }

    /// Takes a message from a producer while the filter does not read, and keeps it if it is data.
    ///
    /// # Errors
    ///
    /// [`Violation`], after which the edge counts as lost.
    pub fn look_ahead(&mut self, edge: usize, header: Header, body: B) -> Result<(), Violation> {
        let input = &mut self.inputs[edge];
        if input.record(&header)? { input.store(header, body) } else { Ok(()) }
    }

    fn deliver(&mut self, edge: usize, header: Header, body: B) -> Result<Read<B>, Violation> {
        self.check_unit(&header)?;
        match header.message {
            EdgeMessage::Data(DataHeader { number, tag, replay_of, .. }) => {
                self.send_to_input(edge, EdgeMessage::Started(number));
                self.next_input = (edge + 1) % self.inputs.len();
                self.current = Some(Current { edge, number, replay_of });
                Ok(Read::Buffer(Delivery { stream: self.inputs[edge].config.stream, tag, body }))
            }
            message => {
                self.inputs[edge].has_ended = true;
                // The data before this marker is incomplete and must not be taken for the whole.
                let is_aborted = message == EdgeMessage::End { aborted: true };
                Ok(if is_aborted { Read::Aborted } else { Read::End })
            }
        }
    }

    pub(super) fn check_unit(&self, header: &Header) -> Result<(), Violation> {
        let (received, current) = (header.unit, self.unit);
        if received == current { Ok(()) } else { Err(Violation::WrongUnit { received, current }) }
    }

    /// The filter is done with its current buffer.
    pub fn finish_buffer(&mut self) {
        let Some(Current { edge, number, replay_of }) = self.current.take() else { return };
        let config = self.inputs[edge].config;
        if !config.kept_by_producer {
            return;
        }
        let origin = origin(config.stream, config.producer_copy, number);
        let open_queries = replay_of.map_or(0, |dead_copy| self.query_consumers(origin, dead_copy));
        let held = std::mem::take(&mut self.staged);
        let arrived = OriginCount { origin, ..OriginCount::default() };
        self.open.push(OpenBuffer { edge, number, origin, held, in_flight: Vec::new(), open_queries, arrived });
    }

    /// The filter writes a buffer to an output stream, which must exist.
    ///
    /// The buffer has left this copy's hands once [`CopyProtocol::has_outbox`] is false.
    pub fn write(&mut self, stream: usize, tag: u64, body: B) {
        let written = Written { stream, tag, body };
        match self.current {
            Some(current) if self.inputs[current.edge].config.kept_by_producer => self.staged.push(written),
            _ => drop(self.enqueue(written, 0, 0)),
        }
    }

    /// Whether buffers wait for a consumer with room.
    pub fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Numbers a buffer and puts it into the outbox.
    fn enqueue(&mut self, written: Written<B>, origin: u64, outputs: u16) -> u64 {
        self.last_number += 1;
        let Written { stream, tag, body } = written;
        let header = DataHeader { number: self.last_number, tag, origin, outputs, replay_of: None };
        self.outbox.push_back((stream, header, body));
        self.last_number
    }

    /// Does what has become possible: sends buffers to consumers with room, and reports buffers as
    /// done. `duplicate` copies a body that must be kept for a replay.
    ///
    /// # Errors
    ///
    /// [`CopyError::PartialReplay`], after which the unit of work has failed.
    pub fn advance(&mut self, mut duplicate: impl FnMut(&B) -> B) -> Result<(), CopyError> {
        self.release_answered()?;
        while let Some((stream, header, body)) = self.outbox.pop_front() {
            let output = &mut self.outputs[stream];
            let Some(copy) = output.scheduler.assign() else {
                self.outbox.push_front((stream, header, body));
                break;
            };
            if output.keep {
                output.consumers[copy].sent.insert(header.number, (header, duplicate(&body)));
            }
            let (edge, message) = (EdgeEnd::Output { stream, copy }, EdgeMessage::Data(header));
            let header = Header { unit: self.unit, message };
            self.actions.push_back(Action::Send { edge, header, body: Some(body) });
        }
        self.report_done();
        Ok(())
    }

    /// Moves the outputs of buffers whose queries are answered to the outbox, unless a dead copy
    /// has sent them already.
    fn release_answered(&mut self) -> Result<(), CopyError> {
        for at in 0..self.open.len() {
            let buffer = &mut self.open[at];
            if buffer.open_queries > 0 || buffer.held.is_empty() {
                continue;
            }
            let (held, seen, origin) = (std::mem::take(&mut buffer.held), buffer.arrived, buffer.origin);
            if seen.arrived > 0 {
                if seen.arrived != seen.outputs {
                    return Err(CopyError::PartialReplay);
                }
                continue;
            }
            let outputs = held.len().min(usize::from(u16::MAX)) as u16;
            for written in held {
                let number = self.enqueue(written, origin, outputs);
                self.open[at].in_flight.push(number);
            }
        }
        Ok(())
    }

    fn report_done(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let is_done = |b: &mut OpenBuffer<B>| b.open_queries == 0 && b.held.is_empty() && b.in_flight.is_empty();
        let done: Vec<_> = self.open.extract_if(.., is_done).map(|b| (b.edge, b.number)).collect();
        done.into_iter().for_each(|(edge, number)| self.send_to_input(edge, EdgeMessage::Done(number)));
    }

    /// Takes a message from a copy of a consumer.
    ///
    /// # Errors
    ///
    /// [`Violation`], after which the edge counts as lost.
    pub fn on_consumer_message(&mut self, stream: usize, copy: usize, header: Header) -> Result<(), Violation> {
        let output = &mut self.outputs[stream];
        let is_expected = match header.message {
            EdgeMessage::Started(number) => {
                self.open.iter_mut().for_each(|b| b.in_flight.retain(|n| *n != number));
                output.scheduler.acknowledge(copy).is_ok()
            }
            EdgeMessage::Done(number) => {
                output.consumers[copy].sent.remove(number).is_ok() || number <= output.abandoned_up_to
            }
            EdgeMessage::Answer { origin, arrived, outputs } => {
                self.on_answer(origin, arrived, outputs);
                true
            }
            EdgeMessage::Data(_) | EdgeMessage::End { .. } | EdgeMessage::Query { .. } => false,
        };
        if is_expected { Ok(()) } else { Err(Violation::Unexpected { message: header.message, from: "consumer" }) }
    }

    /// The connection from a producer's copy is lost. What was read ahead is still delivered.
    ///
    /// # Errors
    ///
    /// [`CopyError::PeerLost`] if no other copy can do the producer's work.
    pub fn on_input_lost(&mut self, edge: usize) -> Result<(), CopyError> {
        let input = &mut self.inputs[edge];
        input.lose();
        let replaceable = input.config.replaceable;
        self.close(EdgeEnd::Input(edge), replaceable)
    }

    /// A producer's copy has sent a message that makes no sense. Nothing more is taken from it.
    ///
    /// # Errors
    ///
    /// As for [`CopyProtocol::on_input_lost`].
    pub fn on_input_violation(&mut self, edge: usize) -> Result<(), CopyError> {
        self.inputs[edge].lose_all();
        self.on_input_lost(edge)
    }

    /// The connection to a consumer's copy is lost. The other copies get its buffers, before all
    /// others. Returns how many buffers are replayed.
    ///
    /// # Errors
    ///
    /// [`CopyError::PeerLost`] if no other copy can take the buffers, or if the answer to a query
    /// may be missing because two copies died at the same time.
    pub fn on_output_lost(&mut self, stream: usize, copy: usize) -> Result<usize, CopyError> {
        let is_asking = self.open.iter().any(|b| b.open_queries > 0);
        let output = &mut self.outputs[stream];
        let left = output.lose(copy);
        let replayed = left.len();
        let survives = output.survives_loss() && !is_asking;
        for (header, body) in left.into_iter().rev() {
            let header = DataHeader { replay_of: Some(copy as u16), ..header };
            self.outbox.push_front((stream, header, body));
        }
        self.close(EdgeEnd::Output { stream, copy }, survives).map(|()| replayed)
    }

    fn close(&mut self, edge: EdgeEnd, is_survived: bool) -> Result<(), CopyError> {
        self.actions.push_back(Action::Close(edge));
        if is_survived { Ok(()) } else { Err(CopyError::PeerLost(edge)) }
    }

    /// The next thing to do for the owner.
    pub fn poll_action(&mut self) -> Option<Action<B>> {
        self.actions.pop_front()
    }

    /// Buffers that were sent and that no consumer has started on.
    pub fn unacknowledged(&self) -> u64 {
        self.outputs.iter().map(|o| u64::from(o.scheduler.unacknowledged())).sum()
    }

    pub(super) fn send_to_input(&mut self, edge: usize, message: EdgeMessage) {
        let (edge, header) = (EdgeEnd::Input(edge), Header { unit: self.unit, message });
        self.actions.push_back(Action::Send { edge, header, body: None });
    }
}
