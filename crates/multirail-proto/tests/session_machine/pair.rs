//! Two machines, joined by connections in memory, with virtual time. An oracle of its own checks
//! every byte that they place.

use multirail_proto::rng::Rng;
use multirail_proto::session::{
    Action, Machine, MachineConfig, PathInfo, Paths, Payload, ReceiveEnd, ReceiveStep, Redial, Role, Time,
};
use multirail_proto::striping::Strategy;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What each direction of a connection holds at most.
const SOCKET_BYTES: usize = 100_000;

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    /// Written and not acknowledged.
    sent: VecDeque<u8>,
    /// Acknowledged and not read.
    arrived: VecDeque<u8>,
}

impl Pipe {
    fn deliver(&mut self, most: usize) {
        let count = most.min(self.sent.len());
        self.arrived.extend(self.sent.drain(..count));
    }
}

/// A channel's connection.
#[derive(Default)]
pub struct Wire {
    /// By the side that writes.
    pipes: [Pipe; 2],
    /// A side has closed it, or it was cut: nothing passes any more.
    closed: bool,
    /// It carries nothing for now.
    pub stalled: bool,
}

/// What one side's kernel knows.
struct Kernel<'a> {
    side: usize,
    table: &'a [Option<usize>],
    wires: &'a [Wire],
}

impl Kernel<'_> {
    fn wire(&self, channel: usize) -> Option<&Wire> {
        self.table[channel].map(|wire| &self.wires[wire])
    }
}

impl Paths for Kernel<'_> {
    fn info(&self, channel: usize) -> PathInfo {
        let alive = self.wire(channel).is_some_and(|w| !w.closed);
        PathInfo { alive, rtt_us: 1000, min_rtt_us: 1000, ..PathInfo::default() }
    }
    fn unacknowledged_bytes(&self, channel: usize) -> u64 {
        self.wire(channel).map_or(0, |w| w.pipes[self.side].sent.len() as u64)
    }
    fn unread_bytes(&self, channel: usize) -> u64 {
        self.wire(channel).map_or(0, |w| w.pipes[1 - self.side].arrived.len() as u64)
    }
    fn send_buffer_bytes(&self, _: usize) -> Option<u64> {
        Some(SOCKET_BYTES as u64)
    }
    fn losses_mean_congestion(&self, _: usize) -> bool {
        false
    }
}

/// One host.
pub struct Side {
    pub machine: Machine,
    /// By the machine's index of the channel.
    table: Vec<Option<usize>>,
    control: bool,
    /// Lengths of the messages that were begun.
    pub sent: Vec<u64>,
    /// Messages that were received.
    pub received: usize,
    /// The message that is being received, and which of its bytes are in place.
    bytes: Vec<u8>,
    placed: Vec<bool>,
    /// Payload that each channel has brought, by its id.
    payload: HashMap<u32, u64>,
}

/// Both hosts and what is between them. Side 0 dials.
pub struct Pair {
    pub now: Time,
    pub sides: [Side; 2],
    pub wires: Vec<Wire>,
    /// The control connection's directions, by the side that writes.
    control: [VecDeque<u8>; 2],
    pub redials: Vec<Redial>,
    pub control_redials: u32,
}

/// The byte at `offset` of a side's message.
fn byte(side: usize, message: usize, offset: usize) -> u8 {
    (offset ^ offset >> 8).wrapping_mul(31).wrapping_add(message * 7 + side * 101) as u8
}

fn message_bytes(side: usize, message: usize, from: u64, count: usize) -> Vec<u8> {
    (from as usize..from as usize + count).map(|offset| byte(side, message, offset)).collect()
}

impl Side {
    fn new(role: Role, strategy: Strategy, fragment_bytes: u32) -> Self {
        let give_up_after = Duration::from_secs(1_000_000);
        let config =
            MachineConfig { role, strategy, fragment_bytes, tune_channels: false, batch_reads: false, give_up_after };
        Self {
            machine: Machine::new(config, Time::ZERO),
            table: Vec::new(),
            control: false,
            sent: Vec::new(),
            received: 0,
            bytes: Vec::new(),
            placed: Vec::new(),
            payload: HashMap::new(),
        }
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.placed[at..at + bytes.len()].fill(true);
    }

    fn begin(&mut self, total_bytes: u64) {
        self.bytes = vec![0; total_bytes as usize];
        self.placed = vec![false; total_bytes as usize];
        self.machine.handle_begun();
    }

    fn note_payload(&mut self) {
        let rows: Vec<_> = self.machine.channels().map(|c| (c.id, c.received_bytes)).collect();
        self.payload.extend(rows);
    }
}

impl Pair {
    pub fn new(strategy: Strategy, fragment_bytes: u32, channels: u32) -> Self {
        let sides = [Role::Dialler, Role::Listener].map(|role| Side::new(role, strategy, fragment_bytes));
        let (control, redials) = (Default::default(), Vec::new());
        let mut pair = Self { now: Time::ZERO, sides, wires: Vec::new(), control, redials, control_redials: 0 };
        pair.connect_control();
        for rail in 0..channels {
            let id = pair.sides[0].machine.new_channel_id();
            pair.connect(id, rail, None);
        }
        pair
    }

    /// Calls a method of a side's machine with what its kernel knows, then does what it asks for.
    pub fn call<T>(&mut self, side: usize, f: impl FnOnce(&mut Machine, Time, &dyn Paths) -> T) -> T {
        let Side { machine, table, .. } = &mut self.sides[side];
        let value = f(machine, self.now, &Kernel { side, table, wires: &self.wires });
        self.act(side);
        value
    }

    fn act(&mut self, side: usize) {
        while let Some(action) = self.sides[side].machine.poll_action() {
            match action {
                Action::Close { channel, .. } => {
                    self.sides[side].note_payload();
                    let wire = self.sides[side].table[channel].take().expect("it was up");
                    self.wires[wire].closed = true;
                }
                Action::ForgetClosed => self.sides[side].table.retain(Option::is_some),
                Action::Redial(redial) => {
                    assert_eq!(side, 0, "only one side dials");
                    self.redials.push(redial);
                }
                Action::RedialControl => self.control_redials += 1,
                Action::End => panic!("{:?}", self.sides[side].machine.failure()),
                Action::OpenChannels { .. } => panic!("the number of channels is fixed"),
                Action::LimitUnsent { .. } | Action::TolerateSilence { .. } | Action::Log(_) => {}
            }
        }
        assert_eq!(self.sides[side].table.len(), self.sides[side].machine.channel_count());
    }

    /// A new channel stands, on both sides.
    pub fn connect(&mut self, id: u32, rail: u32, replaces: Option<u32>) {
        self.wires.push(Wire::default());
        for side in 0..2 {
            if let Some(replaced) = replaces {
                self.call(side, |m, now, paths| m.handle_channel_replaced(now, replaced, paths));
            }
            let info = PathInfo { alive: true, rtt_us: 1000, ..PathInfo::default() };
            let index = self.sides[side].machine.handle_channel_connected(self.now, id, rail, &info);
            assert_eq!(index, self.sides[side].table.len());
            self.sides[side].table.push(Some(self.wires.len() - 1));
            self.act(side);
        }
    }

    pub fn connect_control(&mut self) {
        self.control = Default::default();
        for side in 0..2 {
            self.sides[side].machine.handle_control_connected();
            self.sides[side].control = true;
        }
    }

    /// Cuts the control connection: what is under way is lost.
    pub fn cut_control(&mut self) {
        self.control = Default::default();
        for side in 0..2 {
            self.sides[side].machine.handle_control_lost(self.now);
            self.sides[side].control = false;
        }
    }

    /// Cuts a channel: what is under way is lost.
    pub fn cut(&mut self, wire: usize) {
        self.wires[wire].closed = true;
        self.wires[wire].pipes = Default::default();
    }

    /// Begins a message if the window has room; whether it did.
    pub fn send(&mut self, side: usize, total_bytes: u64, copied: bool, grain_bytes: u64) -> bool {
        if !self.sides[side].machine.can_begin(total_bytes) {
            return false;
        }
        let message = self.sides[side].sent.len();
        let copy = copied.then(|| message_bytes(side, message, 0, total_bytes as usize));
        let serial = self.call(side, |m, now, paths| m.begin_message(now, total_bytes, copy, grain_bytes, paths));
        assert_eq!(serial as usize, message);
        self.sides[side].sent.push(total_bytes);
        true
    }

    /// One round of writing on all channels, each of which takes random parts.
    pub fn transmit(&mut self, side: usize, rng: &mut Rng) {
        self.call(side, |m, now, paths| m.poll_rescue(now, paths));
        self.call(side, |m, now, paths| m.begin_round(now, paths));
        for channel in 0..self.sides[side].table.len() {
            // A channel is asked only now and then, so that claims come in any order.
            for _ in 0..rng.below(4) {
                self.write(side, channel, |bytes| 1 + rng.below(bytes as u64) as usize);
            }
        }
        self.sides[side].machine.end_round();
    }

    /// Writes all that the channels take.
    fn transmit_all(&mut self, side: usize) {
        self.call(side, |m, now, paths| m.poll_rescue(now, paths));
        self.call(side, |m, now, paths| m.begin_round(now, paths));
        while (0..self.sides[side].table.len()).fold(false, |wrote, c| self.write(side, c, |bytes| bytes) | wrote) {}
        self.sides[side].machine.end_round();
    }

    /// Writes a part of what a channel has pending or claims; whether it took anything.
    fn write(&mut self, side: usize, channel: usize, mut part: impl FnMut(usize) -> usize) -> bool {
        let Side { machine, table, sent, .. } = &mut self.sides[side];
        let Some(wire) = table[channel] else { return false };
        let wire = &mut self.wires[wire];
        if wire.closed {
            self.call(side, |m, now, paths| m.handle_channel_lost(now, channel, paths));
            return false;
        }
        let pipe = &mut wire.pipes[side];
        let room = SOCKET_BYTES.saturating_sub(pipe.sent.len() + pipe.arrived.len());
        if room == 0 || (!machine.has_pending(channel) && !machine.claim(self.now, channel)) {
            return false;
        }
        let transmit = machine.transmit(channel).expect("something is pending");
        let payload = match transmit.payload {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Caller { offset, want } => message_bytes(side, sent.len() - 1, offset, want.min(room)),
        };
        let all = [transmit.head, &payload].concat();
        let count = part(all.len()).min(room);
        pipe.sent.extend(&all[..count]);
        machine.handle_written(channel, count);
        true
    }

    /// Moves bytes along all connections that are not stalled.
    pub fn deliver(&mut self, rng: &mut Rng) {
        for wire in self.wires.iter_mut().filter(|w| !w.stalled && !w.closed) {
            wire.pipes.iter_mut().for_each(|pipe| pipe.deliver(rng.below(2 * SOCKET_BYTES as u64) as usize));
        }
    }

    /// Writes and reads a part of the control connection.
    pub fn exchange_control(&mut self, side: usize, most: usize) {
        if !self.sides[side].control {
            return;
        }
        let now = self.now;
        let machine = &mut self.sides[side].machine;
        machine.queue_requested_report(now);
        let output = machine.control_output();
        let count = output.len().min(most);
        self.control[side].extend(&output[..count]);
        machine.handle_control_written(count);
        let count = self.control[1 - side].len().min(most);
        let arrived: Vec<u8> = self.control[1 - side].drain(..count).collect();
        self.call(side, |m, now, paths| m.handle_control_bytes(now, &arrived, paths)).expect("an honest peer");
    }

    /// Receives what has arrived, up to the end of one message.
    pub fn receive(&mut self, side: usize, rng: &mut Rng) {
        if let Some(total_bytes) = self.sides[side].machine.due_to_begin() {
            self.sides[side].begin(total_bytes);
        }
        while let Some((offset, bytes)) = self.sides[side].machine.take_early() {
            self.sides[side].place(offset, &bytes);
        }
        for channel in 0..self.sides[side].table.len() {
            if self.read(side, channel, rng) {
                return self.finish(side);
            }
        }
        if self.sides[side].machine.is_complete() {
            return self.finish(side);
        }
        self.sides[side].machine.report_if_due(self.now);
        self.sides[side].note_payload();
        assert_ne!(self.sides[side].machine.receive_end(), Some(ReceiveEnd::PeerGone));
    }

    fn finish(&mut self, side: usize) {
        let this = &mut self.sides[side];
        let total_bytes = this.machine.finish_message(self.now);
        this.note_payload();
        let message = this.received;
        assert_eq!(total_bytes, self.sides[1 - side].sent[message], "message {message}");
        let this = &mut self.sides[side];
        assert!(this.placed.iter().all(|placed| *placed), "message {message} is complete without all of its bytes");
        assert_eq!(this.bytes, message_bytes(1 - side, message, 0, total_bytes as usize), "message {message}");
        this.received += 1;
    }

    /// Reads one channel; whether the message is complete.
    fn read(&mut self, side: usize, channel: usize, rng: &mut Rng) -> bool {
        loop {
            let this = &mut self.sides[side];
            let (direct, staging) = match this.machine.poll_receive(channel).expect("an honest peer") {
                ReceiveStep::Begin { total_bytes } => {
                    this.begin(total_bytes);
                    continue;
                }
                ReceiveStep::Copy { offset, bytes } => {
                    let count = 1 + rng.below(bytes.len() as u64) as usize;
                    let bytes = bytes[..count].to_vec();
                    this.place(offset, &bytes);
                    this.machine.handle_copied(channel, count);
                    continue;
                }
                ReceiveStep::Complete => return true,
                ReceiveStep::Read { direct, staging } => (direct, staging),
            };
            let Some(wire) = this.table[channel] else { return false };
            let wire = &mut self.wires[wire];
            let pipe = &mut wire.pipes[1 - side];
            if pipe.arrived.is_empty() {
                this.machine.handle_read_blocked(channel, rng.below(2) == 0);
                if wire.closed {
                    self.call(side, |m, now, paths| m.handle_channel_lost(now, channel, paths));
                }
                return false;
            }
            let mut take = |most: usize| -> Vec<u8> {
                let count = if most == 0 { 0 } else { 1 + rng.below(most as u64) as usize };
                pipe.arrived.drain(..count.min(pipe.arrived.len())).collect()
            };
            let (run, behind) = match direct {
                None => (Vec::new(), take(staging.len())),
                Some(run) => {
                    let bytes = take(run.left as usize);
                    let behind = if bytes.len() as u64 == run.left { take(staging.len()) } else { Vec::new() };
                    (bytes, behind)
                }
            };
            staging[..behind.len()].copy_from_slice(&behind);
            this.machine.handle_read(self.now, channel, run.len(), behind.len());
            if let Some(direct) = direct {
                this.place(direct.offset, &run);
            }
        }
    }

    /// Lets time pass, and both machines do what is due.
    pub fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
        for side in 0..2 {
            if self.sides[side].machine.poll_timeout() <= self.now {
                self.call(side, |m, now, paths| m.handle_timeout(now, paths));
            }
        }
    }

    /// Goes on without further trouble until both sides have everything and have closed.
    pub fn drain(&mut self, rng: &mut Rng) {
        self.wires.iter_mut().for_each(|wire| wire.stalled = false);
        for side in 0..2 {
            self.sides[side].machine.close();
        }
        for _ in 0..20_000 {
            self.advance(Duration::from_millis(5));
            self.dial(true);
            for side in 0..2 {
                self.transmit_all(side);
                self.exchange_control(side, usize::MAX);
            }
            self.deliver(rng);
            (0..2).for_each(|side| self.receive(side, rng));
            if self.sides.iter().all(|side| side.machine.is_finished(self.now)) {
                return self.check_counts();
            }
        }
        panic!("both sides wait for ever: {:?} of {:?}", self.sides.each_ref().map(|s| s.received), self.counts());
    }

    /// Answers all requests to dial.
    pub fn dial(&mut self, succeed: bool) {
        for redial in std::mem::take(&mut self.redials) {
            if succeed {
                self.connect(redial.id, redial.rail, Some(redial.replaces));
            } else {
                self.sides[0].machine.handle_redial_failed(self.now, redial.replaces, false);
            }
        }
        if std::mem::take(&mut self.control_redials) > 0 {
            if succeed {
                self.connect_control();
            } else {
                self.sides[0].machine.handle_control_redial_failed(self.now, false);
            }
        }
    }

    fn counts(&self) -> [usize; 2] {
        [self.sides[1].sent.len(), self.sides[0].sent.len()]
    }

    /// Every byte that a channel has brought was either new, once, or a duplicate.
    fn check_counts(&self) {
        assert_eq!(self.sides.each_ref().map(|s| s.received), self.counts());
        for side in 0..2 {
            let brought: u64 = self.sides[side].payload.values().sum();
            let new: u64 = self.sides[1 - side].sent.iter().sum();
            assert_eq!(brought, new + self.sides[side].machine.stats().duplicate_bytes);
        }
    }
}
