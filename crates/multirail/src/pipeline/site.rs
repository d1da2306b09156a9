//! A copy's edges together: where buffers, acknowledgements and end-of-work markers come and go, and where a copy waits.

use super::counters::Counters;
use super::edges::{Input, Output, Told};
use super::filter::Stop;
use super::io::{Next, Received};
use super::wire::{GIVEN_UP, Head, Kind, origin};
use crate::error::Error;
use crate::transport::{Bell, Buffer, Pool, wait_also};
use multirail_proto::pipeline::keep::{MAX_OPEN, Seen};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A copy's edges.
#[derive(Debug)]
pub(super) struct Site {
    pub bell: Arc<Bell>,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    pub counters: Arc<Counters>,
    pub pool: Arc<Pool>,
    /// The unit of work that was given up last.
    given_up: Arc<AtomicU32>,
    /// The buffer that the filter has.
    has: Option<Has>,
    /// What it made of it, where the producer keeps it.
    staged: Vec<Made>,
    promises: Vec<Promise>,
    unit: u32,
    /// This unit's end was told to all consumers.
    ends_pushed: bool,
    /// The input that is looked at first.
    turn: usize,
    /// The last buffer's; it grows over all units of work.
    number: u64,
}

#[derive(Debug)]
struct Made {
    stream: usize,
    tag: u64,
    body: Buffer,
}

#[derive(Debug, Clone, Copy)]
struct Has {
    edge: usize,
    number: u64,
    /// The dead copy that had it before.
    replay: Option<u16>,
}

/// A buffer that was worked on and is not done: see [`multirail_proto::pipeline::keep`].
#[derive(Debug)]
struct Promise {
    edge: usize,
    number: u64,
    origin: u64,
    made: Vec<Made>,
    /// What was made of it, is sent on, and nobody has started on.
    on_the_way: Vec<u64>,
    /// Of a replay: so many have not answered yet,
    open_questions: usize,
    /// and this is what the others said.
    seen: Seen,
}

impl Site {
    pub fn new(bell: Arc<Bell>, counters: Arc<Counters>, given_up: Arc<AtomicU32>) -> Self {
        Self {
            bell,
            inputs: Vec::new(),
            outputs: Vec::new(),
            counters,
            pool: Arc::default(),
            given_up,
            has: None,
            staged: Vec::new(),
            promises: Vec::new(),
            unit: 0,
            ends_pushed: false,
            turn: 0,
            number: 0,
        }
    }

    /// Begins a unit of work.
    pub fn begin(&mut self, unit: u32) -> Result<(), Stop> {
        (self.unit, self.ends_pushed) = (unit, false);
        for input in &mut self.inputs {
            input.ended = input.is_over();
        }
        let lost = self.inputs.iter().find(|i| i.gone && !i.is_spare).map(|i| &i.peer);
        let needed = self.outputs.iter().filter(|o| !o.keeps || !o.dealer.is_anybody_left());
        let lost = lost.or_else(|| needed.flat_map(|o| &o.edges).find(|e| e.gone).map(|e| &e.peer));
        lost.map_or(Ok(()), |peer| Err(peer.gone("it was lost in an earlier unit of work")))
    }

    pub fn is_given_up(&self) -> bool {
        matches!(self.given_up.load(Ordering::Acquire), up if up == self.unit || up == u32::MAX)
    }

    fn check(&self) -> Result<(), Stop> {
        if self.is_given_up() { Err(Stop::Aborted) } else { Ok(()) }
    }

    /// The next buffer of this unit, by any edge.
    pub fn read(&mut self) -> Result<Option<Received>, Stop> {
        self.let_go();
        loop {
            self.check()?;
            self.fulfil()?;
            let seen = self.bell.seen();
            if self.promises.len() < MAX_OPEN {
                if let Some(received) = self.look()? {
                    return Ok(Some(received));
                }
                if self.inputs.iter().all(|i| i.ended) {
                    return Ok(None);
                }
            }
            self.pump()?;
            self.sleep(seen, self.promises.len() < MAX_OPEN);
        }
    }

    /// As [`Site::read`] where a buffer is `wanted`, but returns with nothing, too, when something may have happened: to one of these
    /// descriptors (each with whether it is to be written to), say.
    pub fn read_or_poll(&mut self, wanted: bool, fds: &[(RawFd, bool)]) -> Result<Next, Stop> {
        if wanted {
            self.let_go();
        }
        self.check()?;
        self.fulfil()?;
        let seen = self.bell.seen();
        let wanted = wanted && self.promises.len() < MAX_OPEN;
        if wanted {
            if let Some(received) = self.look()? {
                return Ok(Next::Buffer(received));
            }
            if self.inputs.iter().all(|i| i.ended) {
                return Ok(Next::End);
            }
        }
        self.pump()?;
        self.sleep_for(seen, wanted, fds);
        Ok(Next::Nothing)
    }

    /// Whether a producer keeps its buffers until they are done: then what is made of each must be written before the next is read.
    pub fn is_kept(&self) -> bool {
        self.inputs.iter().any(|i| i.keeps)
    }

    /// Looks at every input once.
    fn look(&mut self) -> Result<Option<Received>, Stop> {
        let (count, first) = (self.inputs.len(), self.turn);
        for edge in (0..count).map(|i| (first + i) % count) {
            let input = &mut self.inputs[edge];
            if input.ended {
                continue;
            }
            match input.next(self.unit) {
                Ok(None) => {}
                Ok(Some((head, body))) if head.kind == Kind::Data => {
                    input.answer(Head::new(Kind::Started, self.unit, head.number));
                    self.turn = (edge + 1) % count;
                    self.has = Some(Has { edge, number: head.number, replay: head.replay });
                    return Ok(Some(Received { stream: input.stream, tag: head.tag, body }));
                }
                Ok(Some((end, _))) => {
                    input.ended = true;
                    // What came is not all: nobody must take it for the whole.
                    if end.tag == GIVEN_UP {
                        return Err(Stop::Aborted);
                    }
                }
                Err(error) => {
                    input.ended = true;
                    self.lose_input(edge, &error)?;
                }
            }
        }
        Ok(None)
    }

    pub fn write(&mut self, stream: usize, tag: u64, body: Buffer) -> Result<(), Stop> {
        let outputs = self.outputs.len();
        if stream >= outputs {
            return Err(Stop::NoOutput { stream, outputs });
        }
        match self.has {
            Some(has) if self.inputs[has.edge].keeps => {
                self.staged.push(Made { stream, tag, body });
                self.check()
            }
            _ => self.deal(Made { stream, tag, body }, 0, 0).map(|_| ()),
        }
    }

    /// The filter is done with the buffer that it has.
    fn let_go(&mut self) {
        let Some(Has { edge, number, replay }) = self.has.take() else { return };
        let input = &self.inputs[edge];
        if !input.keeps {
            return;
        }
        let origin = origin(input.stream, input.peer.copy, number);
        let made = std::mem::take(&mut self.staged);
        let mut open_questions = 0;
        if replay.is_some() {
            let ask = Head { origin, replay, ..Head::new(Kind::Ask, self.unit, number) };
            for edge in self.outputs.iter_mut().flat_map(|o| &mut o.edges).filter(|e| !e.gone) {
                edge.connection.push(ask.alone());
                open_questions += 1;
            }
        }
        let seen = Seen { origin, ..Seen::default() };
        self.promises.push(Promise { edge, number, origin, made, on_the_way: Vec::new(), open_questions, seen });
    }

    /// Sends on what was made of buffers, unless a dead copy did it before.
    fn fulfil(&mut self) -> Result<(), Stop> {
        while let Some(at) = self.promises.iter().position(|p| p.open_questions == 0 && !p.made.is_empty()) {
            let promise = &mut self.promises[at];
            let (made, seen, origin) = (std::mem::take(&mut promise.made), promise.seen, promise.origin);
            if seen.came > 0 {
                if seen.came != seen.of {
                    return Err(Stop::Partly);
                }
                continue;
            }
            // Nothing ends a promise that has something on the way; 0 is nobody's number.
            promise.on_the_way.push(0);
            let of = made.len().min(usize::from(u16::MAX)) as u16;
            for made in made {
                let number = self.deal(made, origin, of)?;
                self.promises[at].on_the_way.push(number);
            }
            self.promises[at].on_the_way.retain(|n| *n != 0);
        }
        let unit = self.unit;
        let is_done = |p: &Promise| p.open_questions == 0 && p.made.is_empty() && p.on_the_way.is_empty();
        for promise in self.promises.extract_if(.., |p| is_done(p)) {
            self.inputs[promise.edge].answer(Head::new(Kind::Done, unit, promise.number));
        }
        Ok(())
    }

    /// Sends a buffer to the copy whose it is, as soon as it may get one.
    fn deal(&mut self, made: Made, origin: u64, of: u16) -> Result<u64, Stop> {
        self.number += 1;
        let head = Head { tag: made.tag, origin, of, ..Head::new(Kind::Data, self.unit, self.number) };
        self.deal_as(made.stream, head, made.body)?;
        Ok(head.number)
    }

    fn deal_as(&mut self, stream: usize, head: Head, body: Buffer) -> Result<(), Stop> {
        loop {
            self.check()?;
            let seen = self.bell.seen();
            self.pump()?;
            let output = &mut self.outputs[stream];
            if let Some(to) = output.dealer.deal() {
                let edge = &mut output.edges[to];
                if output.keeps {
                    let mut again = self.pool.buffer(body.len());
                    again.extend_from_slice(&body);
                    edge.kept.sent(head.number, (head, again));
                }
                edge.connection.push(head.with(body));
                return self.flush(stream, to);
            }
            self.sleep(seen, false);
        }
    }

    /// Sends what is pushed, before the filter goes on: it may compute for long, and the consumer would wait for the rest.
    fn flush(&mut self, stream: usize, to: usize) -> Result<(), Stop> {
        loop {
            let seen = self.bell.seen();
            let edge = &mut self.outputs[stream].edges[to];
            if edge.gone {
                return Ok(());
            }
            match edge.connection.flush() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return self.lose_output(stream, to, &error),
            }
            self.check()?;
            self.pump()?;
            self.sleep(seen, false);
        }
    }

    /// Takes what the other ends tell, answers their questions, and goes on sending whatever there was no room for.
    fn pump(&mut self) -> Result<(), Stop> {
        for i in 0..self.inputs.len() {
            let input = &mut self.inputs[i];
            // If it is lost, reading will notice.
            let _ = input.connection.flush();
            if input.is_spare && !input.gone {
                if let Err(error) = input.look_ahead() {
                    self.lose_input(i, &error)?;
                }
                self.answer_questions(i)?;
            }
        }
        let (mut told, mut queued) = (Told::default(), 0);
        for stream in 0..self.outputs.len() {
            for to in 0..self.outputs[stream].edges.len() {
                if let Err(error) = self.outputs[stream].pull(to, &mut told) {
                    self.lose_output(stream, to, &error)?;
                }
            }
            queued += u64::from(self.outputs[stream].dealer.unacknowledged());
        }
        self.counters.queued.store(queued, Ordering::Relaxed);
        if !told.started.is_empty() {
            self.promises.iter_mut().for_each(|p| p.on_the_way.retain(|n| !told.started.contains(n)));
        }
        for answer in told.answers {
            let asked = self.promises.iter_mut().find(|p| p.origin == answer.origin && p.open_questions > 0);
            if let Some(promise) = asked {
                promise.open_questions -= 1;
                promise.seen.came += answer.came;
                promise.seen.of = promise.seen.of.max(answer.of);
            }
        }
        Ok(())
    }

    /// Tells a producer's copy what has come of buffers that a dead one had, after which nothing more does.
    fn answer_questions(&mut self, i: usize) -> Result<(), Stop> {
        for (origin, dead) in std::mem::take(&mut self.inputs[i].asked) {
            let stream = self.inputs[i].stream;
            let mut seen = Seen { origin, ..Seen::default() };
            for other in 0..self.inputs.len() {
                let input = &mut self.inputs[other];
                if input.stream != stream {
                    continue;
                }
                let looked = if input.gone { Ok(()) } else { input.look_ahead() };
                if input.peer.copy == usize::from(dead) && !input.gone || looked.is_err() {
                    self.lose_input(other, &looked.err().unwrap_or(Error::Closed))?;
                }
                let here = self.inputs[other].remembered.of(origin);
                seen = Seen { came: seen.came + here.came, of: seen.of.max(here.of), ..seen };
            }
            let (came, of) = (seen.came.min(u16::MAX.into()) as u16, seen.of.min(u16::MAX.into()) as u16);
            let answer = Head { origin, of, replay: Some(came), ..Head::new(Kind::Answer, self.unit, 0) };
            self.inputs[i].answer(answer);
        }
        Ok(())
    }

    /// A producer's copy is dead. What came from it is still worked on.
    fn lose_input(&mut self, i: usize, why: &Error) -> Result<(), Stop> {
        let input = &mut self.inputs[i];
        input.lose();
        if input.is_spare { Ok(()) } else { Err(input.peer.gone(why)) }
    }

    /// A consumer's copy is dead. What it had is given to the others.
    fn lose_output(&mut self, stream: usize, to: usize, why: &Error) -> Result<(), Stop> {
        let output = &mut self.outputs[stream];
        let left = output.lose(to);
        let edge = &output.edges[to];
        // Two deaths at a time, of which the second one's answer is missing.
        let waits = self.promises.iter().any(|p| p.open_questions > 0);
        if !output.keeps || !output.dealer.is_anybody_left() || waits {
            return Err(edge.peer.gone(why));
        }
        tracing::warn!(filter = edge.peer.filter, copy = edge.peer.copy, host = edge.peer.host, %why,
            again = left.len(), "a copy is gone, others get its buffers");
        for (_, (head, body)) in left {
            self.deal_as(stream, Head { replay: Some(to as u16), ..head }, body)?;
        }
        Ok(())
    }

    /// Ends the unit of work on all output streams.
    pub fn end(&mut self) -> Result<(), Stop> {
        self.let_go();
        // Nobody can take a dead copy's buffers once all have been told that there are no more.
        loop {
            self.check()?;
            self.fulfil()?;
            let seen = self.bell.seen();
            self.pump()?;
            let kept = self.outputs.iter().flat_map(|o| &o.edges).any(|e| !e.kept.is_empty());
            if !kept && self.promises.is_empty() {
                break;
            }
            if !self.promises.iter().any(Promise::can_go_on) {
                self.sleep(seen, false);
            }
        }
        for (stream, to) in self.push_ends(0) {
            self.flush(stream, to)?;
        }
        Ok(())
    }

    /// Brings the edges to the end of a unit that failed, so that they are ready for the next one.
    pub fn abandon(&mut self) {
        (self.has, self.turn) = (None, 0);
        self.staged.clear();
        self.promises.clear();
        for output in &mut self.outputs {
            output.forgiven = self.number;
            output.edges.iter_mut().for_each(|e| drop(e.kept.take()));
        }
        let ends = self.push_ends(GIVEN_UP);
        loop {
            let seen = self.bell.seen();
            let mut told = Told::default();
            for input in self.inputs.iter_mut().filter(|i| !i.ended) {
                while !input.ended {
                    match input.next(self.unit) {
                        Ok(Some((head, _))) if head.kind == Kind::Data => {
                            input.answer(Head::new(Kind::Started, self.unit, head.number));
                        }
                        Ok(Some(_)) => input.ended = true,
                        Ok(None) => break,
                        Err(_) => {
                            input.ended = true;
                            input.lose();
                        }
                    }
                }
            }
            let mut waits = self.inputs.iter().any(|i| !i.ended);
            for (stream, to) in &ends {
                let output = &mut self.outputs[*stream];
                let pulled = output.pull(*to, &mut told);
                let edge = &mut output.edges[*to];
                match pulled.and_then(|()| if edge.gone { Ok(true) } else { edge.connection.flush() }) {
                    Ok(flushed) => waits |= !flushed,
                    Err(_) => drop(output.lose(*to)),
                }
            }
            if !waits {
                return;
            }
            self.sleep(seen, true);
        }
    }

    /// Ends the unit of work on all edges, unless that was done before. Returns those that are there, for flushing.
    fn push_ends(&mut self, tag: u64) -> Vec<(usize, usize)> {
        let end = Head { tag, ..Head::new(Kind::End, self.unit, 0) };
        let is_first = !std::mem::replace(&mut self.ends_pushed, true);
        let mut there = Vec::new();
        for (stream, output) in self.outputs.iter_mut().enumerate() {
            for (to, edge) in output.edges.iter_mut().enumerate().filter(|(_, e)| !e.gone) {
                if is_first {
                    edge.connection.push(end.alone());
                }
                there.push((stream, to));
            }
        }
        there
    }

    /// Sleeps until something may have come: buffers, too, where they are `wanted`. A connection that cannot say when is looked at
    /// again, and fails then.
    fn sleep(&mut self, seen: u32, wanted: bool) {
        self.sleep_for(seen, wanted, &[]);
    }

    fn sleep_for(&mut self, seen: u32, wanted: bool, fds: &[(RawFd, bool)]) {
        let inputs = self.inputs.iter_mut().filter(|i| !i.gone && (i.is_spare || wanted && !i.ended));
        let outputs = self.outputs.iter_mut().flat_map(|o| &mut o.edges).filter(|e| !e.gone);
        let connections = inputs.map(|i| &mut i.connection).chain(outputs.map(|e| &mut e.connection));
        let events = |writable| if writable { libc::POLLOUT } else { libc::POLLIN };
        let fds = fds.iter().map(|(fd, writable)| libc::pollfd { fd: *fd, events: events(*writable), revents: 0 });
        if let Err(error) = wait_also(&self.bell, seen, connections, fds.collect(), None) {
            tracing::debug!(%error, "cannot wait for a connection");
        }
    }
}

impl Promise {
    fn can_go_on(&self) -> bool {
        self.open_questions == 0 && (!self.made.is_empty() || self.on_the_way.is_empty())
    }
}
