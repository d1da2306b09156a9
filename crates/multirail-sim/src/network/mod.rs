//! Links and the flows that share them max-min fairly: a fluid model that moves from event to
//! event.
//!
//! Rates change only when a flow begins or ends or a link changes, and then only those of flows
//! that share a link with it, directly or through others. Between two such events everything is
//! linear, so nothing is computed.
//!
//! Call order: [`Network::send`] and [`Network::set_link`] as needed, then [`Network::advance`],
//! which returns the first flow that has sent all of its bytes; and so on. A flow that gets more
//! bytes before time moves on has not stopped, and costs no new division of the links.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The number of a link, in the order of [`Network::add_link`].
pub type LinkId = usize;
/// The number of a flow, in the order of [`Network::open`].
pub type FlowId = usize;

/// The payload of TCP in a packet on Ethernet, with time stamps.
const PACKET_BYTES: f64 = 1448.0;

/// One direction of a cable, a port or a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bytes per microsecond; 0: nothing passes.
    pub rate_bytes_us: f64,
    /// One-way propagation.
    pub delay_us: f64,
    /// The fraction of packets lost at random. A fluid has no packets: loss limits the rate of one
    /// flow, by the formula of Mathis, Semke, Mahdavi and Ott (1997).
    pub loss: f64,
    /// The capacity of the queue. Flows keep it full. It delays claims (see
    /// [`message`](super::message)), not the fluid.
    pub queue_bytes: u64,
}

impl Link {
    /// A link without loss and without a standing queue.
    pub fn new(rate_mbit_s: f64, delay_us: f64) -> Self {
        Self { rate_bytes_us: rate_mbit_s / 8.0, delay_us, loss: 0.0, queue_bytes: 0 }
    }
}

/// The links, the flows, and the time.
#[derive(Debug, Default)]
pub struct Network {
    now_us: f64,
    links: Vec<LinkState>,
    flows: Vec<Flow>,
    /// When each busy flow will have sent everything. Entries with another `version` than the
    /// flow's are void.
    due: BinaryHeap<Reverse<Due>>,
    /// Flows that got bytes, finished or were cancelled since the links were last divided.
    touched: Vec<FlowId>,
    /// Links that changed since they were last divided.
    dirty: Vec<LinkId>,
}

#[derive(Debug)]
struct LinkState {
    link: Link,
    /// The busy flows that cross the link.
    flows: Vec<FlowId>,
    /// Set only while links are being divided: the rate that is left, and the number of flows that
    /// share it.
    rest_bytes_us: f64,
    sharers: usize,
    reached: bool,
}

#[derive(Debug)]
struct Flow {
    path: Vec<LinkId>,
    window_bytes: f64,
    /// All bytes that the flow ever got, and those unsent at `since_us`.
    told_bytes: f64,
    left_bytes: f64,
    since_us: f64,
    rate_bytes_us: f64,
    /// Whether the flow got bytes and was not returned by [`Network::advance`] since.
    pending: bool,
    /// Whether the flow has a share of its links.
    busy: bool,
    version: u32,
    /// Set only while links are being divided.
    reached: bool,
    fixed: bool,
}

#[derive(Debug, PartialEq)]
struct Due {
    at_us: f64,
    flow: FlowId,
    version: u32,
}

impl Network {
    /// Adds a link.
    pub fn add_link(&mut self, link: Link) -> LinkId {
        self.links.push(LinkState { link, flows: Vec::new(), rest_bytes_us: 0.0, sharers: 0, reached: false });
        self.links.len() - 1
    }

    /// The present state of a link.
    pub fn link(&self, id: LinkId) -> Link {
        self.links[id].link
    }

    /// Changes a link from now on.
    pub fn set_link(&mut self, id: LinkId, link: Link) {
        if self.links[id].link != link {
            self.links[id].link = link;
            self.dirty.push(id);
        }
    }

    /// Adds a flow over `path` without bytes to send. It never has more than `window_bytes` under
    /// way (`f64::INFINITY`: no limit), so its rate is at most that per round trip.
    pub fn open(&mut self, path: &[LinkId], window_bytes: f64) -> FlowId {
        self.flows.push(Flow {
            path: path.to_vec(),
            window_bytes,
            told_bytes: 0.0,
            left_bytes: 0.0,
            since_us: self.now_us,
            rate_bytes_us: 0.0,
            pending: false,
            busy: false,
            version: 0,
            reached: false,
            fixed: false,
        });
        self.flows.len() - 1
    }

    /// Gives a flow `bytes` more to send.
    pub fn send(&mut self, flow: FlowId, bytes: u64) {
        self.bring_up_to_date(flow);
        self.flows[flow].told_bytes += bytes as f64;
        self.flows[flow].left_bytes += bytes as f64;
        self.flows[flow].pending |= bytes > 0;
        self.touched.push(flow);
    }

    /// Discards the unsent bytes of a flow.
    pub fn cancel(&mut self, flow: FlowId) {
        self.bring_up_to_date(flow);
        let f = &mut self.flows[flow];
        f.told_bytes -= f.left_bytes;
        f.left_bytes = 0.0;
        f.pending = false;
        self.touched.push(flow);
    }

    /// The present time.
    pub fn now_us(&self) -> f64 {
        self.now_us
    }

    /// The bytes that a flow has sent until now.
    pub fn sent_bytes(&self, flow: FlowId) -> f64 {
        let f = &self.flows[flow];
        f.told_bytes - (f.left_bytes - f.rate_bytes_us * (self.now_us - f.since_us)).max(0.0)
    }

    /// A flow's present share of its path.
    pub fn rate_bytes_us(&mut self, flow: FlowId) -> f64 {
        self.settle();
        self.flows[flow].rate_bytes_us
    }

    /// The time that a byte takes on a flow's path, without queues.
    pub fn delay_us(&self, flow: FlowId) -> f64 {
        self.flows[flow].path.iter().map(|&l| self.links[l].link.delay_us).sum()
    }

    /// When the next flow will have sent everything, if nothing else happens.
    pub fn next_event_us(&mut self) -> Option<f64> {
        self.settle();
        while let Some(Reverse(due)) = self.due.peek() {
            if self.flows[due.flow].version == due.version {
                return Some(due.at_us);
            }
            self.due.pop();
        }
        None
    }

    /// Moves time to `until_us`, or to the time when a flow has sent everything, and returns that
    /// flow. Flows that finish at the same time are returned one by one, lower numbers first.
    pub fn advance(&mut self, until_us: f64) -> Option<FlowId> {
        match self.next_event_us() {
            Some(at_us) if at_us <= until_us => {
                let Reverse(due) = self.due.pop()?;
                self.now_us = self.now_us.max(at_us);
                let flow = &mut self.flows[due.flow];
                flow.left_bytes = 0.0;
                flow.pending = false;
                flow.since_us = self.now_us;
                flow.version += 1;
                self.touched.push(due.flow);
                Some(due.flow)
            }
            _ => {
                self.now_us = self.now_us.max(until_us);
                None
            }
        }
    }

    fn bring_up_to_date(&mut self, flow: FlowId) {
        let f = &mut self.flows[flow];
        f.left_bytes = (f.left_bytes - f.rate_bytes_us * (self.now_us - f.since_us)).max(0.0);
        f.since_us = self.now_us;
    }

    /// Registers flows that began or ended, and divides the links they touch.
    fn settle(&mut self) {
        for flow in std::mem::take(&mut self.touched) {
            let f = &mut self.flows[flow];
            let wants = f.left_bytes > 0.0;
            if f.busy != wants {
                f.busy = wants;
                f.rate_bytes_us = 0.0;
                for &link in &f.path {
                    let flows = &mut self.links[link].flows;
                    match wants {
                        true => flows.push(flow),
                        false => flows.retain(|&other| other != flow),
                    }
                    self.dirty.push(link);
                }
            }
            self.schedule(flow);
        }
        if !self.dirty.is_empty() {
            self.divide();
        }
    }

    /// Enters when `flow`, at its present rate, will have sent everything.
    fn schedule(&mut self, flow: FlowId) {
        let f = &mut self.flows[flow];
        f.version += 1;
        if !f.pending || (f.left_bytes > 0.0 && f.rate_bytes_us <= 0.0) {
            return;
        }
        // Nothing is left although the flow is pending: it finished when its rate changed.
        let remaining_us = if f.left_bytes > 0.0 { f.left_bytes / f.rate_bytes_us } else { 0.0 };
        self.due.push(Reverse(Due { at_us: f.since_us + remaining_us, flow, version: f.version }));
    }

    /// Progressive filling (Bertsekas and Gallager, section 6.5.2) of everything connected with the
    /// dirty links. All rates rise together; a flow stops rising when it reaches its own limit or
    /// one of its links is full.
    fn divide(&mut self) {
        let (links, flows) = self.connected();
        let mut limits: Vec<(f64, FlowId)> = Vec::with_capacity(flows.len());
        for &flow in &flows {
            let limit = self.limit_bytes_us(flow);
            if limit.is_finite() {
                limits.push((limit, flow));
            }
        }
        limits.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));

        // Shares only grow while others are fixed below them, so that an entry is at worst too low,
        // and is put back.
        let mut full: BinaryHeap<Reverse<Share>> = BinaryHeap::with_capacity(links.len());
        full.extend(links.iter().filter_map(|&l| self.share(l)).map(Reverse));
        let mut rates = Vec::with_capacity(flows.len());
        while let Some(Reverse(entry)) = full.pop() {
            let Some(share) = self.share(entry.link) else { continue };
            while limits.last().is_some_and(|&(_, flow)| self.flows[flow].fixed) {
                limits.pop();
            }
            match limits.last() {
                Some(&(limit, flow)) if limit <= share.bytes_us => {
                    self.fix(flow, limit, &mut rates);
                    full.push(Reverse(entry));
                }
                _ if share.bytes_us > entry.bytes_us => full.push(Reverse(share)),
                _ => {
                    for flow in self.links[entry.link].flows.clone() {
                        if !self.flows[flow].fixed {
                            self.fix(flow, share.bytes_us, &mut rates);
                        }
                    }
                }
            }
        }

        for (flow, rate) in rates {
            self.flows[flow].fixed = false;
            if self.flows[flow].rate_bytes_us != rate {
                self.bring_up_to_date(flow);
                self.flows[flow].rate_bytes_us = rate;
                self.schedule(flow);
            }
        }
    }

    /// The links and busy flows that a change of the dirty links can reach. Resets the links for
    /// dividing.
    fn connected(&mut self) -> (Vec<LinkId>, Vec<FlowId>) {
        let mut links = Vec::new();
        let mut flows = Vec::new();
        let mut open = std::mem::take(&mut self.dirty);
        while let Some(link) = open.pop() {
            let state = &mut self.links[link];
            if std::mem::replace(&mut state.reached, true) {
                continue;
            }
            state.rest_bytes_us = state.link.rate_bytes_us;
            state.sharers = state.flows.len();
            links.push(link);
            for &flow in &state.flows {
                if !std::mem::replace(&mut self.flows[flow].reached, true) {
                    flows.push(flow);
                    open.extend(&self.flows[flow].path);
                }
            }
        }
        links.iter().for_each(|&l| self.links[l].reached = false);
        flows.iter().for_each(|&f| self.flows[f].reached = false);
        (links, flows)
    }

    /// The rate of a flow on an empty path.
    fn limit_bytes_us(&self, flow: FlowId) -> f64 {
        let path = || self.flows[flow].path.iter().map(|&l| self.links[l].link);
        let round_trip_us = 2.0 * path().map(|l| l.delay_us).sum::<f64>();
        let loss: f64 = path().map(|l| l.loss).sum();
        let by_loss = if loss > 0.0 { PACKET_BYTES * (1.5 / loss).sqrt() } else { f64::INFINITY };
        let under_way = by_loss.min(self.flows[flow].window_bytes);
        if round_trip_us > 0.0 { under_way / round_trip_us } else { f64::INFINITY }
    }

    fn share(&self, link: LinkId) -> Option<Share> {
        let state = &self.links[link];
        (state.sharers > 0).then(|| Share { bytes_us: state.rest_bytes_us / state.sharers as f64, link })
    }

    fn fix(&mut self, flow: FlowId, rate_bytes_us: f64, rates: &mut Vec<(FlowId, f64)>) {
        self.flows[flow].fixed = true;
        for &link in &self.flows[flow].path {
            let state = &mut self.links[link];
            state.rest_bytes_us = (state.rest_bytes_us - rate_bytes_us).max(0.0);
            state.sharers -= 1;
        }
        rates.push((flow, rate_bytes_us));
    }
}

#[derive(Debug, PartialEq)]
struct Share {
    bytes_us: f64,
    link: LinkId,
}

impl Eq for Share {}
impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes_us.total_cmp(&other.bytes_us).then(self.link.cmp(&other.link))
    }
}
impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Due {}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_us.total_cmp(&other.at_us).then(self.flow.cmp(&other.flow)).then(self.version.cmp(&other.version))
    }
}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
