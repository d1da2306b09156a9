//! The machinery behind [`message`](super): a driver with virtual time.

use super::super::network::{FlowId, LinkId, Network};
use super::super::schedule::{At, Change, Rail, available_bytes_us, ideal_finish_us};
use crate::ledger::Ledger;
use crate::striping::rate::{MEMORY_US, RateEstimator};
use crate::striping::{Channel, ChannelView, Framing, Next, Run, Strategy, Striping};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use super::{Outcome, REPORT_US, Setup, Stalled};

/// What a packet carries; the grain in which the simulation sees bytes arrive, until a message has very many.
const PACKET_BYTES: u64 = 1448;
/// No message is cut into more packets than this.
const MAX_PACKETS: u64 = 2048;
/// A header with offset and length, and the paper's *Start*.
const HEADER_BYTES: u64 = 16;
/// The marker before a fragment that follows in the announced direction.
const CONTINUE_BYTES: u64 = 1;
/// With nothing but reports for so long, nothing will ever happen.
const STALLED_US: f64 = 10e6;
/// What a load flow has to send: more than it ever will.
const ENDLESS_BYTES: u64 = 1 << 50;

pub(super) struct Simulation<'a> {
    setup: &'a Setup,
    network: Network,
    rails: Vec<RailState>,
    channels: Vec<ChannelState>,
    /// What the strategy is shown of `channels`.
    views: Vec<ChannelView>,
    striping: Striping,
    timers: BinaryHeap<Reverse<Timer>>,
    timers_set: u64,
    packet_bytes: u64,
    /// What the receiver has, and what the sender knows it has.
    arrived: Ledger,
    confirmed: Ledger,
    announced: bool,
    outcome: Outcome,
}

struct RailState {
    now: Rail,
    link: LinkId,
    up: bool,
    load: Vec<FlowId>,
}

struct ChannelState {
    rail: usize,
    flow: FlowId,
    estimator: RateEstimator,
    /// Claimed, and not yet on the wire; the packet that is just leaving comes first.
    unsent: VecDeque<Packet>,
    unsent_bytes: u64,
    /// Claimed, and not yet confirmed.
    outstanding: VecDeque<Outstanding>,
    /// For the receiver's next report.
    reported_bytes: u64,
    reported_us: f64,
    busy_since_us: Option<f64>,
    /// Since when something has been outstanding without a break.
    waiting_since_us: f64,
}

/// Message bytes and what is sent with them.
#[derive(Clone)]
struct Packet {
    range: Range<u64>,
    wire_bytes: u64,
}

/// What one run still waits for.
struct Outstanding {
    range: Range<u64>,
    /// Up to here this channel is counted on; what lies behind was claimed a second time by another.
    own_end: u64,
}

enum Event {
    Arrives { channel: Channel, range: Range<u64> },
    Confirmed { channel: Channel, packet: Packet },
    ReportDue,
    Reported { channel: Channel, bytes: u64, busy_us: f64 },
    Changes(usize),
    Detected { rail: usize, down: u64 },
    Reopened { rail: usize },
}

struct Timer {
    at_us: f64,
    number: u64,
    event: Event,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        let mut network = Network::default();
        let mut rails: Vec<RailState> = Vec::new();
        let mut places = Vec::new();
        for (rail, now) in setup.rails.iter().enumerate() {
            let link = network.add_link(now.link);
            rails.push(RailState { now: now.clone(), link, up: true, load: Vec::new() });
            places.extend(std::iter::repeat_n(rail, now.channels));
        }
        let mut this = Self {
            setup,
            network,
            rails,
            channels: Vec::new(),
            views: Vec::new(),
            striping: Striping::new(setup.strategy, 0, 1, &[IDLE]),
            timers: BinaryHeap::new(),
            timers_set: 0,
            packet_bytes: PACKET_BYTES.max(setup.message_bytes.div_ceil(MAX_PACKETS)),
            arrived: Ledger::default(),
            confirmed: Ledger::default(),
            announced: false,
            outcome: Outcome {
                finish_us: 0.0,
                ideal_us: ideal_finish_us(&setup.rails, &setup.schedule, setup.message_bytes),
                channel_bytes: Vec::new(),
                headers: 0,
                starts: 0,
                continues: 0,
                duplicate_bytes: 0,
                rescues: 0,
            },
        };
        for rail in places {
            this.join(rail);
            if setup.known_rates {
                let rail = &setup.rails[rail];
                let each = available_bytes_us(rail) / rail.channels as f64;
                let known = (each * MEMORY_US) as u64;
                let channel = this.channels.len() - 1;
                this.channels[channel].estimator.report(known, MEMORY_US as u64);
            }
        }
        for rail in 0..this.rails.len() {
            this.load(rail, setup.rails[rail].load_flows);
        }
        this.refresh_views();
        this.striping = Striping::new(setup.strategy, setup.message_bytes, setup.fragment_bytes, &this.views);
        for (index, at) in setup.schedule.iter().enumerate() {
            this.set_timer(at.at_us, Event::Changes(index));
        }
        this.set_timer(REPORT_US, Event::ReportDue);
        this
    }

    pub(super) fn run(mut self) -> Result<Outcome, Stalled> {
        let mut last_us = 0.0;
        while !self.complete() {
            self.serve();
            let timer_us = self.timers.peek().map_or(f64::INFINITY, |Reverse(t)| t.at_us);
            if let Some(flow) = self.network.advance(timer_us) {
                last_us = self.network.now_us();
                self.packet_left(flow);
            } else if let Some(Reverse(timer)) = self.timers.pop() {
                if !matches!(timer.event, Event::ReportDue | Event::Reported { .. }) {
                    last_us = timer.at_us;
                } else if timer.at_us > last_us + STALLED_US && self.only_reports() {
                    let (arrived_bytes, unclaimed_bytes) = (self.arrived.bytes(), self.striping.unclaimed_bytes());
                    return Err(Stalled { at_us: timer.at_us, arrived_bytes, unclaimed_bytes });
                }
                self.handle(timer.event);
            }
        }
        self.outcome.finish_us = self.network.now_us();
        Ok(self.outcome)
    }

    fn complete(&self) -> bool {
        self.announced && self.arrived.bytes() == self.setup.message_bytes
    }

    fn only_reports(&self) -> bool {
        self.timers.iter().all(|Reverse(t)| matches!(t.event, Event::ReportDue | Event::Reported { .. }))
    }

    /// Lets every channel that can take bytes ask, in turns, until nobody gets anything.
    fn serve(&mut self) {
        self.refresh_views();
        loop {
            let mut served = false;
            for channel in 0..self.channels.len() {
                if !self.views[channel].up || self.channels[channel].unsent_bytes >= self.room_bytes(channel) {
                    continue;
                }
                let run = match self.striping.next(channel, &self.views) {
                    Next::Run(run) => Some(run),
                    Next::Wait | Next::Done => self.rescue(channel),
                };
                if let Some(run) = run {
                    self.write(channel, run);
                    served = true;
                }
            }
            if !served {
                return;
            }
        }
    }

    /// What a channel has claimed is written when no more than this is unsent: its buffer and its part of the queue.
    fn room_bytes(&self, channel: Channel) -> u64 {
        let rail = &self.rails[self.channels[channel].rail].now;
        self.setup.send_buffer_bytes + rail.link.queue_bytes / rail.channels.max(1) as u64
    }

    fn write(&mut self, channel: Channel, run: Run) {
        let framing_bytes = match run.framing {
            Framing::Header => {
                self.outcome.headers += 1;
                HEADER_BYTES
            }
            Framing::Start(_) => {
                self.outcome.starts += 1;
                HEADER_BYTES
            }
            Framing::Continue => {
                self.outcome.continues += 1;
                CONTINUE_BYTES
            }
        };
        let state = &mut self.channels[channel];
        let idle = state.unsent.is_empty();
        let mut start = run.range.start;
        let mut framing_bytes = Some(framing_bytes);
        while start < run.range.end || framing_bytes.is_some() {
            let end = run.range.end.min(start + self.packet_bytes);
            let wire_bytes = end - start + framing_bytes.take().unwrap_or(0);
            state.unsent.push_back(Packet { range: start..end, wire_bytes });
            state.unsent_bytes += wire_bytes;
            self.views[channel].backlog_bytes += wire_bytes;
            start = end;
        }
        if state.outstanding.is_empty() {
            state.waiting_since_us = self.network.now_us();
        }
        state.outstanding.push_back(Outstanding { own_end: run.range.end, range: run.range });
        if idle {
            state.busy_since_us = Some(self.network.now_us());
            self.network.send(state.flow, state.unsent[0].wire_bytes);
        }
    }

    /// A second copy of what another is stuck with, if that pays and nothing else is left.
    fn rescue(&mut self, idle: Channel) -> Option<Run> {
        if self.striping.strategy() != Strategy::Adaptive || self.striping.unclaimed_bytes() > 0 {
            return None;
        }
        let outstanding: Vec<(Channel, Range<u64>)> = (0..self.channels.len())
            .filter(|&c| self.views[c].up)
            .flat_map(|c| self.channels[c].outstanding.iter().map(move |o| (c, o.range.start..o.own_end)))
            .filter(|(_, range)| !range.is_empty())
            .collect();
        let range = self.striping.rescue(idle, &self.views, &outstanding)?;
        let mut others = (0..self.channels.len()).filter(|&c| c != idle);
        let (stuck, place) = others.find_map(|c| {
            let place = self.channels[c]
                .outstanding
                .iter()
                .position(|o| o.own_end == range.end && o.range.start <= range.start)?;
            Some((c, place))
        })?;
        // The stuck channel is not counted on for it any more, so nobody rescues it a second time from there.
        self.channels[stuck].outstanding[place].own_end = range.start;
        self.views[stuck].backlog_bytes = self.views[stuck].backlog_bytes.saturating_sub(range.end - range.start);
        self.outcome.rescues += 1;
        Some(Run { range, framing: Framing::Header })
    }

    /// The first packet of a channel is on its way; the next one leaves.
    fn packet_left(&mut self, flow: FlowId) {
        let Some(channel) = self.channels.iter().position(|c| c.flow == flow) else { return };
        let now_us = self.network.now_us();
        let delay_us = self.network.delay_us(flow);
        let state = &mut self.channels[channel];
        let Some(packet) = state.unsent.pop_front() else { return };
        state.unsent_bytes -= packet.wire_bytes;
        state.reported_bytes += packet.wire_bytes;
        match state.unsent.front() {
            Some(next) => self.network.send(flow, next.wire_bytes),
            None => state.reported_us += now_us - state.busy_since_us.take().unwrap_or(now_us),
        }
        self.set_timer(now_us + delay_us, Event::Arrives { channel, range: packet.range.clone() });
        self.set_timer(now_us + 2.0 * delay_us, Event::Confirmed { channel, packet });
    }

    fn handle(&mut self, event: Event) {
        let now_us = self.network.now_us();
        match event {
            Event::Arrives { channel, range } => {
                let bytes = range.end - range.start;
                self.outcome.channel_bytes[channel] += bytes;
                self.outcome.duplicate_bytes += bytes - self.arrived.insert(range);
                self.announced = true;
            }
            Event::Confirmed { channel, packet } => {
                self.confirmed.insert(packet.range.clone());
                let queue = &mut self.channels[channel].outstanding;
                if let Some(first) = queue.front_mut() {
                    first.range.start = packet.range.end;
                    if first.range.is_empty() {
                        queue.pop_front();
                    }
                }
            }
            Event::ReportDue => {
                for channel in 0..self.channels.len() {
                    let state = &mut self.channels[channel];
                    if let Some(since_us) = &mut state.busy_since_us {
                        state.reported_us += now_us - *since_us;
                        *since_us = now_us;
                    }
                    let bytes = std::mem::take(&mut state.reported_bytes);
                    let busy_us = std::mem::take(&mut state.reported_us);
                    if busy_us > 0.0 {
                        let at_us = now_us + 2.0 * self.network.delay_us(state.flow);
                        self.set_timer(at_us, Event::Reported { channel, bytes, busy_us });
                    }
                }
                self.set_timer(now_us + REPORT_US, Event::ReportDue);
            }
            Event::Reported { channel, bytes, busy_us } => {
                self.channels[channel].estimator.report(bytes, busy_us as u64);
            }
            Event::Changes(index) => self.change(index),
            Event::Detected { rail, down } => self.lose(rail, down),
            Event::Reopened { rail } => {
                let missing = self.rails[rail].now.channels - self.up_on(rail).count();
                (0..if self.rails[rail].up { missing } else { 0 }).for_each(|_| self.join(rail));
            }
        }
    }

    fn change(&mut self, index: usize) {
        let At { at_us, rail, change } = self.setup.schedule[index];
        match change {
            Change::Rate { mbit_s } => self.rails[rail].now.link.rate_bytes_us = mbit_s / 8.0,
            Change::Load { flows } => self.load(rail, flows),
            Change::Down => {
                self.rails[rail].up = false;
                self.set_timer(at_us + self.setup.detect_us, Event::Detected { rail, down: index as u64 });
            }
            Change::Up => {
                self.rails[rail].up = true;
                self.set_timer(at_us + self.setup.reopen_us, Event::Reopened { rail });
            }
        }
        let RailState { now, link, up, .. } = &self.rails[rail];
        let mut now_link = now.link;
        if !up {
            now_link.rate_bytes_us = 0.0;
        }
        self.network.set_link(*link, now_link);
    }

    /// Has `flows` endless flows of others on a rail.
    fn load(&mut self, rail: usize, flows: usize) {
        let state = &mut self.rails[rail];
        while state.load.len() < flows {
            let flow = self.network.open(&[state.link], f64::INFINITY);
            self.network.send(flow, ENDLESS_BYTES);
            state.load.push(flow);
        }
        for flow in state.load.drain(flows..) {
            self.network.cancel(flow);
        }
    }

    fn up_on(&self, rail: usize) -> impl Iterator<Item = Channel> {
        (0..self.channels.len()).filter(move |&c| self.views[c].up && self.channels[c].rail == rail)
    }

    /// A rail has been down since the change of that number, unless it came back meanwhile: its channels are lost.
    fn lose(&mut self, rail: usize, down: u64) {
        let came_back = |a: &At| a.rail == rail && a.change == Change::Up && a.at_us <= self.network.now_us();
        let since_us = self.setup.schedule[down as usize].at_us;
        if self.setup.schedule.iter().any(|a| came_back(a) && a.at_us >= since_us) {
            return;
        }
        for channel in self.up_on(rail).collect::<Vec<_>>() {
            self.views[channel].up = false;
            self.striping.channel_lost(channel, &self.views);
            let state = &mut self.channels[channel];
            self.network.cancel(state.flow);
            state.unsent.clear();
            state.unsent_bytes = 0;
            state.busy_since_us = None;
            for Outstanding { range, .. } in std::mem::take(&mut state.outstanding) {
                if range.is_empty() && !self.announced {
                    self.striping.give_back(range.clone());
                }
                for gap in self.confirmed.missing(range) {
                    self.striping.give_back(gap);
                }
            }
        }
    }

    /// A new channel on `rail`. What was measured on a lost one is forgotten: it ended with no rate at all, and a rail of no
    /// rate would be left out and never measured again.
    fn join(&mut self, rail: usize) {
        let flow = self.network.open(&[self.rails[rail].link], self.setup.window_bytes);
        self.channels.push(ChannelState {
            rail,
            flow,
            estimator: RateEstimator::default(),
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            outstanding: VecDeque::new(),
            reported_bytes: 0,
            reported_us: 0.0,
            busy_since_us: None,
            waiting_since_us: 0.0,
        });
        self.views.push(IDLE);
        self.outcome.channel_bytes.push(0);
    }

    fn refresh_views(&mut self) {
        let now_us = self.network.now_us();
        for (view, state) in self.views.iter_mut().zip(&self.channels) {
            view.rate_bytes_s = state.estimator.rate_bytes_s();
            view.latency_us = self.rails[state.rail].now.link.delay_us;
            let unacknowledged = state.outstanding.iter().map(|o| o.own_end.saturating_sub(o.range.start)).sum();
            view.set_backlog(unacknowledged, now_us - state.waiting_since_us);
        }
    }

    fn set_timer(&mut self, at_us: f64, event: Event) {
        self.timers_set += 1;
        self.timers.push(Reverse(Timer { at_us, number: self.timers_set, event }));
    }
}

const IDLE: ChannelView =
    ChannelView { up: true, rate_bytes_s: 0.0, latency_us: 0.0, backlog_bytes: 0, max_run_bytes: u64::MAX };

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Timer {}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_us.total_cmp(&other.at_us).then(self.number.cmp(&other.number))
    }
}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
