//! The edges of a copy: moves messages between their connections and the copy's state machine, and
//! sleeps for all of them at once.

use super::counters::Counters;
use super::failure::StreamError;
use super::info::{Next, Received};
use super::peer::PeerEdge;
use crate::edge::{Buffer, Message, Notifier, Pool, wait_with_fds};
use multirail_net::error::{Error, Result};
use multirail_proto::pipeline::copy::{
    Action, CopyError, CopyProtocol, EdgeEnd, InputConfig, OutputConfig, Read, Violation,
};
use multirail_proto::pipeline::header::{EdgeMessage, Header};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The edges of one copy. Only the copy's thread uses it.
#[derive(Debug)]
pub(crate) struct CopyRuntime {
    notifier: Arc<Notifier>,
    pub counters: Arc<Counters>,
    pub pool: Arc<Pool>,
    /// The unit of work that was aborted last; `u32::MAX` for all of them.
    aborted_unit: Arc<AtomicU32>,
    protocol: CopyProtocol<Buffer>,
    inputs: Vec<PeerEdge>,
    /// By stream and copy of the consumer.
    outputs: Vec<Vec<PeerEdge>>,
    unit: u32,
    /// Output edges with buffers that this thread still has to send.
    unflushed: Vec<(usize, usize)>,
}

impl CopyRuntime {
    /// The runtime of copy number `copy` with these edges.
    pub(crate) fn new(
        copy: usize,
        notifier: Arc<Notifier>,
        aborted_unit: Arc<AtomicU32>,
        inputs: Vec<(InputConfig, PeerEdge)>,
        outputs: Vec<(OutputConfig, Vec<PeerEdge>)>,
    ) -> Self {
        let (input_configs, inputs): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
        let (output_configs, outputs): (Vec<_>, Vec<_>) = outputs.into_iter().unzip();
        Self {
            notifier,
            counters: Arc::default(),
            pool: Arc::default(),
            aborted_unit,
            protocol: CopyProtocol::new(copy, &input_configs, &output_configs),
            inputs,
            outputs,
            unit: 0,
            unflushed: Vec::new(),
        }
    }

    /// The number of output streams.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Begins a unit of work.
    pub(crate) fn begin(&mut self, unit: u32) -> Result<(), StreamError> {
        self.unit = unit;
        let begun = self.protocol.begin(unit);
        begun.map_err(|error| self.failure(error, "it was lost in an earlier unit of work"))
    }

    /// Whether the unit of work was aborted.
    pub(crate) fn is_aborted(&self) -> bool {
        let aborted = self.aborted_unit.load(Ordering::Acquire);
        aborted == self.unit || aborted == u32::MAX
    }

    fn check_aborted(&self) -> Result<(), StreamError> {
        if self.is_aborted() { Err(StreamError::Aborted) } else { Ok(()) }
    }

    /// As [`CopyProtocol::is_kept_by_producer`].
    pub(crate) fn is_kept_by_producer(&self) -> bool {
        self.protocol.is_kept_by_producer()
    }

    /// The next buffer of this unit of work from any input; `None` when all inputs have ended.
    pub(crate) fn read(&mut self) -> Result<Option<Received>, StreamError> {
        self.protocol.finish_buffer();
        loop {
            match self.read_once(true, &[])? {
                Next::Buffer(received) => return Ok(Some(received)),
                Next::End => return Ok(None),
                Next::Nothing => {}
            }
        }
    }

    /// As [`CopyRuntime::read`] if a buffer is `wanted`, but also returns when nothing is there
    /// after one sleep, which one of `fds` may have ended. Each descriptor comes with whether it is
    /// to be written to.
    pub(crate) fn read_or_poll(&mut self, wanted: bool, fds: &[(RawFd, bool)]) -> Result<Next, StreamError> {
        if wanted {
            self.protocol.finish_buffer();
        }
        self.read_once(wanted, fds)
    }

    fn read_once(&mut self, wanted: bool, fds: &[(RawFd, bool)]) -> Result<Next, StreamError> {
        self.check_aborted()?;
        let seen = self.notifier.seen();
        self.transmit()?;
        self.flush()?;
        let wanted = wanted && self.protocol.may_read();
        if wanted {
            if let Some(received) = self.read_inputs()? {
                return Ok(Next::Buffer(received));
            }
            if self.protocol.has_input_ended() {
                return Ok(Next::End);
            }
        }
        self.receive()?;
        self.sleep(seen, wanted, fds);
        Ok(Next::Nothing)
    }

    /// Looks at every input once, beginning after the one that was read last.
    fn read_inputs(&mut self) -> Result<Option<Received>, StreamError> {
        for edge in self.protocol.read_order() {
            while self.protocol.is_readable(edge) {
                match self.read_input(edge) {
                    Ok(None) => break,
                    Ok(Some(Read::Buffer(delivery))) => {
                        self.transmit()?;
                        let (stream, tag, body) = (delivery.stream, delivery.tag, delivery.body);
                        return Ok(Some(Received { stream, tag, body }));
                    }
                    Ok(Some(Read::Aborted)) => return Err(StreamError::Aborted),
                    Ok(Some(Read::Control | Read::End)) => {}
                    Err(cause) => self.on_input_failed(edge, &cause)?,
                }
            }
        }
        Ok(None)
    }

    fn read_input(&mut self, edge: usize) -> Result<Option<Read<Buffer>>, EdgeFailure> {
        if let Some(read) = self.protocol.read_early(edge) {
            return Ok(Some(read?));
        }
        match pull(&mut self.inputs[edge])? {
            Some((header, body)) => Ok(Some(self.protocol.read(edge, header, body)?)),
            None => Ok(None),
        }
    }

    /// Sends a buffer to the copy that the scheduler chooses, and waits until the buffer has left
    /// this thread's hands.
    pub(crate) fn write(&mut self, stream: usize, tag: u64, body: Buffer) -> Result<(), StreamError> {
        let outputs = self.outputs.len();
        if stream >= outputs {
            return Err(StreamError::NoOutput { stream, outputs });
        }
        self.protocol.write(stream, tag, body);
        self.check_aborted()?;
        while self.protocol.has_outbox() {
            self.check_aborted()?;
            let seen = self.notifier.seen();
            self.receive()?;
            if self.protocol.has_outbox() {
                self.sleep(seen, false, &[]);
            }
        }
        self.flush()
    }

    /// Waits until all buffers are sent, before the filter continues: it may compute for long, and
    /// the consumers would wait meanwhile.
    fn flush(&mut self) -> Result<(), StreamError> {
        loop {
            let seen = self.notifier.seen();
            let mut pending = std::mem::take(&mut self.unflushed);
            let mut failed = None;
            pending.retain(|&(stream, copy)| {
                let Some(connection) = &mut self.outputs[stream][copy].connection else { return false };
                match connection.flush() {
                    Ok(is_sent) => !is_sent,
                    Err(cause) => {
                        failed = failed.take().or(Some((stream, copy, cause)));
                        true
                    }
                }
            });
            self.unflushed = pending;
            if let Some((stream, copy, cause)) = failed {
                self.on_output_failed(stream, copy, &cause.into())?;
                self.transmit()?;
            } else if self.unflushed.is_empty() && !self.protocol.has_outbox() {
                return Ok(());
            } else {
                self.check_aborted()?;
                self.receive()?;
                self.sleep(seen, false, &[]);
            }
        }
    }

    /// Takes what consumers send, answers queries, and sends what there is room for by now.
    fn receive(&mut self) -> Result<(), StreamError> {
        for input in &mut self.inputs {
            if let Some(connection) = &mut input.connection {
                // A failure is noticed when the input is read.
                let _ = connection.flush();
            }
        }
        self.look_ahead()?;
        if self.protocol.has_queries() {
            // Once more for inputs that were looked at before the query arrived.
            self.look_ahead()?;
            self.protocol.answer_queries();
        }
        for stream in 0..self.outputs.len() {
            for copy in 0..self.outputs[stream].len() {
                if let Err(cause) = self.receive_from_consumer(stream, copy) {
                    self.on_output_failed(stream, copy, &cause)?;
                }
            }
        }
        self.counters.queued.store(self.protocol.unacknowledged(), Ordering::Relaxed);
        self.transmit()
    }

    /// Reads ahead where queries may come.
    fn look_ahead(&mut self) -> Result<(), StreamError> {
        for edge in 0..self.inputs.len() {
            while self.protocol.looks_ahead(edge) {
                let looked = match pull(&mut self.inputs[edge]) {
                    Ok(Some((header, body))) => self.protocol.look_ahead(edge, header, body).map_err(EdgeFailure::from),
                    Ok(None) => break,
                    Err(cause) => Err(cause),
                };
                if let Err(cause) = looked {
                    self.on_input_failed(edge, &cause)?;
                }
            }
        }
        Ok(())
    }

    fn receive_from_consumer(&mut self, stream: usize, copy: usize) -> Result<(), EdgeFailure> {
        let edge = &mut self.outputs[stream][copy];
        let Some(connection) = &mut edge.connection else { return Ok(()) };
        connection.flush()?;
        while let Some((header, _)) = pull(edge)? {
            self.protocol.on_consumer_message(stream, copy, header)?;
        }
        Ok(())
    }

    /// Does what has become possible: passes messages from the state machine to the connections.
    fn transmit(&mut self) -> Result<(), StreamError> {
        let pool = &self.pool;
        let advanced = self.protocol.advance(|body| {
            let mut copy = pool.buffer(body.len());
            copy.extend_from_slice(body);
            copy
        });
        self.perform();
        advanced.map_err(|error| self.failure(error, ""))
    }

    fn perform(&mut self) {
        while let Some(action) = self.protocol.poll_action() {
            match action {
                Action::Send { edge: EdgeEnd::Input(edge), header, body } => {
                    let Some(connection) = &mut self.inputs[edge].connection else { continue };
                    connection.push(message(header, body));
                    // A failure is noticed when the input is read.
                    let _ = connection.flush();
                }
                Action::Send { edge: EdgeEnd::Output { stream, copy }, header, body } => {
                    let Some(connection) = &mut self.outputs[stream][copy].connection else { continue };
                    connection.push(message(header, body));
                    let is_waited_for = matches!(header.message, EdgeMessage::Data(_) | EdgeMessage::End { .. });
                    if is_waited_for && !self.unflushed.contains(&(stream, copy)) {
                        self.unflushed.push((stream, copy));
                    }
                }
                Action::Close(EdgeEnd::Input(edge)) => self.inputs[edge].connection = None,
                Action::Close(EdgeEnd::Output { stream, copy }) => self.outputs[stream][copy].connection = None,
            }
        }
    }

    fn on_input_failed(&mut self, edge: usize, cause: &EdgeFailure) -> Result<(), StreamError> {
        let lost = match cause {
            EdgeFailure::Lost(_) => self.protocol.on_input_lost(edge),
            EdgeFailure::Violation(_) => self.protocol.on_input_violation(edge),
        };
        self.perform();
        lost.map_err(|_| self.inputs[edge].peer.lost(cause))
    }

    fn on_output_failed(&mut self, stream: usize, copy: usize, cause: &EdgeFailure) -> Result<(), StreamError> {
        let lost = self.protocol.on_output_lost(stream, copy);
        self.perform();
        let peer = &self.outputs[stream][copy].peer;
        let replayed = lost.map_err(|_| peer.lost(cause))?;
        tracing::warn!(filter = peer.filter, copy = peer.copy, host = peer.host, %cause, replayed,
            "a copy is lost, the other copies get its buffers");
        Ok(())
    }

    /// Ends the unit of work on all output streams.
    pub(crate) fn end(&mut self) -> Result<(), StreamError> {
        self.protocol.finish_buffer();
        loop {
            self.check_aborted()?;
            let seen = self.notifier.seen();
            self.receive()?;
            self.flush()?;
            if self.protocol.is_settled() {
                break;
            }
            self.sleep(seen, false, &[]);
        }
        self.protocol.end();
        self.perform();
        self.flush()
    }

    /// Brings all edges to the end of a unit of work that failed, so that the next one can begin.
    pub(crate) fn abandon(&mut self) {
        self.protocol.abandon();
        self.perform();
        let mut seen = self.notifier.seen();
        while !self.discard_once() {
            self.sleep(seen, true, &[]);
            seen = self.notifier.seen();
        }
        self.unflushed.clear();
    }

    /// Discards what has arrived. Returns whether all inputs have ended and all ends are sent.
    fn discard_once(&mut self) -> bool {
        for edge in 0..self.inputs.len() {
            if let Err(cause) = self.discard_input(edge) {
                // The unit of work has failed already.
                let _ = self.on_input_failed(edge, &cause);
            }
        }
        self.perform();
        let mut all_sent = true;
        for at in 0..self.unflushed.len() {
            let (stream, copy) = self.unflushed[at];
            let received = self.receive_from_consumer(stream, copy);
            let flushed = received.and_then(|()| match &mut self.outputs[stream][copy].connection {
                Some(connection) => Ok(connection.flush()?),
                None => Ok(true),
            });
            match flushed {
                Ok(is_sent) => all_sent &= is_sent,
                Err(_) => drop(self.protocol.on_output_lost(stream, copy)),
            }
        }
        self.perform();
        all_sent && self.protocol.has_input_ended()
    }

    fn discard_input(&mut self, edge: usize) -> Result<(), EdgeFailure> {
        self.protocol.discard_early(edge)?;
        while self.protocol.is_readable(edge) {
            match pull(&mut self.inputs[edge])? {
                Some((header, _)) => self.protocol.discard(edge, header)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Sleeps until a message, room for one, or one of `fds` is there. Inputs count only where
    /// buffers are `wanted`, or queries may come.
    fn sleep(&mut self, seen: u32, wanted: bool, fds: &[(RawFd, bool)]) {
        let protocol = &self.protocol;
        let is_awaited = |edge: usize| protocol.looks_ahead(edge) || wanted && protocol.is_readable(edge);
        let inputs = self.inputs.iter_mut().enumerate().filter(|(edge, _)| is_awaited(*edge)).map(|(_, input)| input);
        let edges = inputs.chain(self.outputs.iter_mut().flatten());
        let connections = edges.filter_map(|edge| edge.connection.as_mut());
        let events = |writable| if writable { libc::POLLOUT } else { libc::POLLIN };
        let fds = fds.iter().map(|(fd, writable)| libc::pollfd { fd: *fd, events: events(*writable), revents: 0 });
        if let Err(error) = wait_with_fds(&self.notifier, seen, connections, fds.collect(), None) {
            // The connection is looked at again, and fails then.
            tracing::debug!(%error, "cannot wait for a connection");
        }
    }

    fn failure(&self, error: CopyError, cause: &str) -> StreamError {
        match error {
            CopyError::PartialReplay => StreamError::PartialReplay,
            CopyError::PeerLost(EdgeEnd::Input(edge)) => self.inputs[edge].peer.lost(cause),
            CopyError::PeerLost(EdgeEnd::Output { stream, copy }) => self.outputs[stream][copy].peer.lost(cause),
        }
    }
}

/// Why an edge cannot be used any more.
#[derive(Debug, thiserror::Error)]
enum EdgeFailure {
    #[error(transparent)]
    Lost(#[from] Error),
    #[error("protocol violation: {0}")]
    Violation(#[from] Violation),
}

/// The next message of an edge, if one is here.
fn pull(edge: &mut PeerEdge) -> Result<Option<(Header, Buffer)>, EdgeFailure> {
    let Some(connection) = &mut edge.connection else { return Err(Error::Closed.into()) };
    let Some(Message { head, body }) = connection.pull()? else { return Ok(None) };
    let header = Header::decode(&head).map_err(|e| Error::Protocol(e.to_string()))?;
    Ok(Some((header, body)))
}

fn message(header: Header, body: Option<Buffer>) -> Message {
    Message { head: header.encode(), body: body.unwrap_or_default() }
}
