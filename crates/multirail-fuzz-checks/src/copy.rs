//! A copy of a pipeline's filter beside producers and consumers that send anything at any time.

use multirail_proto::pipeline::Schedule;
use multirail_proto::pipeline::copy::{Action, CopyProtocol, EdgeEnd, InputConfig, OutputConfig, Read};
use multirail_proto::pipeline::header::{EdgeMessage, HEADER_BYTES, Header};
use std::collections::BTreeMap;

const WINDOW: u32 = 4;
const INPUTS: usize = 3;
const CONSUMERS: usize = 2;
/// Actions that one operation may cause. A machine that asks for more makes its owner spin.
const MAX_ACTIONS: usize = 10_000;

/// The copy, and what its owner knows.
struct Owner {
    copy: CopyProtocol<u32>,
    keeps: bool,
    closed: Vec<EdgeEnd>,
    /// The next body that the filter writes. Bodies differ.
    next_body: u32,
    /// How often each body was sent, replays apart.
    sent: BTreeMap<u32, u32>,
    unit: u32,
}

/// The first byte selects how buffers are kept and given out. Then come operations: kind, edge, and
/// for a message its header.
///
/// Whatever comes, the copy sends nothing on a closed edge, no buffer twice but as a replay, at most a
/// window to each consumer, and its owner comes to an end.
pub fn copy(bytes: &[u8]) {
    let Some((&kind, mut rest)) = bytes.split_first() else { return };
    let mut owner = Owner::new(kind);
    while let [kind, edge, behind @ ..] = rest {
        rest = owner.step(*kind, *edge, behind);
        owner.carry_out();
    }
}

impl Owner {
    fn new(kind: u8) -> Self {
        let (keeps, kept_by_producer, replaceable) = (kind & 1 == 1, kind & 2 == 2, kind & 4 == 4);
        let input =
            |producer_copy| InputConfig { stream: 0, producer_copy, window: WINDOW, replaceable, kept_by_producer };
        let schedule = if kind & 8 == 8 { Schedule::DemandDriven } else { Schedule::RoundRobin };
        let output = OutputConfig { schedule, window: WINDOW, consumers: CONSUMERS, keep: keeps };
        let inputs: Vec<_> = (0..INPUTS).map(input).collect();
        let mut copy = CopyProtocol::new(1, &inputs, &[output]);
        copy.begin(1).expect("nothing is lost yet");
        Self { copy, keeps, closed: Vec::new(), next_body: 0, sent: BTreeMap::new(), unit: 1 }
    }

    fn step<'a>(&mut self, kind: u8, edge: u8, rest: &'a [u8]) -> &'a [u8] {
        let (input, consumer) = (usize::from(edge) % INPUTS, usize::from(edge) % CONSUMERS);
        match kind % 12 {
            kind @ 0..=5 => {
                let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() else { return &[] };
                if let Ok(header) = Header::decode(header) {
                    self.message(kind, input, consumer, header);
                }
                return behind;
            }
            6 => {
                if self.copy.may_read()
                    && self.copy.is_readable(input)
                    && let Some(Err(_)) = self.copy.read_early(input)
                {
                    self.lose_input(input, true);
                }
            }
            7 => {
                self.copy.write(0, edge.into(), self.next_body);
                self.next_body += 1;
            }
            8 => self.copy.finish_buffer(),
            9 => match edge % 4 {
                0 => self.lose_input(usize::from(edge >> 2) % INPUTS, false),
                1 => self.lose_output(usize::from(edge >> 2) % CONSUMERS),
                2 => self.copy.answer_queries(),
                _ => drop(self.copy.discard_early(input)),
            },
            10 => self.copy.end(),
            _ => {
                self.copy.abandon();
                self.unit += 1;
                let _ = self.copy.begin(self.unit);
            }
        }
        rest
    }

    fn message(&mut self, kind: u8, input: usize, consumer: usize, header: Header) {
        let from_producer = EdgeEnd::Input(input);
        match kind {
            0..=2 if self.closed.contains(&from_producer) => {}
            0 => match self.copy.read(input, header, 0) {
                Ok(Read::Buffer(_)) => assert!(matches!(header.message, EdgeMessage::Data(_))),
                Ok(Read::End | Read::Aborted) => assert!(matches!(header.message, EdgeMessage::End { .. })),
                Ok(Read::Control) => {}
                Err(_) => self.lose_input(input, true),
            },
            1 => {
                if self.copy.look_ahead(input, header, 0).is_err() {
                    self.lose_input(input, true);
                }
            }
            2 => {
                if self.copy.discard(input, header).is_err() {
                    self.lose_input(input, true);
                }
            }
            _ if self.closed.contains(&EdgeEnd::Output { stream: 0, copy: consumer }) => {}
            _ => {
                if self.copy.on_consumer_message(0, consumer, header).is_err() {
                    self.lose_output(consumer);
                }
            }
        }
    }

    fn lose_input(&mut self, input: usize, violation: bool) {
        if self.closed.contains(&EdgeEnd::Input(input)) {
            return;
        }
        let _ = if violation { self.copy.on_input_violation(input) } else { self.copy.on_input_lost(input) };
    }

    fn lose_output(&mut self, consumer: usize) {
        if !self.closed.contains(&EdgeEnd::Output { stream: 0, copy: consumer }) {
            let _ = self.copy.on_output_lost(0, consumer);
        }
    }

    fn carry_out(&mut self) {
        let _ = self.copy.advance(|body| *body);
        for count in 0.. {
            assert!(count < MAX_ACTIONS, "the machine asks for ever more");
            let Some(action) = self.copy.poll_action() else { break };
            match action {
                Action::Close(edge) => self.closed.push(edge),
                Action::Send { edge, header, body } => {
                    if let (EdgeMessage::Data(data), Some(body)) = (header.message, body) {
                        assert!(matches!(edge, EdgeEnd::Output { .. }) && !self.closed.contains(&edge), "{edge:?}");
                        let times = self.sent.entry(body).or_default();
                        *times += u32::from(data.replay_of.is_none());
                        assert!(*times <= 1, "body {body} is sent {times} times");
                        assert!(self.keeps || data.replay_of.is_none(), "a replay of what is not kept");
                    }
                }
            }
        }
        let most = u64::from(WINDOW) * CONSUMERS as u64;
        assert!(self.copy.unacknowledged() <= most, "{} of {most} buffers", self.copy.unacknowledged());
    }
}
