//! A chain of three filters, driven by seed: every buffer must come out exactly once, whichever
//! copy dies when, or the unit of work must fail.

use super::*;
use crate::pipeline::Schedule;
use crate::pipeline::header::{EdgeMessage, Header};
use crate::rng::Rng;
use proptest::prelude::*;
use std::collections::VecDeque;

/// No run takes more steps, unless it is stuck.
const MAX_STEPS: usize = 400_000;
const WINDOW: u32 = 2;
/// Looks at an edge from a dead copy before its next message has arrived, on average.
const DELAY: usize = 40;

/// An index below `end`.
fn below(rng: &mut Rng, end: usize) -> usize {
    rng.below(end as u64) as usize
}

/// An edge: what is on its way, in both directions.
#[derive(Default)]
struct Wire {
    down: VecDeque<(Header, u64)>,
    up: VecDeque<Header>,
    producer_gone: bool,
    consumer_gone: bool,
    /// Buffers that were sent and whose `Started` has not been taken by the producer.
    unacknowledged: u32,
}

/// What a consumer finds on an edge.
enum Arrival {
    Message(Header, u64),
    Lost,
    Nothing,
}

impl Wire {
    /// What a dead producer has sent arrives late, so that queries overtake it.
    fn arrive(&mut self, rng: &mut Rng) -> Arrival {
        if self.producer_gone && below(rng, DELAY) > 0 {
            return Arrival::Nothing;
        }
        match self.down.pop_front() {
            Some((header, body)) => Arrival::Message(header, body),
            None if self.producer_gone => Arrival::Lost,
            None => Arrival::Nothing,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    Ending,
    Abandoning,
    Ended(bool),
}

/// A copy of filter 0 (source), 1 (work) or 2 (sink).
struct Node {
    filter: usize,
    copy: usize,
    protocol: CopyProtocol<u64>,
    is_alive: bool,
    phase: Phase,
    /// What the filter has still to write.
    to_write: VecDeque<u64>,
    lost: Vec<EdgeEnd>,
    error: Option<CopyError>,
    received: Vec<u64>,
}

struct Group {
    copies: [usize; 3],
    /// By stream, producer's copy and consumer's copy.
    wires: [Vec<Vec<Wire>>; 2],
    nodes: Vec<Node>,
    rng: Rng,
    fanout: usize,
    unit: u32,
}

impl Group {
    fn new(seed: u64, copies: [usize; 3], fanout: usize, schedule: Schedule) -> Self {
        let wires = [0, 1].map(|stream| {
            let row = |_| (0..copies[stream + 1]).map(|_| Wire::default()).collect();
            (0..copies[stream]).map(row).collect()
        });
        let mut nodes = Vec::new();
        for filter in 0..3 {
            for copy in 0..copies[filter] {
                let producers = if filter == 0 { 0 } else { copies[filter - 1] };
                let input = |producer_copy| InputConfig {
                    stream: 0,
                    producer_copy,
                    window: WINDOW,
                    replaceable: filter == 2 && copies[1] > 1,
                    kept_by_producer: filter == 1,
                };
                let inputs: Vec<_> = (0..producers).map(input).collect();
                let output = |consumers| OutputConfig { schedule, window: WINDOW, consumers, keep: filter == 0 };
                let outputs: Vec<_> = copies.get(filter + 1).map(|c| output(*c)).into_iter().collect();
                nodes.push(Node {
                    filter,
                    copy,
                    protocol: CopyProtocol::new(copy, &inputs, &outputs),
                    is_alive: true,
                    phase: Phase::Ended(true),
                    to_write: VecDeque::new(),
                    lost: Vec::new(),
                    error: None,
                    received: Vec::new(),
                });
            }
        }
        Self { copies, wires, nodes, rng: Rng::new(seed), fanout, unit: 0 }
    }

    /// The outputs of the work filter for one buffer: none up to `fanout` of them.
    fn outputs(&self, body: u64) -> impl Iterator<Item = u64> + use<> {
        let count = if self.fanout <= 1 { self.fanout } else { body as usize % (self.fanout + 1) };
        (0..count as u64).map(move |k| body * 10 + k)
    }

    fn begin(&mut self, buffers: u64) {
        self.unit += 1;
        let sources = self.copies[0] as u64;
        for node in self.nodes.iter_mut().filter(|n| n.is_alive) {
            node.error = node.protocol.begin(self.unit).err();
            node.phase = Phase::Working;
            node.received.clear();
            let is_mine = |b: &u64| node.filter == 0 && b % sources == node.copy as u64;
            node.to_write = (0..buffers).filter(is_mine).collect();
        }
    }

    /// Does one thing somewhere.
    fn step(&mut self) {
        let at = below(&mut self.rng, self.nodes.len());
        if !self.nodes[at].is_alive {
            return;
        }
        let outcome = match below(&mut self.rng, 3) {
            0 => self.take_from_consumer(at),
            1 => self.take_ahead(at),
            _ => self.work(at),
        };
        let outcome = outcome.and_then(|()| self.nodes[at].protocol.advance(|b| *b));
        if let Err(error) = outcome {
            self.nodes[at].error.get_or_insert(error);
        }
        self.perform(at);
        let node = &mut self.nodes[at];
        if node.error.is_some() && node.phase != Phase::Abandoning && !matches!(node.phase, Phase::Ended(_)) {
            node.to_write.clear();
            node.phase = Phase::Abandoning;
            node.protocol.abandon();
            self.perform(at);
        }
    }

    /// One message from a random consumer, or the loss of the consumer.
    fn take_from_consumer(&mut self, at: usize) -> Result<(), CopyError> {
        let node = &mut self.nodes[at];
        let Some(wires) = self.wires.get_mut(node.filter).map(|w| &mut w[node.copy]) else { return Ok(()) };
        let copy = below(&mut self.rng, wires.len());
        let (wire, edge) = (&mut wires[copy], EdgeEnd::Output { stream: 0, copy });
        if node.lost.contains(&edge) {
            return Ok(());
        }
        match wire.up.pop_front() {
            Some(header) => {
                if matches!(header.message, EdgeMessage::Started(_)) {
                    wire.unacknowledged -= 1;
                }
                node.protocol.on_consumer_message(0, copy, header).expect("consumers keep to the rules");
                Ok(())
            }
            None if wire.consumer_gone => node.protocol.on_output_lost(0, copy).map(drop),
            None => Ok(()),
        }
    }

    /// Reads ahead where queries may come, and answers them.
    fn take_ahead(&mut self, at: usize) -> Result<(), CopyError> {
        let node = &mut self.nodes[at];
        if node.filter == 0 {
            return Ok(());
        }
        for edge in 0..self.copies[node.filter - 1] {
            let wire = &mut self.wires[node.filter - 1][edge][node.copy];
            while node.protocol.looks_ahead(edge) {
                match wire.arrive(&mut self.rng) {
                    Arrival::Message(header, body) => {
                        node.protocol.look_ahead(edge, header, body).expect("within the window");
                    }
                    Arrival::Lost => node.protocol.on_input_lost(edge)?,
                    Arrival::Nothing => break,
                }
            }
        }
        node.protocol.answer_queries();
        Ok(())
    }

    fn work(&mut self, at: usize) -> Result<(), CopyError> {
        match self.nodes[at].phase {
            Phase::Working if self.nodes[at].protocol.has_outbox() => Ok(()),
            Phase::Working => match self.nodes[at].to_write.pop_front() {
                Some(body) => {
                    self.nodes[at].protocol.write(0, body, body);
                    Ok(())
                }
                None => self.read(at),
            },
            Phase::Ending => {
                if self.nodes[at].protocol.is_settled() {
                    self.nodes[at].protocol.end();
                    self.nodes[at].phase = Phase::Ended(true);
                }
                Ok(())
            }
            Phase::Abandoning => {
                self.discard(at);
                Ok(())
            }
            Phase::Ended(_) => Ok(()),
        }
    }

    fn read(&mut self, at: usize) -> Result<(), CopyError> {
        let outputs = |group: &Self, body| group.outputs(body).collect::<VecDeque<_>>();
        self.nodes[at].protocol.finish_buffer();
        if !self.nodes[at].protocol.may_read() {
            return Ok(());
        }
        let order: Vec<_> = self.nodes[at].protocol.read_order().collect();
        for edge in order {
            let node = &mut self.nodes[at];
            if !node.protocol.is_readable(edge) {
                continue;
            }
            let wire = &mut self.wires[node.filter - 1][edge][node.copy];
            let read = match node.protocol.read_early(edge) {
                Some(read) => read,
                None => match wire.arrive(&mut self.rng) {
                    Arrival::Message(header, body) => node.protocol.read(edge, header, body),
                    Arrival::Lost => {
                        node.protocol.on_input_lost(edge)?;
                        continue;
                    }
                    Arrival::Nothing => continue,
                },
            };
            match read.expect("producers keep to the rules") {
                Read::Buffer(Delivery { tag, body, .. }) => {
                    node.received.push(body);
                    if node.filter == 1 {
                        assert_eq!(tag, body);
                        self.nodes[at].to_write = outputs(self, body);
                    }
                    return Ok(());
                }
                Read::Aborted => {
                    node.to_write.clear();
                    node.phase = Phase::Abandoning;
                    node.protocol.abandon();
                    return Ok(());
                }
                Read::End | Read::Control => {}
            }
        }
        if self.nodes[at].protocol.has_input_ended() {
            self.nodes[at].phase = Phase::Ending;
        }
        Ok(())
    }

    fn discard(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let inputs = if node.filter == 0 { 0 } else { self.copies[node.filter - 1] };
        for edge in 0..inputs {
            node.protocol.discard_early(edge).expect("producers keep to the rules");
            let wire = &mut self.wires[node.filter - 1][edge][node.copy];
            while node.protocol.is_readable(edge) {
                match wire.arrive(&mut self.rng) {
                    Arrival::Message(header, _) => {
                        node.protocol.discard(edge, header).expect("producers keep to the rules");
                    }
                    Arrival::Lost => drop(node.protocol.on_input_lost(edge)),
                    Arrival::Nothing => break,
                }
            }
        }
        if node.protocol.has_input_ended() {
            node.phase = Phase::Ended(false);
        }
    }

    fn perform(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        while let Some(action) = node.protocol.poll_action() {
            match action {
                Action::Send { edge: EdgeEnd::Input(edge), header, .. } => {
                    let wire = &mut self.wires[node.filter - 1][edge][node.copy];
                    if !wire.producer_gone && !wire.consumer_gone {
                        wire.up.push_back(header);
                    }
                }
                Action::Send { edge: EdgeEnd::Output { copy, .. }, header, body } => {
                    let wire = &mut self.wires[node.filter][node.copy][copy];
                    if matches!(header.message, EdgeMessage::Data(_)) {
                        wire.unacknowledged += 1;
                        assert!(wire.unacknowledged <= WINDOW, "more than the window");
                    }
                    if !wire.consumer_gone && !wire.producer_gone {
                        wire.down.push_back((header, body.unwrap_or_default()));
                    }
                }
                Action::Close(EdgeEnd::Input(edge)) => {
                    let wire = &mut self.wires[node.filter - 1][edge][node.copy];
                    wire.down.clear();
                    wire.consumer_gone = true;
                }
                Action::Close(edge @ EdgeEnd::Output { copy, .. }) => {
                    self.wires[node.filter][node.copy][copy].producer_gone = true;
                    node.lost.push(edge);
                }
            }
        }
    }

    /// A copy dies. A random part of its sent data still arrives.
    fn kill(&mut self, filter: usize, copy: usize) {
        let node = self.nodes.iter_mut().find(|n| (n.filter, n.copy) == (filter, copy)).expect("it is there");
        node.is_alive = false;
        for wire in &mut self.wires[filter][copy] {
            wire.producer_gone = true;
            let arriving = below(&mut self.rng, wire.down.len() + 1);
            wire.down.truncate(arriving);
        }
        for producer in &mut self.wires[filter - 1] {
            let wire = &mut producer[copy];
            wire.consumer_gone = true;
            let arriving = below(&mut self.rng, wire.up.len() + 1);
            wire.up.truncate(arriving);
        }
    }

    /// Runs until all living copies have ended the unit. A failure is spread as the coordinator
    /// does it. Returns the first error.
    fn run(&mut self, mut kill_at: Option<(usize, usize)>) -> Option<CopyError> {
        for step in 0..MAX_STEPS {
            if let Some((_, copy)) = kill_at.take_if(|(at, _)| *at == step) {
                self.kill(1, copy);
            }
            self.step();
            let error = self.nodes.iter().filter(|n| n.is_alive).find_map(|n| n.error);
            if let Some(error) = error {
                self.nodes.iter_mut().for_each(|n| n.error = n.error.or(Some(error)));
            }
            if self.nodes.iter().all(|n| !n.is_alive || matches!(n.phase, Phase::Ended(_))) {
                return error;
            }
        }
        panic!("no progress");
    }

    fn collected(&self) -> Vec<u64> {
        let mut all: Vec<_> = self.nodes.iter().filter(|n| n.filter == 2).flat_map(|n| n.received.clone()).collect();
        all.sort_unstable();
        all
    }

    fn expected(&self, buffers: u64) -> Vec<u64> {
        (0..buffers).flat_map(|b| self.outputs(b)).collect()
    }
}

fn schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![Just(Schedule::RoundRobin), Just(Schedule::DemandDriven)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn without_a_death_every_buffer_arrives_once(
        seed: u64, copies in [1usize..3, 1usize..4, 1usize..3], fanout in 0usize..4, buffers in 0u64..40, schedule in schedule(),
    ) {
        let mut group = Group::new(seed, copies, fanout, schedule);
        for _ in 0..3 {
            group.begin(buffers);
            prop_assert_eq!(group.run(None), None);
            prop_assert_eq!(group.collected(), group.expected(buffers));
        }
    }

    #[test]
    fn a_dead_copys_buffers_are_replayed_without_loss_or_duplicates(
        seed: u64, sources in 1usize..3, workers in 2usize..4, sinks in 1usize..3, fanout in 0usize..4, buffers in 1u64..40,
        schedule in schedule(), kill_at in 0usize..1500,
    ) {
        let mut group = Group::new(seed, [sources, workers, sinks], fanout, schedule);
        group.begin(buffers);
        match group.run(Some((kill_at, workers - 1))) {
            None => prop_assert_eq!(group.collected(), group.expected(buffers)),
            // Only several outputs of one buffer can arrive in part.
            Some(error) => prop_assert!(fanout > 1 && error == CopyError::PartialReplay, "{:?}", error),
        }
        // The remaining copies do the next units.
        for _ in 0..2 {
            group.begin(buffers);
            if group.nodes.iter().any(|n| n.is_alive && n.error.is_some()) {
                return Ok(());
            }
            prop_assert_eq!(group.run(None), None);
            prop_assert_eq!(group.collected(), group.expected(buffers));
        }
    }

    #[test]
    fn the_last_copys_death_fails_the_unit_of_work(seed: u64, buffers in 30u64..60, kill_at in 0usize..60) {
        let mut group = Group::new(seed, [1, 1, 1], 1, Schedule::DemandDriven);
        group.begin(buffers);
        let error = group.run(Some((kill_at, 0)));
        prop_assert!(matches!(error, Some(CopyError::PeerLost(_))), "{:?}", error);
    }

    #[test]
    fn a_unit_after_a_failed_one_is_complete(
        seed: u64, copies in [1usize..3, 1usize..4, 1usize..3], failing in 0usize..3, steps in 0usize..600, buffers in 1u64..40,
    ) {
        let mut group = Group::new(seed, copies, 2, Schedule::DemandDriven);
        group.begin(buffers);
        (0..steps).for_each(|_| group.step());
        let failing = group.nodes.iter().position(|n| n.filter == failing).unwrap();
        // As if the filter itself had failed.
        group.nodes[failing].error = Some(CopyError::PartialReplay);
        group.run(None);
        for _ in 0..2 {
            group.begin(buffers);
            prop_assert_eq!(group.run(None), None);
            prop_assert_eq!(group.collected(), group.expected(buffers));
        }
    }
}
