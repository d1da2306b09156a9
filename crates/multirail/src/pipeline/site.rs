//! A copy's edges together: where buffers, acknowledgements and end-of-work markers come and go, and where a copy waits.

use super::counters::Counters;
use super::edges::{Input, Output};
use super::filter::Stop;
use super::io::Received;
use super::wire::{Head, Kind};
use crate::error::Error;
use crate::transport::{Bell, Buffer, Pool, wait};
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
    /// The buffer that the filter has: by which edge, and its number there.
    has: Option<(usize, u64)>,
    /// What it made of it, where the producer keeps it.
    staged: Vec<Made>,
    promises: Vec<Promise>,
    unit: u32,
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

/// A buffer that is worked on and not done: see [`multirail_proto::pipeline::keep`].
#[derive(Debug)]
struct Promise {
    edge: usize,
    number: u64,
    made: Vec<Made>,
    /// The producer said `Go`, or is dead: then it had let the buffer go long ago, or the unit of work fails there.
    released: bool,
    /// What was made of it, is sent on, and nobody has started on.
    on_the_way: Vec<u64>,
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
            turn: 0,
            number: 0,
        }
    }

    /// Begins a unit of work.
    pub fn begin(&mut self, unit: u32) -> Result<(), Stop> {
        self.unit = unit;
        for input in &mut self.inputs {
            input.ended = input.gone && input.early.is_empty();
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
            if let Some(received) = self.look()? {
                return Ok(Some(received));
            }
            if self.inputs.iter().all(|i| i.ended) {
                return Ok(None);
            }
            self.pump()?;
            self.sleep(seen, true);
        }
    }

    /// Looks at every input once.
    fn look(&mut self) -> Result<Option<Received>, Stop> {
        let (count, first) = (self.inputs.len(), self.turn);
        let mut going = Vec::new();
        for i in (0..count).map(|i| (first + i) % count) {
            let input = &mut self.inputs[i];
            if input.ended {
                continue;
            }
            let next = input.next(self.unit, &mut going);
            release(&mut self.promises, i, &mut going);
            match next {
                Ok(None) => {}
                Ok(Some((head, body))) if head.kind == Kind::Data => {
                    let input = &mut self.inputs[i];
                    input.answer(Kind::Started, self.unit, head.number);
                    self.turn = (i + 1) % count;
                    self.has = Some((i, head.number));
                    return Ok(Some(Received { stream: self.inputs[i].stream, tag: head.tag, body }));
                }
                Ok(Some(_)) => self.inputs[i].ended = true,
                Err(error) => {
                    self.inputs[i].ended = true;
                    self.lose_input(i, &error)?;
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
            Some((edge, _)) if self.inputs[edge].keeps => {
                self.staged.push(Made { stream, tag, body });
                self.check()
            }
            _ => self.deal(stream, tag, body).map(|_| ()),
        }
    }

    /// The filter is done with the buffer that it has.
    fn let_go(&mut self) {
        let Some((edge, number)) = self.has.take() else { return };
        let input = &mut self.inputs[edge];
        if input.keeps {
            let made = std::mem::take(&mut self.staged);
            input.answer(Kind::Ready, self.unit, number);
            self.promises.push(Promise { edge, number, made, released: input.gone, on_the_way: Vec::new() });
        }
    }

    /// Sends on what was made of buffers whose producers have said `Go`.
    fn fulfil(&mut self) -> Result<(), Stop> {
        while let Some(at) = self.promises.iter().position(|p| p.released && !p.made.is_empty()) {
            let made = std::mem::take(&mut self.promises[at].made);
            // Nothing ends a promise that has something on the way; 0 is nobody's number.
            self.promises[at].on_the_way.push(0);
            for Made { stream, tag, body } in made {
                let number = self.deal(stream, tag, body)?;
                self.promises[at].on_the_way.push(number);
            }
            self.promises[at].on_the_way.retain(|n| *n != 0);
            // Some may have been started on before all were sent.
            self.pump()?;
        }
        let unit = self.unit;
        let (done, open) = std::mem::take(&mut self.promises)
            .into_iter()
            .partition(|p| p.released && p.made.is_empty() && p.on_the_way.is_empty());
        self.promises = open;
        for Promise { edge, number, .. } in done {
            self.inputs[edge].answer(Kind::Done, unit, number);
        }
        Ok(())
    }

    /// Sends a buffer to the copy whose it is, as soon as it may get one.
    fn deal(&mut self, stream: usize, tag: u64, body: Buffer) -> Result<u64, Stop> {
        self.number += 1;
        let head = Head { kind: Kind::Data, unit: self.unit, number: self.number, tag };
        self.deal_as(stream, head, body)?;
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

    /// Takes what the other ends tell, and goes on sending whatever there was no room for.
    fn pump(&mut self) -> Result<(), Stop> {
        let mut numbers = Vec::new();
        for i in 0..self.inputs.len() {
            let input = &mut self.inputs[i];
            if input.gone {
                continue;
            }
            // If it is lost, reading will notice.
            let _ = input.connection.flush();
            if !input.keeps {
                continue;
            }
            let looked = input.look_ahead(&mut numbers);
            release(&mut self.promises, i, &mut numbers);
            if let Err(error) = looked {
                self.lose_input(i, &error)?;
            }
        }
        let mut queued = 0;
        for stream in 0..self.outputs.len() {
            for to in 0..self.outputs[stream].edges.len() {
                if let Err(error) = self.outputs[stream].pull(to, &mut numbers) {
                    self.lose_output(stream, to, &error)?;
                }
            }
            queued += u64::from(self.outputs[stream].dealer.unacknowledged());
        }
        for promise in &mut self.promises {
            promise.on_the_way.retain(|n| !numbers.contains(n));
        }
        self.counters.queued.store(queued, Ordering::Relaxed);
        Ok(())
    }

    /// A producer's copy is dead. What came from it is still worked on.
    fn lose_input(&mut self, i: usize, why: &Error) -> Result<(), Stop> {
        let input = &mut self.inputs[i];
        input.gone = true;
        for promise in self.promises.iter_mut().filter(|p| p.edge == i) {
            promise.released = true;
        }
        if input.is_spare { Ok(()) } else { Err(input.peer.gone(why)) }
    }

    /// A consumer's copy is dead. What it had is given to the others.
    fn lose_output(&mut self, stream: usize, to: usize, why: &Error) -> Result<(), Stop> {
        let output = &mut self.outputs[stream];
        let edge = &mut output.edges[to];
        edge.gone = true;
        output.dealer.gone(to);
        let left = edge.kept.take();
        if !output.keeps || !output.dealer.is_anybody_left() || left.unknown > 0 {
            return Err(edge.peer.gone(why));
        }
        tracing::warn!(filter = edge.peer.filter, copy = edge.peer.copy, host = edge.peer.host, %why,
            again = left.again.len(), "a copy is gone, others get its buffers");
        for (_, (head, body)) in left.again {
            self.deal_as(stream, head, body)?;
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
            if !self.promises.iter().any(|p| p.released && (!p.made.is_empty() || p.on_the_way.is_empty())) {
                self.sleep(seen, false);
            }
        }
        for (stream, to) in self.push_ends() {
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
        let ends = self.push_ends();
        loop {
            let seen = self.bell.seen();
            let mut numbers = Vec::new();
            for input in self.inputs.iter_mut().filter(|i| !i.ended) {
                while !input.ended {
                    match input.next(self.unit, &mut numbers) {
                        Ok(Some((head, _))) if head.kind == Kind::Data => {
                            input.answer(Kind::Started, self.unit, head.number);
                        }
                        Ok(Some(_)) => input.ended = true,
                        Ok(None) => break,
                        Err(_) => (input.ended, input.gone) = (true, true),
                    }
                }
            }
            let mut waits = self.inputs.iter().any(|i| !i.ended);
            for (stream, to) in &ends {
                let output = &mut self.outputs[*stream];
                let pulled = output.pull(*to, &mut numbers);
                let edge = &mut output.edges[*to];
                match pulled.and_then(|()| if edge.gone { Ok(true) } else { edge.connection.flush() }) {
                    Ok(flushed) => waits |= !flushed,
                    Err(_) => {
                        edge.gone = true;
                        output.dealer.gone(*to);
                    }
                }
            }
            if !waits {
                return;
            }
            self.sleep(seen, true);
        }
    }

    fn push_ends(&mut self) -> Vec<(usize, usize)> {
        let end = Head { kind: Kind::End, unit: self.unit, number: 0, tag: 0 };
        let mut pushed = Vec::new();
        for (stream, output) in self.outputs.iter_mut().enumerate() {
            for (to, edge) in output.edges.iter_mut().enumerate().filter(|(_, e)| !e.gone) {
                edge.connection.push(end.alone());
                pushed.push((stream, to));
            }
        }
        pushed
    }

    /// Sleeps until something may have come: buffers, too, where they are `wanted`. A connection that cannot say when is looked at
    /// again, and fails then.
    fn sleep(&mut self, seen: u32, wanted: bool) {
        let inputs = self.inputs.iter_mut().filter(|i| !i.gone && (i.keeps || wanted && !i.ended));
        let outputs = self.outputs.iter_mut().flat_map(|o| &mut o.edges).filter(|e| !e.gone);
        let connections = inputs.map(|i| &mut i.connection).chain(outputs.map(|e| &mut e.connection));
        if let Err(error) = wait(&self.bell, seen, connections, None) {
            tracing::debug!(%error, "cannot wait for a connection");
        }
    }
}

fn release(promises: &mut [Promise], edge: usize, going: &mut Vec<u64>) {
    for promise in promises.iter_mut().filter(|p| p.edge == edge && going.contains(&p.number)) {
        promise.released = true;
    }
    going.clear();
}
