//! Links that serve chunks of pieces, one after the other.
//!
//! A *flow* is one direction of a session. It takes its pieces in order, in *chunks*, over the
//! links of its path: the sender's port, its WAN limit, the link between the clusters, the
//! receiver's WAN limit and port. The sender's port serves its flows in fair turns; every other
//! link serves chunks in the order of arrival. A flow may have in the network what fills its path
//! once ([`Links::window_bytes`]), divided among the flows of a WAN link. With equal windows,
//! serving in the order of arrival is fair, too.
//!
//! Ports forward a chunk while it is arriving, WAN links when it is complete. Control messages
//! overtake chunks; the link serves the chunk that much later.

use super::ids::{ChunkId, FlowId, LinkId};
use super::queue::{Event, Queue};
use super::scenario::{HostLinks, MIN_RATE_BYTES_S, Scenario};
use multirail_proto::multicast::members::MemberId;
use multirail_proto::multicast::pieces::Pieces;
use std::collections::VecDeque;

/// The most links of a path.
const MAX_HOPS: usize = 5;

#[derive(Debug)]
struct Link {
    bytes_s: f64,
    /// Whether the link forwards a chunk before it is complete.
    cuts_through: bool,
    /// Flows with something to send, for the port of a sender.
    turns: VecDeque<FlowId>,
    /// Waiting chunks, for all other links.
    waiting: VecDeque<ChunkId>,
    /// The chunk when its turn came. By now it may be in the next link.
    serving: Option<(ChunkId, Chunk)>,
    end_ns: u64,
    /// The time that control messages took from the chunk being served.
    stolen_ns: u64,
    control_free_ns: u64,
    /// [`Event::Served`] with another version is void.
    version: u32,
    /// Flows with something to send or in the network.
    busy_flows: u32,
}

#[derive(Debug)]
struct Flow {
    from: MemberId,
    to: MemberId,
    path: [LinkId; MAX_HOPS],
    hops: u8,
    /// The link whose flows divide the window: the WAN link, or within a cluster the receiver's
    /// port.
    narrow: LinkId,
    /// Propagation along the path, all of which happens after one hop.
    delay_ns: u64,
    delay_after: u8,
    pieces: VecDeque<u32>,
    /// The piece that has begun, and its bytes that are not in the network yet.
    begun: Option<(u32, u32)>,
    in_network_bytes: u64,
    has_turn: bool,
    busy: bool,
    /// Chunks of another epoch are lost, since a host died.
    epoch: u32,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    flow: FlowId,
    epoch: u32,
    hop: u8,
    last: bool,
    piece: u32,
    bytes: u32,
    /// When the last byte arrives at the current link.
    tail_ns: u64,
}

/// What a link has done, for the driver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Done {
    /// A piece has left its sender's port.
    Left { from: MemberId, to: MemberId, piece: u32 },
    /// Bytes of a piece have arrived; with the last of them, the piece.
    Arrived { from: MemberId, to: MemberId, piece: u32, bytes: u32, last: bool },
}

#[derive(Debug)]
pub(super) struct Links {
    links: Vec<Link>,
    flows: Vec<Flow>,
    chunks: Vec<Chunk>,
    free: Vec<ChunkId>,
    chunk_bytes: u32,
    sent_bytes: u64,
    pieces: Pieces,
    cluster_of: Vec<u32>,
    clusters: usize,
    lan_delay_ns: u64,
    wan_delay_ns: u64,
    /// Whether a host has a limit towards the outside, out and in.
    limited: Vec<(bool, bool)>,
}

/// The bytes before a piece or a control message.
pub(super) const HEADER_BYTES: u32 = 20;

/// The links of a host: its port out and in, its WAN limit out and in.
const OUT: u32 = 0;
const IN: u32 = 1;
const WAN_OUT: u32 = 2;
const WAN_IN: u32 = 3;
const LINKS_OF_HOST: u32 = 4;

impl Links {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut links = Vec::with_capacity(scenario.hosts.len() * LINKS_OF_HOST as usize);
        for HostLinks { lan_bytes_s, wan_out_bytes_s, wan_in_bytes_s } in &scenario.hosts {
            for rate in [lan_bytes_s, lan_bytes_s, wan_out_bytes_s, wan_in_bytes_s] {
                links.push(Link::new(*rate, true));
            }
        }
        for row in &scenario.wan_bytes_s {
            links.extend(row.iter().map(|rate| Link::new(*rate, false)));
        }
        let members = &scenario.members;
        Self {
            links,
            flows: Vec::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            chunk_bytes: scenario.chunk_bytes.max(1),
            sent_bytes: 0,
            cluster_of: (0..members.count()).map(|m| members.cluster(m as MemberId)).collect(),
            clusters: members.clusters().len(),
            lan_delay_ns: scenario.lan_delay_us * 1000,
            wan_delay_ns: scenario.wan_delay_us * 1000,
            pieces: scenario.pieces,
            limited: scenario
                .hosts
                .iter()
                .map(|h| (h.wan_out_bytes_s.is_finite(), h.wan_in_bytes_s.is_finite()))
                .collect(),
        }
    }

    /// Adds a flow with nothing to send.
    pub(super) fn open(&mut self, from: MemberId, to: MemberId) -> FlowId {
        let of = |host: MemberId, which: u32| host * LINKS_OF_HOST + which;
        let mut path = vec![of(from, OUT)];
        let clusters = (self.cluster_of[from as usize], self.cluster_of[to as usize]);
        if clusters.0 != clusters.1 {
            path.extend(self.limited[from as usize].0.then_some(of(from, WAN_OUT)));
            path.push(self.wan(clusters.0, clusters.1));
            path.extend(self.limited[to as usize].1.then_some(of(to, WAN_IN)));
        }
        path.push(of(to, IN));
        let narrow = if clusters.0 == clusters.1 { of(to, IN) } else { self.wan(clusters.0, clusters.1) };
        let delay_after = path.iter().position(|l| *l == narrow && clusters.0 != clusters.1).unwrap_or(0) as u8;
        let mut flow = Flow {
            from,
            to,
            path: [0; MAX_HOPS],
            hops: path.len() as u8,
            narrow,
            delay_ns: self.delay_ns(from, to),
            delay_after,
            pieces: VecDeque::new(),
            begun: None,
            in_network_bytes: 0,
            has_turn: false,
            busy: false,
            epoch: 0,
        };
        flow.path[..path.len()].copy_from_slice(&path);
        self.flows.push(flow);
        self.flows.len() as FlowId - 1
    }

    fn wan(&self, from: u32, to: u32) -> LinkId {
        (self.limited.len() * LINKS_OF_HOST as usize + from as usize * self.clusters + to as usize) as LinkId
    }

    /// The propagation from one host to another.
    pub(super) fn delay_ns(&self, from: MemberId, to: MemberId) -> u64 {
        let (from, to) = (self.cluster_of[from as usize], self.cluster_of[to as usize]);
        if from == to { self.lan_delay_ns } else { self.wan_delay_ns }
    }

    /// Queues a piece.
    pub(super) fn send(&mut self, queue: &mut Queue, flow: FlowId, piece: u32) {
        self.flows[flow as usize].pieces.push_back(piece);
        self.set_busy(flow);
        self.offer(queue, flow);
    }

    /// Removes a piece that has not begun.
    pub(super) fn withdraw(&mut self, flow: FlowId, piece: u32) {
        let pieces = &mut self.flows[flow as usize].pieces;
        if let Some(place) = pieces.iter().position(|p| *p == piece) {
            pieces.remove(place);
            self.set_busy(flow);
        }
    }

    /// Discards all that a flow has queued or in the network; the number of bytes lost in the
    /// network.
    pub(super) fn reset(&mut self, flow: FlowId) -> u64 {
        let f = &mut self.flows[flow as usize];
        f.epoch += 1;
        f.pieces.clear();
        f.begun = None;
        let lost = std::mem::take(&mut f.in_network_bytes);
        self.set_busy(flow);
        lost
    }

    /// When a control message of this many bytes reaches the end of the path, if sent now.
    pub(super) fn control(&mut self, now_ns: u64, flow: FlowId, bytes: u32) -> u64 {
        let f = &self.flows[flow as usize];
        let (path, hops) = (f.path, f.hops as usize);
        let mut at_ns = now_ns;
        // The message queues at links before the delay. At links behind it, where it arrives later,
        // it only costs time.
        for link in &path[..hops - 1] {
            at_ns = self.links[*link as usize].pass_control(at_ns, bytes);
        }
        at_ns + self.flows[flow as usize].delay_ns
    }

    /// Charges a control message that has arrived to the receiver's port.
    pub(super) fn control_arrived(&mut self, now_ns: u64, flow: FlowId, bytes: u32) {
        let f = &self.flows[flow as usize];
        let last = f.path[f.hops as usize - 1];
        self.links[last as usize].pass_control(now_ns, bytes);
    }

    /// Changes the rate of the link between two clusters.
    pub(super) fn set_wan(&mut self, queue: &mut Queue, from: u32, to: u32, bytes_s: f64) {
        let id = self.wan(from, to);
        let now_ns = queue.now_ns();
        let link = &mut self.links[id as usize];
        let bytes_s = bytes_s.max(MIN_RATE_BYTES_S);
        let scale = link.bytes_s / bytes_s;
        link.bytes_s = bytes_s;
        if link.serving.is_some() {
            let left_ns = link.end_ns.saturating_sub(now_ns) as f64 * scale;
            link.end_ns = now_ns + left_ns.ceil() as u64;
            link.version += 1;
            queue.push(link.end_ns, Event::Served { link: id, version: link.version });
        }
    }

    /// A chunk arrives at its next link.
    pub(super) fn arrive(&mut self, queue: &mut Queue, chunk: ChunkId) {
        let Chunk { flow, epoch, hop, .. } = self.chunks[chunk as usize];
        let f = &self.flows[flow as usize];
        if f.epoch != epoch {
            self.free.push(chunk);
            return;
        }
        let id = f.path[hop as usize];
        let link = &mut self.links[id as usize];
        link.waiting.push_back(chunk);
        if link.serving.is_none() {
            self.serve_next(queue, id);
        }
    }

    /// A link has served a chunk.
    pub(super) fn served(&mut self, queue: &mut Queue, id: LinkId, version: u32) -> Option<Done> {
        let link = &mut self.links[id as usize];
        if link.version != version {
            return None;
        }
        if link.stolen_ns > 0 {
            link.end_ns += std::mem::take(&mut link.stolen_ns);
            queue.push(link.end_ns, Event::Served { link: id, version });
            return None;
        }
        let (chunk, Chunk { flow, epoch, hop, last, piece, bytes, .. }) = link.serving.take()?;
        let cuts_through = link.cuts_through;
        let f = &mut self.flows[flow as usize];
        let (from, to, alive) = (f.from, f.to, f.epoch == epoch);
        let mut done = None;
        if hop + 1 == f.hops {
            self.free.push(chunk);
            if alive {
                f.in_network_bytes -= u64::from(bytes);
                done = Some(Done::Arrived { from, to, piece, bytes, last });
                self.set_busy(flow);
                self.offer(queue, flow);
            }
        } else {
            if !cuts_through {
                self.forward(queue, chunk, queue.now_ns(), queue.now_ns());
            }
            if hop == 0 && last && alive {
                done = Some(Done::Left { from, to, piece });
            }
        }
        self.serve_next(queue, id);
        done
    }

    /// The sender and the receiver of a flow.
    pub(super) fn ends(&self, flow: FlowId) -> (MemberId, MemberId) {
        let f = &self.flows[flow as usize];
        (f.from, f.to)
    }

    /// Counts how often a flow was reset. Chunks from before are lost.
    pub(super) fn epoch(&self, flow: FlowId) -> u32 {
        self.flows[flow as usize].epoch
    }

    /// Bytes of pieces that entered the network.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Bytes that live flows have in the network.
    pub(super) fn in_network_bytes(&self) -> u64 {
        self.flows.iter().map(|f| f.in_network_bytes).sum()
    }

    /// Puts a flow in the row of its port, if it may send.
    fn offer(&mut self, queue: &mut Queue, flow: FlowId) {
        if self.flows[flow as usize].has_turn || self.next_chunk_bytes(flow).is_none() {
            return;
        }
        self.flows[flow as usize].has_turn = true;
        let port = self.flows[flow as usize].path[0];
        self.links[port as usize].turns.push_back(flow);
        if self.links[port as usize].serving.is_none() {
            self.serve_next(queue, port);
        }
    }

    /// Lets an idle link serve the next chunk.
    fn serve_next(&mut self, queue: &mut Queue, id: LinkId) {
        let Some(chunk) = self.next_waiting(id).or_else(|| self.next_turn(id)) else { return };
        let as_it_is = self.chunks[chunk as usize];
        let Chunk { flow, hop, bytes, tail_ns, .. } = as_it_is;
        let link = &mut self.links[id as usize];
        let start_ns = queue.now_ns().max(link.control_free_ns);
        link.end_ns = (start_ns + link.time_ns(bytes)).max(tail_ns);
        link.serving = Some((chunk, as_it_is));
        link.stolen_ns = 0;
        link.version = link.version.wrapping_add(1);
        queue.push(link.end_ns, Event::Served { link: id, version: link.version });
        let (end_ns, cuts_through) = (link.end_ns, link.cuts_through);
        let f = &self.flows[flow as usize];
        if cuts_through && hop + 1 < f.hops {
            // The next link begins as early as it can without running dry.
            let next = f.path[hop as usize + 1];
            let head_ns = start_ns.max(end_ns.saturating_sub(self.links[next as usize].time_ns(bytes)));
            self.forward(queue, chunk, head_ns, end_ns);
        }
    }

    /// The next chunk that waits at a link. Those of broken flows are dropped.
    fn next_waiting(&mut self, id: LinkId) -> Option<ChunkId> {
        while let Some(chunk) = self.links[id as usize].waiting.pop_front() {
            let Chunk { flow, epoch, .. } = self.chunks[chunk as usize];
            if self.flows[flow as usize].epoch == epoch {
                return Some(chunk);
            }
            self.free.push(chunk);
        }
        None
    }

    /// A chunk of the next flow in a port's row.
    fn next_turn(&mut self, port: LinkId) -> Option<ChunkId> {
        while let Some(flow) = self.links[port as usize].turns.pop_front() {
            self.flows[flow as usize].has_turn = false;
            let Some(bytes) = self.next_chunk_bytes(flow) else { continue };
            let f = &mut self.flows[flow as usize];
            let begun = f.begun.take().or_else(|| f.pieces.pop_front().map(|p| (p, piece_bytes(&self.pieces, p))));
            let Some((piece, left)) = begun else { continue };
            f.begun = (left > bytes).then(|| (piece, left - bytes));
            f.in_network_bytes += u64::from(bytes);
            self.sent_bytes += u64::from(bytes);
            let chunk = Chunk { flow, epoch: f.epoch, hop: 0, last: left == bytes, piece, bytes, tail_ns: 0 };
            if self.next_chunk_bytes(flow).is_some() {
                self.flows[flow as usize].has_turn = true;
                self.links[port as usize].turns.push_back(flow);
            }
            let Some(id) = self.free.pop() else {
                self.chunks.push(chunk);
                return Some(self.chunks.len() as ChunkId - 1);
            };
            self.chunks[id as usize] = chunk;
            return Some(id);
        }
        None
    }

    /// The bytes of the next chunk of a flow, if it has one and its window allows it.
    fn next_chunk_bytes(&self, flow: FlowId) -> Option<u32> {
        let f = &self.flows[flow as usize];
        let left = f.begun.map(|(_, left)| left).or_else(|| f.pieces.front().map(|p| piece_bytes(&self.pieces, *p)))?;
        let bytes = left.min(self.chunk_bytes);
        (f.in_network_bytes == 0 || f.in_network_bytes + u64::from(bytes) <= self.window_bytes(f)).then_some(bytes)
    }

    /// How much a flow may have in the network: a chunk, and its part of what keeps the narrow link
    /// busy.
    fn window_bytes(&self, flow: &Flow) -> u64 {
        let (narrow, chunk) = (&self.links[flow.narrow as usize], u64::from(self.chunk_bytes));
        let fills = (narrow.bytes_s * flow.delay_ns as f64 / 1e9) as u64 + 2 * chunk;
        chunk + fills / u64::from(narrow.busy_flows.max(1))
    }

    fn forward(&mut self, queue: &mut Queue, chunk: ChunkId, head_ns: u64, tail_ns: u64) {
        let c = &mut self.chunks[chunk as usize];
        let f = &self.flows[c.flow as usize];
        let delay_ns = if c.hop == f.delay_after { f.delay_ns } else { 0 };
        c.hop += 1;
        c.tail_ns = tail_ns + delay_ns;
        queue.push(head_ns + delay_ns, Event::Arrive { chunk });
    }

    fn set_busy(&mut self, flow: FlowId) {
        let f = &mut self.flows[flow as usize];
        let busy = f.in_network_bytes > 0 || f.begun.is_some() || !f.pieces.is_empty();
        if busy != f.busy {
            f.busy = busy;
            let flows = &mut self.links[f.narrow as usize].busy_flows;
            *flows = if busy { *flows + 1 } else { *flows - 1 };
        }
    }
}

/// Bytes on the wire.
fn piece_bytes(pieces: &Pieces, piece: u32) -> u32 {
    let range = pieces.range(piece);
    HEADER_BYTES + (range.end - range.start) as u32
}

impl Link {
    fn new(bytes_s: f64, cuts_through: bool) -> Self {
        Self {
            bytes_s: bytes_s.max(MIN_RATE_BYTES_S),
            cuts_through,
            turns: VecDeque::new(),
            waiting: VecDeque::new(),
            serving: None,
            end_ns: 0,
            stolen_ns: 0,
            control_free_ns: 0,
            version: 0,
            busy_flows: 0,
        }
    }

    /// Rounded up: no link is faster than its rate.
    fn time_ns(&self, bytes: u32) -> u64 {
        (f64::from(bytes) * 1e9 / self.bytes_s).ceil() as u64
    }

    /// Lets a control message pass before any chunk; the time when it has passed.
    fn pass_control(&mut self, at_ns: u64, bytes: u32) -> u64 {
        let time_ns = self.time_ns(bytes);
        self.control_free_ns = self.control_free_ns.max(at_ns) + time_ns;
        if self.serving.is_some() {
            self.stolen_ns += time_ns;
        }
        self.control_free_ns
    }
}
