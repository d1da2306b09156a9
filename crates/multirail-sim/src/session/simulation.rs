//! The machinery: two machines, simulated connections, and virtual time.

use super::connection::Connection;
use super::host::Host;
use super::timers::{Event, Timers};
use crate::network::{FlowId, LinkId, Network};
use crate::schedule::{At, Change, Rail, available_bytes_us};
use multirail_proto::rng::Rng;
use multirail_proto::session::{Action, Machine, PathInfo, Paths, Payload, Redial, Role, Time};
use multirail_proto::striping::{Channel, Strategy};
use std::time::Duration;

/// What a load flow has to send: more than it ever will.
const ENDLESS_BYTES: u64 = 1 << 50;
/// How long an attempt to connect takes on a rail that is down.
const UNREACHABLE_US: f64 = 1e6;

/// The host that opens the session's connections.
pub(crate) const DIALLER: usize = 0;
/// The other host.
pub(crate) const LISTENER: usize = 1;

/// What connections are like, and how long it takes to replace one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The most that a packet carries; the grain in which bytes arrive.
    pub(crate) packet_bytes: usize,
    /// The most that a connection has under way; `f64::INFINITY` for no limit.
    pub(crate) window_bytes: f64,
    /// How long a rail is down before its connections count as lost.
    pub(crate) detect_us: f64,
    /// From dialling on a rail that is up, or its return, to a new connection on it.
    pub(crate) reopen_us: f64,
}

pub(crate) struct Session {
    timing: Timing,
    network: Network,
    rails: Vec<RailState>,
    hosts: [Host; 2],
    timers: Timers,
    /// What happens to the rails, and since when that counts.
    schedule: Vec<At>,
    schedule_us: f64,
    /// When the last packet of the control connection reaches each host.
    control_us: [f64; 2],
    /// Attempts to connect on rails that are down.
    dialling: Vec<Redial>,
    progress_us: f64,
}

struct RailState {
    now: Rail,
    /// By the host that sends.
    links: [LinkId; 2],
    up: bool,
    load: [Vec<FlowId>; 2],
    /// For the delays of packets.
    jitter: Rng,
}

/// A packet that has reached a host.
pub(crate) struct Arrival {
    pub(crate) host: usize,
    pub(crate) connection: usize,
    pub(crate) channel: Channel,
    pub(crate) bytes: Vec<u8>,
}

impl Session {
    /// Connects two hosts over `rails`.
    pub(crate) fn new(rails: &[Rail], timing: Timing, strategy: Strategy, fragment_bytes: u32) -> Self {
        let mut network = Network::default();
        let state = |(index, rail): (usize, &Rail)| RailState {
            now: rail.clone(),
            links: [network.add_link(rail.link), network.add_link(rail.link)],
            up: true,
            load: Default::default(),
            jitter: Rng::new(index as u64),
        };
        let states = rails.iter().enumerate().map(state).collect();
        let mut this = Self {
            timing,
            network,
            rails: states,
            hosts: [Role::Dialler, Role::Listener].map(|role| Host::new(role, strategy, fragment_bytes)),
            timers: Timers::default(),
            schedule: Vec::new(),
            schedule_us: 0.0,
            control_us: [0.0; 2],
            dialling: Vec::new(),
            progress_us: 0.0,
        };
        for (index, rail) in rails.iter().enumerate() {
            this.load(index, rail.load_flows);
            for _ in 0..rail.channels {
                let id = this.hosts[DIALLER].machine.new_channel_id();
                this.connect(id, index, None);
            }
        }
        this
    }

    /// Lets these changes of the rails happen, counted from now.
    pub(crate) fn begin_schedule(&mut self, schedule: &[At]) {
        (self.schedule, self.schedule_us) = (schedule.to_vec(), self.now_us());
        for (index, at) in schedule.iter().enumerate() {
            self.timers.set(self.schedule_us + at.at_us, Event::Changes(index));
        }
    }

    pub(crate) fn now_us(&self) -> f64 {
        self.network.now_us()
    }

    /// When anything but a timer, or a packet of the control connection, happened last.
    pub(crate) fn progress_us(&self) -> f64 {
        self.progress_us
    }

    /// The time of the machines.
    pub(crate) fn now(&self) -> Time {
        Time::after(Duration::from_nanos((self.now_us() * 1000.0).round() as u64))
    }

    pub(crate) fn host(&mut self, host: usize) -> &mut Host {
        &mut self.hosts[host]
    }

    /// The number of connections that there have been.
    pub(crate) fn connection_count(&self) -> usize {
        self.hosts[DIALLER].connections.len()
    }

    /// Whether everything that a host has written is acknowledged.
    pub(crate) fn is_acknowledged(&self, host: usize) -> bool {
        self.hosts[host].connections.iter().all(Connection::is_idle)
    }

    /// Calls a method of a host's machine with what its kernel knows, and carries out what the
    /// machine asks for.
    pub(crate) fn call<T>(&mut self, host: usize, f: impl FnOnce(&mut Machine, &dyn Paths) -> T) -> T {
        let value = self.hosts[host].call(f);
        self.act(host);
        value
    }

    /// Lets every channel of a host that can take bytes write, in turns, until none does. `message`
    /// is the current message unless it was copied; `heads` gets the headers before each run.
    pub(crate) fn write_all(&mut self, host: usize, message: &[u8], heads: &mut dyn FnMut(&[u8])) {
        let now = self.now();
        self.hosts[host].call(|m, paths| m.begin_round(now, paths));
        loop {
            let mut progress = false;
            for channel in 0..self.hosts[host].table.len() {
                progress |= self.write(host, channel, message, heads);
            }
            if !progress {
                break;
            }
        }
        self.hosts[host].machine.end_round();
        self.act(host);
    }

    /// Writes what a channel has pending or claims now, as far as its socket has room; whether that
    /// was anything.
    fn write(&mut self, host: usize, channel: Channel, message: &[u8], heads: &mut dyn FnMut(&[u8])) -> bool {
        let now = self.now();
        let Host { machine, table, connections } = &mut self.hosts[host];
        let Some(index) = table[channel] else { return false };
        let connection = &mut connections[index];
        let rail = &self.rails[connection.rail].now;
        let room = connection.room(rail.link.queue_bytes as usize / rail.channels.max(1));
        let pending = machine.has_pending(channel);
        if room == 0 || !pending && !machine.claim(now, channel) {
            return false;
        }
        let Some(transmit) = machine.transmit(channel) else { return false };
        if !pending {
            heads(transmit.head);
        }
        let payload = match transmit.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Caller { offset, want } => &message[offset as usize..offset as usize + want],
        };
        let head = &transmit.head[..room.min(transmit.head.len())];
        let payload = &payload[..payload.len().min(room - head.len())];
        let bytes = head.len() + payload.len();
        connection.write(head);
        connection.write(payload);
        machine.handle_written(channel, bytes);
        if let Some(bytes) = connection.begin_packet(self.timing.packet_bytes) {
            self.network.send(connection.flow, bytes);
        }
        true
    }

    /// Lets time pass until something happens, at most until `until_us`; returns a packet that has
    /// arrived.
    pub(crate) fn advance(&mut self, until_us: f64) -> Option<Arrival> {
        let due = self.hosts.iter().map(|host| host.machine.poll_timeout()).min();
        let due_us = due.map_or(f64::INFINITY, |at| at.since_zero().as_nanos() as f64 / 1000.0);
        let until_us = due_us.min(until_us).min(self.timers.next_us()).max(self.now_us());
        if let Some(flow) = self.network.advance(until_us) {
            self.progress_us = self.now_us();
            self.packet_left(flow);
        } else if let Some(event) = self.timers.pop(until_us) {
            if !matches!(event, Event::Control { .. } | Event::Unreachable(_)) {
                self.progress_us = self.now_us();
            }
            return self.handle(event);
        } else {
            let now = self.now();
            for host in [DIALLER, LISTENER] {
                if self.hosts[host].machine.poll_timeout() <= now {
                    self.call(host, |m, paths| m.handle_timeout(now, paths));
                }
            }
        }
        None
    }

    /// The first packet of a connection is on its way; the next one leaves.
    fn packet_left(&mut self, flow: FlowId) {
        let sent_on = |host: &Host| host.connections.iter().position(|c| c.flow == flow);
        let found = self.hosts.iter().enumerate().find_map(|(host, of)| Some((host, sent_on(of)?)));
        let Some((host, index)) = found else { return };
        let delay_us = self.network.delay_us(flow);
        let connection = &mut self.hosts[host].connections[index];
        let RailState { now: rail, jitter, .. } = &mut self.rails[connection.rail];
        let late_us = if rail.jitter_us > 0.0 { rail.jitter_us * jitter.unit() } else { 0.0 };
        connection.arrives_us = connection.arrives_us.max(self.network.now_us() + delay_us + late_us);
        let arrives_us = connection.arrives_us;
        let bytes = connection.end_packet();
        if let Some(next) = connection.begin_packet(self.timing.packet_bytes) {
            self.network.send(flow, next);
        }
        let acknowledged = Event::Acknowledged { host, connection: index, bytes: bytes.len() as u64 };
        self.timers.set(arrives_us, Event::Arrives { host: 1 - host, connection: index, bytes });
        self.timers.set(arrives_us + delay_us, acknowledged);
    }

    fn handle(&mut self, event: Event) -> Option<Arrival> {
        let now = self.now();
        match event {
            Event::Arrives { host, connection, bytes } => {
                let channel = self.hosts[host].channel(connection)?;
                return Some(Arrival { host, connection, channel, bytes });
            }
            Event::Acknowledged { host, connection, bytes } => {
                self.hosts[host].connections[connection].acknowledge(bytes);
            }
            Event::Control { host, bytes } => {
                self.call(host, |m, paths| m.handle_control_bytes(now, &bytes, paths))
                    .expect("the simulated peer is honest");
            }
            Event::Changes(index) => self.change(index),
            Event::Detected { rail, down } => self.lose(rail, down),
            // The rail went down meanwhile.
            Event::Connected(redial) if !self.rails[redial.rail as usize].up => self.dial(redial),
            Event::Connected(redial) => self.connect(redial.id, redial.rail as usize, Some(redial.replaces)),
            Event::Unreachable(redial) => {
                if self.dialling.contains(&redial) {
                    self.dialling.retain(|d| *d != redial);
                    self.hosts[DIALLER].machine.handle_redial_failed(now, redial.replaces, false);
                }
            }
        }
        None
    }

    fn change(&mut self, index: usize) {
        let At { rail, change, .. } = self.schedule[index];
        let now_us = self.now_us();
        match change {
            Change::Rate { mbit_s } => self.rails[rail].now.link.rate_bytes_us = mbit_s / 8.0,
            Change::Load { flows } => self.load(rail, flows),
            Change::Down => {
                self.rails[rail].up = false;
                self.timers.set(now_us + self.timing.detect_us, Event::Detected { rail, down: index });
            }
            Change::Up => {
                self.rails[rail].up = true;
                let ready = |redial: &mut Redial| redial.rail as usize == rail;
                for redial in self.dialling.extract_if(.., ready) {
                    self.timers.set(now_us + self.timing.reopen_us, Event::Connected(redial));
                }
            }
        }
        let RailState { now, links, up, .. } = &self.rails[rail];
        let mut now_link = now.link;
        if !up {
            now_link.rate_bytes_us = 0.0;
        }
        links.iter().for_each(|link| self.network.set_link(*link, now_link));
    }

    /// Gives each direction of a rail this number of endless flows of others.
    fn load(&mut self, rail: usize, flows: usize) {
        let RailState { links, load, .. } = &mut self.rails[rail];
        for (link, load) in links.iter().zip(load) {
            while load.len() < flows {
                let flow = self.network.open(&[*link], f64::INFINITY);
                self.network.send(flow, ENDLESS_BYTES);
                load.push(flow);
            }
            for flow in load.drain(flows..) {
                self.network.cancel(flow);
            }
        }
    }

    /// A rail has been down since that change, unless it came back meanwhile: its connections are
    /// lost on both sides.
    fn lose(&mut self, rail: usize, down: usize) {
        let now_us = self.now_us() - self.schedule_us;
        let since_us = self.schedule[down].at_us;
        let came_back = |a: &At| a.rail == rail && a.change == Change::Up && (since_us..=now_us).contains(&a.at_us);
        if self.schedule.iter().any(came_back) {
            return;
        }
        let now = self.now();
        let of_rail = |c: &usize| self.hosts[DIALLER].connections[*c].rail == rail;
        for connection in (0..self.connection_count()).filter(of_rail).collect::<Vec<_>>() {
            for host in [DIALLER, LISTENER] {
                if let Some(channel) = self.hosts[host].channel(connection) {
                    self.call(host, |m, paths| m.handle_channel_lost(now, channel, paths));
                }
            }
        }
    }

    /// A new connection stands, on both sides.
    fn connect(&mut self, id: u32, rail: usize, replaces: Option<u32>) {
        let now = self.now();
        let RailState { now: path, links, .. } = &self.rails[rail];
        let rtt_us = (2.0 * path.link.delay_us) as u32;
        let delivery_bytes_s = available_bytes_us(path) / path.channels.max(1) as f64 * 1e6;
        let info = PathInfo { alive: true, rtt_us, min_rtt_us: rtt_us, delivery_bytes_s, ..PathInfo::default() };
        let flows = links.map(|link| self.network.open(&[link], self.timing.window_bytes));
        let index = self.connection_count();
        for (host, flow) in flows.into_iter().enumerate() {
            if let Some(replaced) = replaces {
                self.call(host, |m, paths| m.handle_channel_replaced(now, replaced, paths));
            }
            let this = &mut self.hosts[host];
            this.connections.push(Connection::new(rail, flow, info));
            this.machine.handle_channel_connected(now, id, rail as u32, &info);
            this.table.push(Some(index));
            self.act(host);
        }
    }

    /// Carries out a machine's actions.
    fn act(&mut self, host: usize) {
        while let Some(action) = self.hosts[host].machine.poll_action() {
            match action {
                Action::Close { channel, .. } => {
                    if let Some(connection) = self.hosts[host].table[channel].take() {
                        let flows = self.hosts.iter().filter_map(|host| host.connections.get(connection));
                        flows.for_each(|of| self.network.cancel(of.flow));
                    }
                }
                Action::ForgetClosed => self.hosts[host].table.retain(Option::is_some),
                Action::LimitUnsent { channel, bytes } => {
                    let this = &mut self.hosts[host];
                    if let Some(connection) = this.table[channel] {
                        this.connections[connection].unsent_limit = bytes as usize;
                    }
                }
                Action::Redial(redial) => self.dial(redial),
                Action::End => unreachable!("{:?}", self.hosts[host].machine.failure()),
                // The control connection stands, and the number of channels is fixed.
                Action::RedialControl | Action::OpenChannels { .. } => {}
                Action::TolerateSilence { .. } | Action::Log(_) => {}
            }
        }
    }

    fn dial(&mut self, redial: Redial) {
        let now_us = self.now_us();
        if self.rails[redial.rail as usize].up {
            self.timers.set(now_us + self.timing.reopen_us, Event::Connected(redial));
        } else {
            self.dialling.push(redial);
            self.timers.set(now_us + UNREACHABLE_US, Event::Unreachable(redial));
        }
    }

    /// Sends the machines' control packets over the nearest rail that is up, if any is.
    pub(crate) fn exchange_control(&mut self) {
        let now = self.now();
        let delays = self.rails.iter().filter(|r| r.up).map(|r| r.now.link.delay_us);
        let Some(delay_us) = delays.reduce(f64::min) else { return };
        for host in [DIALLER, LISTENER] {
            let machine = &mut self.hosts[host].machine;
            if machine.is_report_requested() {
                machine.queue_requested_report(now);
            }
            let bytes = machine.control_output().to_vec();
            if bytes.is_empty() {
                continue;
            }
            machine.handle_control_written(bytes.len());
            let to = 1 - host;
            self.control_us[to] = self.control_us[to].max(self.now_us() + delay_us);
            self.timers.set(self.control_us[to], Event::Control { host: to, bytes });
        }
    }
}
