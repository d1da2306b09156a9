//! The machinery behind [`message`](super): two machines, simulated connections, and virtual time.

use super::connection::Connection;
use super::host::{Application, Host};
use super::outcome::Outcome;
use super::setup::{Setup, Stalled};
use super::timers::{Event, Timers};
use crate::network::{FlowId, LinkId, Network};
use crate::schedule::{At, Change, Rail, available_bytes_us, ideal_finish_us};
use multirail_proto::session::{Action, COPY_LIMIT_BYTES, Machine, PathInfo, Paths, Redial, Role, Time};
use std::time::Duration;

/// What a packet carries; the grain in which bytes arrive, until a message has very many packets.
const PACKET_BYTES: u64 = 1448;
/// No message is cut into more packets than this.
const MAX_PACKETS: u64 = 2048;
/// If nothing but timers happens for so long, the message will never arrive.
const STALLED_US: f64 = 10e6;
/// What a load flow has to send: more than it ever will.
const ENDLESS_BYTES: u64 = 1 << 50;
/// How long an attempt to connect takes on a rail that is down.
const UNREACHABLE_US: f64 = 1e6;

const SENDER: usize = 0;
const RECEIVER: usize = 1;

pub(super) struct Simulation<'a> {
    setup: &'a Setup,
    network: Network,
    rails: Vec<RailState>,
    connections: Vec<Connection>,
    hosts: [Host; 2],
    application: Application,
    timers: Timers,
    /// When the next rescue is considered.
    rescue_at: Option<Time>,
    /// When the last packet of the control connection reaches each host.
    control_us: [f64; 2],
    /// Attempts to connect on rails that are down.
    dialling: Vec<Redial>,
    packet_bytes: usize,
    /// When the message begins.
    begun_us: f64,
    /// When anything but a timer happened.
    last_us: f64,
    outcome: Outcome,
}

struct RailState {
    now: Rail,
    link: LinkId,
    up: bool,
    load: Vec<FlowId>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        let mut network = Network::default();
        let rail = |rail: &Rail| RailState {
            now: rail.clone(),
            link: network.add_link(rail.link),
            up: true,
            load: Vec::new(),
        };
        let rails = setup.rails.iter().map(rail).collect();
        let host = |role| Host::new(role, setup.strategy, setup.fragment_bytes as u32);
        let mut this = Self {
            setup,
            network,
            rails,
            connections: Vec::new(),
            hosts: [host(Role::Dialler), host(Role::Listener)],
            application: Application::new(setup.message_bytes),
            timers: Timers::default(),
            rescue_at: None,
            control_us: [0.0; 2],
            dialling: Vec::new(),
            packet_bytes: PACKET_BYTES.max(setup.message_bytes.div_ceil(MAX_PACKETS)) as usize,
            begun_us: 0.0,
            last_us: 0.0,
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
        for (rail, of) in setup.rails.iter().enumerate() {
            this.load(rail, of.load_flows);
            for _ in 0..of.channels {
                let id = this.hosts[SENDER].machine.new_channel_id();
                this.connect(id, rail, None);
            }
        }
        this
    }

    pub(super) fn run(mut self) -> Result<Outcome, Stalled> {
        if self.setup.known_rates {
            while !self.is_probed() {
                self.step()?;
            }
        }
        self.begin();
        while !self.application.complete {
            self.step()?;
        }
        let Self { mut outcome, connections, hosts, .. } = self;
        outcome.finish_us = self.network.now_us() - self.begun_us;
        outcome.channel_bytes = connections.iter().map(|c| c.delivered_bytes).collect();
        outcome.duplicate_bytes = hosts[RECEIVER].machine.stats().duplicate_bytes;
        outcome.rescues = hosts[SENDER].machine.stats().rescues;
        Ok(outcome)
    }

    /// Whether the first probes of the session have measured all rates.
    fn is_probed(&self) -> bool {
        let sender = &self.hosts[SENDER].machine;
        self.connections.len() == 1
            || sender.channels().all(|c| c.rate_bytes_s > 0.0)
                && !sender.is_transmit_due()
                && self.connections.iter().all(Connection::is_idle)
    }

    fn begin(&mut self) {
        self.begun_us = self.network.now_us();
        self.last_us = self.begun_us;
        for (index, at) in self.setup.schedule.iter().enumerate() {
            self.timers.set(self.begun_us + at.at_us, Event::Changes(index));
        }
        let (now, total_bytes) = (self.now(), self.setup.message_bytes);
        let copy = (total_bytes <= COPY_LIMIT_BYTES).then(|| self.application.message.clone());
        let grain_bytes = self.setup.fragment_bytes;
        let begin = |m: &mut Machine, paths: &dyn Paths| {
            assert!(m.can_begin(total_bytes));
            m.begin_message(now, total_bytes, copy, grain_bytes, paths)
        };
        self.hosts[SENDER].call(&self.connections, begin);
    }

    fn now(&self) -> Time {
        Time::after(Duration::from_nanos((self.network.now_us() * 1000.0).round() as u64))
    }

    /// Lets the sender send, then lets time pass until something happens.
    fn step(&mut self) -> Result<(), Stalled> {
        self.serve();
        let due = self.hosts.iter().map(|host| host.machine.poll_timeout()).chain(self.rescue_at).min();
        let due_us = due.map_or(f64::INFINITY, |at| at.since_zero().as_nanos() as f64 / 1000.0);
        let until_us = due_us.min(self.timers.next_us()).max(self.network.now_us());
        if let Some(flow) = self.network.advance(until_us) {
            self.last_us = self.network.now_us();
            self.packet_left(flow);
        } else if let Some(event) = self.timers.pop(until_us) {
            if !matches!(event, Event::Control { .. } | Event::Unreachable(_)) {
                self.last_us = self.network.now_us();
            }
            self.handle(event);
        } else {
            if self.network.now_us() > self.last_us + STALLED_US {
                let arrived_bytes = self.application.placed.bytes();
                return Err(Stalled { at_us: self.network.now_us() - self.begun_us, arrived_bytes });
            }
            let now = self.now();
            for host in [SENDER, RECEIVER] {
                if self.hosts[host].machine.poll_timeout() <= now {
                    self.hosts[host].call(&self.connections, |m, paths| m.handle_timeout(now, paths));
                    self.act(host);
                }
            }
        }
        self.exchange_control();
        Ok(())
    }

    /// Lets every channel that can take bytes write, in turns, until none does.
    fn serve(&mut self) {
        let now = self.now();
        let sender = &mut self.hosts[SENDER];
        self.rescue_at = sender.call(&self.connections, |m, paths| m.poll_rescue(now, paths));
        sender.call(&self.connections, |m, paths| m.begin_round(now, paths));
        loop {
            let mut progress = false;
            for channel in 0..self.hosts[SENDER].table.len() {
                progress |= self.write(channel, now);
            }
            if !progress {
                break;
            }
        }
        self.hosts[SENDER].machine.end_round();
        self.act(SENDER);
    }

    fn write(&mut self, channel: usize, now: Time) -> bool {
        let Some(index) = self.hosts[SENDER].table[channel] else { return false };
        let connection = &mut self.connections[index];
        let rail = &self.rails[connection.rail].now;
        let room = connection.room(rail.link.queue_bytes as usize / rail.channels.max(1));
        let message = &self.application.message;
        let Some(bytes) = self.hosts[SENDER].write(channel, room, message, &mut self.outcome, now) else {
            return false;
        };
        connection.write(&bytes);
        if let Some(bytes) = connection.begin_packet(self.packet_bytes) {
            self.network.send(connection.flow, bytes);
        }
        true
    }

    /// The first packet of a connection is on its way; the next one leaves.
    fn packet_left(&mut self, flow: FlowId) {
        let Some(index) = self.connections.iter().position(|c| c.flow == flow) else { return };
        let (now_us, delay_us) = (self.network.now_us(), self.network.delay_us(flow));
        let connection = &mut self.connections[index];
        let bytes = connection.end_packet();
        if let Some(next) = connection.begin_packet(self.packet_bytes) {
            self.network.send(flow, next);
        }
        let acknowledged = Event::Acknowledged { connection: index, bytes: bytes.len() as u64 };
        self.timers.set(now_us + delay_us, Event::Arrives { connection: index, bytes });
        self.timers.set(now_us + 2.0 * delay_us, acknowledged);
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Arrives { connection, bytes } => {
                let receiver = &mut self.hosts[RECEIVER];
                let Some(channel) = receiver.channel(connection) else { return };
                let connection = &mut self.connections[connection];
                self.application.receive(receiver, connection, channel, &bytes, now);
            }
            Event::Acknowledged { connection, bytes } => self.connections[connection].acknowledge(bytes),
            Event::Control { host, bytes } => {
                let take = |m: &mut Machine, paths: &dyn Paths| m.handle_control_bytes(now, &bytes, paths);
                self.hosts[host].call(&self.connections, take).expect("the simulated peer is honest");
                self.act(host);
            }
            Event::Changes(index) => self.change(index),
            Event::Detected { rail, down } => self.lose(rail, down),
            // The rail went down meanwhile.
            Event::Connected(redial) if !self.rails[redial.rail as usize].up => self.dial(redial),
            Event::Connected(redial) => self.connect(redial.id, redial.rail as usize, Some(redial.replaces)),
            Event::Unreachable(redial) => {
                if self.dialling.contains(&redial) {
                    self.dialling.retain(|d| *d != redial);
                    self.hosts[SENDER].machine.handle_redial_failed(now, redial.replaces, false);
                }
            }
        }
    }

    fn change(&mut self, index: usize) {
        let At { rail, change, .. } = self.setup.schedule[index];
        let now_us = self.network.now_us();
        match change {
            Change::Rate { mbit_s } => self.rails[rail].now.link.rate_bytes_us = mbit_s / 8.0,
            Change::Load { flows } => self.load(rail, flows),
            Change::Down => {
                self.rails[rail].up = false;
                self.timers.set(now_us + self.setup.detect_us, Event::Detected { rail, down: index });
            }
            Change::Up => {
                self.rails[rail].up = true;
                let ready = |redial: &mut Redial| redial.rail as usize == rail;
                for redial in self.dialling.extract_if(.., ready) {
                    self.timers.set(now_us + self.setup.reopen_us, Event::Connected(redial));
                }
            }
        }
        let RailState { now, link, up, .. } = &self.rails[rail];
        let mut now_link = now.link;
        if !up {
            now_link.rate_bytes_us = 0.0;
        }
        self.network.set_link(*link, now_link);
    }

    /// Gives a rail this number of endless flows of others.
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

    /// A rail has been down since that change, unless it came back meanwhile: its connections are
    /// lost on both sides.
    fn lose(&mut self, rail: usize, down: usize) {
        let now_us = self.network.now_us() - self.begun_us;
        let since_us = self.setup.schedule[down].at_us;
        let came_back = |a: &At| a.rail == rail && a.change == Change::Up && (since_us..=now_us).contains(&a.at_us);
        if self.setup.schedule.iter().any(came_back) {
            return;
        }
        let now = self.now();
        for connection in (0..self.connections.len()).filter(|c| self.connections[*c].rail == rail).collect::<Vec<_>>()
        {
            for host in [SENDER, RECEIVER] {
                if let Some(channel) = self.hosts[host].channel(connection) {
                    self.hosts[host].call(&self.connections, |m, paths| m.handle_channel_lost(now, channel, paths));
                    self.act(host);
                }
            }
        }
    }

    /// A new connection stands, on both sides.
    fn connect(&mut self, id: u32, rail: usize, replaces: Option<u32>) {
        let now = self.now();
        let RailState { now: path, link, .. } = &self.rails[rail];
        let rtt_us = (2.0 * path.link.delay_us) as u32;
        let delivery_bytes_s = available_bytes_us(path) / path.channels.max(1) as f64 * 1e6;
        let info = PathInfo { alive: true, rtt_us, min_rtt_us: rtt_us, delivery_bytes_s, ..PathInfo::default() };
        let flow = self.network.open(&[*link], self.setup.window_bytes);
        self.connections.push(Connection::new(rail, flow, info));
        for host in [SENDER, RECEIVER] {
            if let Some(replaced) = replaces {
                self.hosts[host].call(&self.connections, |m, paths| m.handle_channel_replaced(now, replaced, paths));
                self.act(host);
            }
            self.hosts[host].machine.handle_channel_connected(now, id, rail as u32, &info);
            self.hosts[host].table.push(Some(self.connections.len() - 1));
            self.act(host);
        }
    }

    /// Carries out a machine's actions.
    fn act(&mut self, host: usize) {
        while let Some(action) = self.hosts[host].machine.poll_action() {
            match action {
                Action::Close { channel, .. } => {
                    if let Some(connection) = self.hosts[host].table[channel].take() {
                        self.network.cancel(self.connections[connection].flow);
                    }
                }
                Action::ForgetClosed => self.hosts[host].table.retain(Option::is_some),
                Action::LimitUnsent { channel, bytes } if host == SENDER => {
                    if let Some(connection) = self.hosts[host].table[channel] {
                        self.connections[connection].unsent_limit = bytes as usize;
                    }
                }
                Action::Redial(redial) => self.dial(redial),
                Action::End => unreachable!("{:?}", self.hosts[host].machine.failure()),
                // The control connection stands, and the number of channels is fixed.
                Action::RedialControl | Action::OpenChannels { .. } => {}
                Action::LimitUnsent { .. } | Action::TolerateSilence { .. } | Action::Log(_) => {}
            }
        }
    }

    fn dial(&mut self, redial: Redial) {
        let now_us = self.network.now_us();
        if self.rails[redial.rail as usize].up {
            self.timers.set(now_us + self.setup.reopen_us, Event::Connected(redial));
        } else {
            self.dialling.push(redial);
            self.timers.set(now_us + UNREACHABLE_US, Event::Unreachable(redial));
        }
    }

    /// Sends the machines' control packets over the nearest rail that is up.
    fn exchange_control(&mut self) {
        let now = self.now();
        for host in [SENDER, RECEIVER] {
            let machine = &mut self.hosts[host].machine;
            if machine.is_report_requested() {
                machine.queue_requested_report(now);
            }
            let bytes = machine.control_output().to_vec();
            if bytes.is_empty() {
                continue;
            }
            machine.handle_control_written(bytes.len());
            let delays = self.rails.iter().filter(|r| r.up).map(|r| r.now.link.delay_us);
            let at_us = self.network.now_us() + delays.fold(f64::INFINITY, f64::min).min(STALLED_US);
            let to = 1 - host;
            self.control_us[to] = self.control_us[to].max(at_us);
            self.timers.set(self.control_us[to], Event::Control { host: to, bytes });
        }
    }
}
