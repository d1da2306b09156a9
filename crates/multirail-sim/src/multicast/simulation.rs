//! Drives the nodes over the links.

use super::ids::FlowId;
use super::links::{Done, HEADER_BYTES, Links};
use super::outcome::{End, Outcome, Traffic};
use super::queue::{Event, Queue};
use super::scenario::{Change, Scenario, Until};
use super::sessions::{Sessions, State};
use multirail_proto::multicast::members::MemberId;
use multirail_proto::multicast::message::Message;
use multirail_proto::multicast::node::{Input, Node, Output};
use multirail_proto::multicast::pieces::PieceSet;

/// Simulates `scenario`. `make` returns the node of a host with the pieces that it holds: all for
/// the root, none for the others, and the earlier ones for a host that returns.
pub fn run(scenario: &Scenario, make: impl FnMut(MemberId, PieceSet) -> Box<dyn Node>) -> Outcome {
    let mut simulation = Simulation::new(scenario, make);
    let end = simulation.run();
    simulation.outcome(end)
}

struct Simulation<'a, M> {
    scenario: &'a Scenario,
    make: M,
    queue: Queue,
    links: Links,
    sessions: Sessions,
    hosts: Vec<Host>,
    /// Control messages under way, and free entries. One store for all flows stays small, and in
    /// the cache.
    under_way: Vec<Option<Parcel>>,
    free: Vec<u32>,
    /// How often each piece entered each cluster.
    entries: Vec<Vec<u32>>,
    /// Hosts that are not done and can become so.
    missing: usize,
    traffic: Vec<Vec<Traffic>>,
    control_messages: u64,
    arrived_bytes: u64,
    lost_bytes: u64,
    duplicate_pieces: u64,
    repeated_entries: u64,
    mistakes: u64,
    steps: u64,
}

#[derive(Debug)]
struct Parcel {
    flow: FlowId,
    epoch: u32,
    bytes: u32,
    message: Message,
}

#[derive(Debug)]
struct Host {
    /// `None`: dead.
    node: Option<Box<dyn Node>>,
    held: PieceSet,
    complete_us: Option<u64>,
    finished_us: Option<u64>,
    /// When the next valid [`Event::Wake`] is due.
    wake_ns: Option<u64>,
    /// Entries of the schedule that will bring the host back.
    returns: usize,
    /// Whether the host has learnt the true clusters.
    knows: bool,
}

impl<'a, M: FnMut(MemberId, PieceSet) -> Box<dyn Node>> Simulation<'a, M> {
    fn new(scenario: &'a Scenario, make: M) -> Self {
        let (count, pieces) = (scenario.members.count(), scenario.pieces.count());
        let clusters = scenario.members.clusters().len();
        let mut hosts: Vec<Host> = (0..count).map(|_| Host::new(PieceSet::none(pieces))).collect();
        hosts[scenario.members.root() as usize].held = PieceSet::all(pieces);
        for at in &scenario.schedule {
            if let Change::Return(host) = at.change {
                hosts[host as usize].returns += 1;
            }
        }
        let mut entries = vec![vec![0; pieces as usize]; clusters];
        entries[scenario.members.cluster(scenario.members.root()) as usize].fill(1);
        Self {
            scenario,
            make,
            queue: Queue::default(),
            links: Links::new(scenario),
            sessions: Sessions::new(count),
            hosts,
            under_way: Vec::new(),
            free: Vec::new(),
            entries,
            missing: 0,
            traffic: vec![vec![Traffic::default(); clusters]; clusters],
            control_messages: 0,
            arrived_bytes: 0,
            lost_bytes: 0,
            duplicate_pieces: 0,
            repeated_entries: 0,
            mistakes: 0,
            steps: 0,
        }
    }

    fn run(&mut self) -> End {
        let mut order: Vec<u32> = (0..self.scenario.schedule.len() as u32).collect();
        order.sort_by_key(|index| self.scenario.schedule[*index as usize].at_us);
        for index in order {
            self.queue.push(self.scenario.schedule[index as usize].at_us * 1000, Event::Change { index });
        }
        for host in 0..self.hosts.len() as MemberId {
            let joins_late = self.scenario.schedule.iter().any(|at| at.at_us == 0 && at.change == Change::Die(host));
            if !joins_late {
                self.begin(host);
            }
        }
        self.count_missing();
        loop {
            if self.missing == 0 {
                return End::Done;
            }
            if self.steps >= self.scenario.max_steps {
                return End::StepLimit;
            }
            let Some(event) = self.queue.pop() else { return End::Stalled };
            if self.queue.now_us() > self.scenario.max_us {
                return End::TimeLimit;
            }
            self.steps += 1;
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Served { link, version } => match self.links.served(&mut self.queue, link, version) {
                Some(Done::Left { from, to, piece }) => self.feed(from, Input::Sent { to, piece }),
                Some(Done::Arrived { from, to, piece, bytes, last }) => self.arrived(from, to, piece, bytes, last),
                None => {}
            },
            Event::Arrive { chunk } => self.links.arrive(&mut self.queue, chunk),
            Event::Message { place } => self.message(place),
            Event::Wake { host } => {
                let state = &mut self.hosts[host as usize];
                if state.wake_ns == Some(self.queue.now_ns()) {
                    state.wake_ns = None;
                    self.feed(host, Input::Wake);
                }
            }
            Event::Knock { from, to, attempt } => self.knock(from, to, attempt),
            Event::Answer { from, to, attempt } => self.answer(from, to, attempt),
            Event::Detect { by, dead, attempt } => self.detect(by, dead, attempt),
            Event::Change { index } => self.change(self.scenario.schedule[index as usize].change),
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::WanRate { from, to, bytes_s } => self.links.set_wan(&mut self.queue, from, to, bytes_s),
            Change::Die(host) => self.die(host),
            Change::Return(host) => {
                self.hosts[host as usize].returns -= 1;
                if self.hosts[host as usize].node.is_none() {
                    self.begin(host);
                }
                self.count_missing();
            }
            Change::Regroup(host) => {
                self.hosts[host as usize].knows = true;
                self.feed(host, Input::Regroup(self.scenario.members.clone()));
            }
        }
    }

    fn begin(&mut self, host: MemberId) {
        let held = self.hosts[host as usize].held.clone();
        self.check_complete(host);
        self.hosts[host as usize].node = Some((self.make)(host, held));
        self.feed(host, Input::Start);
        if self.hosts[host as usize].knows {
            self.feed(host, Input::Regroup(self.scenario.members.clone()));
        }
    }

    fn die(&mut self, host: MemberId) {
        if self.hosts[host as usize].node.take().is_some() {
            self.hosts[host as usize].wake_ns = None;
            for peer in self.sessions.peers(host) {
                self.break_session(host, peer);
            }
        }
        self.count_missing();
    }

    /// Host `dead` died; `other` will notice.
    fn break_session(&mut self, dead: MemberId, other: MemberId) {
        let Some(session) = self.sessions.get(dead, other) else { return };
        if session.stale_for == Some(dead) {
            session.stale_for = None;
        }
        match session.state {
            // The other host's own request will fail.
            State::Connecting { by } if by == other => {
                session.both_ask = false;
                return;
            }
            State::Connecting { .. } | State::Idle => session.attempt += 1,
            State::Accepted { .. } | State::Up => {
                session.attempt += 1;
                session.stale_for = Some(other);
            }
        }
        session.state = State::Idle;
        let other_asks = std::mem::take(&mut session.both_ask);
        let (stale, attempt, flows) = (session.stale_for.is_some(), session.attempt, session.flows);
        for flow in flows {
            self.lost_bytes += self.links.reset(flow);
        }
        if stale {
            let at_ns = self.queue.now_ns() + self.scenario.detect_us * 1000;
            self.queue.push(at_ns, Event::Detect { by: other, dead, attempt });
        } else if other_asks {
            self.connect(other, dead);
        }
    }

    fn connect(&mut self, from: MemberId, to: MemberId) {
        if from == to || !self.scenario.members.contains(to) {
            self.mistakes += 1;
            return;
        }
        let delay_ns = self.links.delay_ns(from, to);
        let session = self.sessions.get_or_make(&mut self.links, from, to);
        if session.state == State::Idle && session.stale_for != Some(from) {
            session.attempt += 1;
            session.state = State::Connecting { by: from };
            let attempt = session.attempt;
            self.queue.push(self.queue.now_ns() + delay_ns, Event::Knock { from, to, attempt });
        } else if session.state == (State::Connecting { by: to }) {
            session.both_ask = true;
        }
    }

    fn knock(&mut self, from: MemberId, to: MemberId, attempt: u32) {
        let alive = self.hosts[to as usize].node.is_some();
        let now_ns = self.queue.now_ns();
        let delay_ns = self.links.delay_ns(from, to);
        let Some(session) = self.sessions.get(from, to) else { return };
        if session.attempt != attempt || session.state != (State::Connecting { by: from }) {
            return;
        }
        if !alive {
            let at_ns = now_ns + self.scenario.detect_us * 1000;
            self.queue.push(at_ns, Event::Detect { by: from, dead: to, attempt });
            return;
        }
        session.state = State::Accepted { by: from };
        session.both_ask = false;
        let was_stale = session.stale_for.take().is_some();
        self.queue.push(now_ns + delay_ns, Event::Answer { from, to, attempt });
        if was_stale {
            self.feed(to, Input::Down(from));
        }
        self.feed(to, Input::Up(from));
    }

    fn answer(&mut self, from: MemberId, to: MemberId, attempt: u32) {
        let Some(session) = self.sessions.get(from, to) else { return };
        if session.attempt == attempt && session.state == (State::Accepted { by: from }) {
            session.state = State::Up;
            self.feed(from, Input::Up(to));
        }
    }

    fn detect(&mut self, by: MemberId, dead: MemberId, attempt: u32) {
        let Some(session) = self.sessions.get(by, dead) else { return };
        if session.stale_for == Some(by) {
            // Also if the dead host is back and asks for a session: then that session comes up
            // after this.
            session.stale_for = None;
        } else if session.attempt == attempt && session.state == (State::Connecting { by }) {
            session.state = State::Idle;
        } else {
            return;
        }
        if std::mem::take(&mut session.both_ask) {
            self.connect(dead, by);
        }
        self.feed(by, Input::Down(dead));
    }

    fn message(&mut self, place: u32) {
        let Some(Parcel { flow, epoch, bytes, message }) = self.under_way[place as usize].take() else { return };
        self.free.push(place);
        // Of another epoch: a host died since.
        if self.links.epoch(flow) == epoch {
            self.links.control_arrived(self.queue.now_ns(), flow, bytes);
            let (from, to) = self.links.ends(flow);
            self.feed(to, Input::Message(from, message));
        }
    }

    fn arrived(&mut self, from: MemberId, to: MemberId, piece: u32, bytes: u32, last: bool) {
        let members = &self.scenario.members;
        let (source, target) = (members.cluster(from), members.cluster(to));
        self.traffic[source as usize][target as usize].piece_bytes += u64::from(bytes);
        self.arrived_bytes += u64::from(bytes);
        if !last {
            return;
        }
        if source != target {
            let entries = &mut self.entries[target as usize][piece as usize];
            self.repeated_entries += u64::from(*entries > 0);
            *entries += 1;
        }
        if self.hosts[to as usize].held.insert(piece) {
            self.check_complete(to);
        } else {
            self.duplicate_pieces += 1;
        }
        self.feed(to, Input::Stored { from, piece });
    }

    fn check_complete(&mut self, host: MemberId) {
        let now_us = self.queue.now_us();
        let state = &mut self.hosts[host as usize];
        if state.held.is_full() && state.complete_us.is_none() {
            state.complete_us = Some(now_us);
            self.count_missing();
        }
    }

    /// Rare enough to look at all hosts: once for each of them, and for each fault.
    fn count_missing(&mut self) {
        let until = self.scenario.until;
        let missing = |h: &&Host| (h.node.is_some() || h.returns > 0) && !h.is_done(until);
        self.missing = self.hosts.iter().filter(missing).count();
    }

    fn feed(&mut self, host: MemberId, input: Input) {
        let now_us = self.queue.now_us();
        let Some(node) = &mut self.hosts[host as usize].node else { return };
        node.handle(now_us, input);
        while let Some(output) = self.hosts[host as usize].node.as_mut().and_then(|node| node.poll()) {
            self.steps += 1;
            self.act(host, output);
            if self.steps >= self.scenario.max_steps {
                return;
            }
        }
        let state = &mut self.hosts[host as usize];
        let Some(wake_us) = state.node.as_ref().and_then(|node| node.wake_at_us()) else { return };
        // Time moves on between two wakes; otherwise a node that always wants one would stop it.
        let wake_ns = (wake_us.saturating_mul(1000)).max((now_us + 1) * 1000);
        if state.wake_ns.is_none_or(|old| wake_ns < old) {
            state.wake_ns = Some(wake_ns);
            self.queue.push(wake_ns, Event::Wake { host });
        }
    }

    fn act(&mut self, host: MemberId, output: Output) {
        match output {
            Output::Connect(peer) => self.connect(host, peer),
            Output::Send(peer, message) => self.send(host, peer, message),
            Output::SendPiece(peer, piece) => match self.flow(host, peer) {
                Some(flow) if self.hosts[host as usize].held.contains(piece) => {
                    self.links.send(&mut self.queue, flow, piece);
                }
                Some(_) => self.mistakes += 1,
                None => {}
            },
            Output::Withdraw(peer, piece) => {
                if let Some(flow) = self.flow(host, peer) {
                    self.links.withdraw(flow, piece);
                }
            }
            Output::Finished => {
                let now_us = self.queue.now_us();
                self.hosts[host as usize].finished_us.get_or_insert(now_us);
                self.count_missing();
            }
        }
    }

    fn send(&mut self, host: MemberId, peer: MemberId, message: Message) {
        let Some(flow) = self.flow(host, peer) else { return };
        let body = postcard::experimental::serialized_size(&message).unwrap_or(0);
        let bytes = HEADER_BYTES + body as u32;
        let members = &self.scenario.members;
        let (source, target) = (members.cluster(host) as usize, members.cluster(peer) as usize);
        self.traffic[source][target].control_bytes += u64::from(bytes);
        self.control_messages += 1;
        let at_ns = self.links.control(self.queue.now_ns(), flow, bytes);
        let place = self.free.pop().unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() as u32 - 1
        });
        self.under_way[place as usize] = Some(Parcel { flow, epoch: self.links.epoch(flow), bytes, message });
        self.queue.push(at_ns, Event::Message { place });
    }

    /// The flow to a peer. A missing session is a mistake, unless the host cannot know yet.
    fn flow(&mut self, host: MemberId, peer: MemberId) -> Option<FlowId> {
        match self.sessions.get(host, peer) {
            Some(session) if session.is_up_for(host) => return Some(session.flows[usize::from(host > peer)]),
            Some(session) if session.stale_for == Some(host) => {}
            _ => self.mistakes += 1,
        }
        None
    }

    fn outcome(self, end: End) -> Outcome {
        let under_way_bytes = self.links.in_network_bytes();
        Outcome {
            end,
            end_us: self.queue.now_us(),
            complete_us: self.hosts.iter().map(|h| h.complete_us).collect(),
            finished_us: self.hosts.iter().map(|h| h.finished_us).collect(),
            alive: self.hosts.iter().map(|h| h.node.is_some()).collect(),
            peers: (0..self.hosts.len()).map(|h| self.sessions.peers(h as MemberId).len() as u32).collect(),
            control_messages: self.control_messages,
            control_bytes: self.traffic.iter().flatten().map(|t| t.control_bytes).sum(),
            traffic: self.traffic,
            sent_bytes: self.links.sent_bytes(),
            arrived_bytes: self.arrived_bytes,
            lost_bytes: self.lost_bytes,
            under_way_bytes,
            duplicate_pieces: self.duplicate_pieces,
            repeated_entries: self.repeated_entries,
            mistakes: self.mistakes,
            steps: self.steps,
        }
    }
}

impl Host {
    fn new(held: PieceSet) -> Self {
        Self { node: None, held, complete_us: None, finished_us: None, wake_ns: None, returns: 0, knows: false }
    }

    fn is_done(&self, until: Until) -> bool {
        match until {
            Until::Complete => self.complete_us.is_some(),
            Until::Finished => self.finished_us.is_some(),
        }
    }
}
