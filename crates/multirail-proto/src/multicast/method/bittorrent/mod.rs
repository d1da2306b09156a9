//! BitTorrent (MOB paper, section 2.5), with the choices of the original client. A host asks the
//! tracker, here the list of members, for [`TRACKER_PEERS`] random peers. It announces its pieces
//! to all peers. Of each peer that unchokes it, it requests random pieces that it lacks,
//! [`REQUESTS`] at a time. It unchokes [`UNCHOKED`] peers: by tit-for-tat the four that give most
//! (a seed: that take most), chosen again every [`ROUND_US`], and one drawn every
//! [`OPTIMISTIC_US`], where newcomers have three times the chance. The paper leaves some points
//! open. While fewer than [`UNCHOKED`] interested peers are unchoked, a newly interested peer is
//! unchoked at once, since ten seconds are long for small data; a peer that loses interest keeps
//! its slot. A rate counts this round and the last one, the 20 seconds of the original client. A
//! peer that leaves requests without an answer for [`SNUBBED_US`] is passed over (Cohen 2003,
//! "anti-snubbing"). No piece is requested twice on purpose, since the paper has no end game. Hosts
//! leave when all hold every piece ([`Sync`]), as with the other methods.

use crate::multicast::members::{MemberId, Members};
use crate::multicast::message::Message;
use crate::multicast::method::sync::Sync;
use crate::multicast::node::{Input, Node, Output};
use crate::multicast::pieces::{PieceSet, Pieces};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// C, the number of peers that a host gets from the tracker.
pub const TRACKER_PEERS: usize = 20;
/// R, the number of open requests at a peer.
pub const REQUESTS: usize = 5;
/// N, the number of unchoked peers.
pub const UNCHOKED: usize = 5;
/// The time between two decisions about choking.
pub const ROUND_US: u64 = 10_000_000;
/// The time between two optimistic unchokes.
pub const OPTIMISTIC_US: u64 = 30_000_000;
/// How much likelier a peer without any piece is drawn.
pub const NEWCOMER_CHANCE: u64 = 3;
/// How long a peer may leave requests without any answer.
pub const SNUBBED_US: u64 = 60_000_000;
/// The most pieces in the queue of a peer.
const MAX_QUEUED: usize = 4 * REQUESTS;

/// The node of one host of the swarm.
#[derive(Debug)]
pub struct Bittorrent {
    members: Arc<Members>,
    me: MemberId,
    rng: Rng,
    held: PieceSet,
    /// Pieces that are held or requested.
    taken: PieceSet,
    peers: BTreeMap<MemberId, BittorrentPeer>,
    connecting: BTreeSet<MemberId>,
    /// Peers that sent a false piece.
    banned: BTreeSet<MemberId>,
    optimistic: Option<MemberId>,
    round_at_us: u64,
    optimistic_at_us: u64,
    sync: Sync,
    out: VecDeque<Output>,
}

#[derive(Debug)]
struct BittorrentPeer {
    has: PieceSet,
    /// How many of the peer's pieces this host lacks.
    lacked: u32,
    /// The pieces that were requested of the peer.
    asked: Vec<u32>,
    /// The pieces that are queued for the peer.
    queued: Vec<u32>,
    is_choking: bool,
    is_interested: bool,
    is_choked: bool,
    is_interesting: bool,
    /// Pieces that the peer gave and took, in this round and the last.
    gave: [u32; 2],
    took: [u32; 2],
    /// When the peer last sent a piece, or was first asked for one after it had nothing to send.
    heard_us: u64,
    is_snubbing: bool,
}

impl BittorrentPeer {
    fn new(pieces: u32) -> Self {
        Self {
            has: PieceSet::none(pieces),
            lacked: 0,
            asked: Vec::new(),
            queued: Vec::new(),
            is_choking: true,
            is_interested: false,
            is_choked: true,
            is_interesting: false,
            gave: [0; 2],
            took: [0; 2],
            heard_us: 0,
            is_snubbing: false,
        }
    }
}

impl Bittorrent {
    /// The node of host `me`, which holds `held`. All hosts may have the same `seed`.
    pub fn new(members: Arc<Members>, me: MemberId, pieces: Pieces, held: PieceSet, seed: u64) -> Self {
        debug_assert_eq!(pieces.count(), held.pieces());
        let sync = Sync::new(&members, me);
        Self {
            members,
            me,
            rng: Rng::new(Rng::new(seed ^ u64::from(me).rotate_left(32)).next_u64()),
            taken: held.clone(),
            held,
            peers: BTreeMap::new(),
            connecting: BTreeSet::new(),
            banned: BTreeSet::new(),
            optimistic: None,
            round_at_us: 0,
            optimistic_at_us: 0,
            sync,
            out: VecDeque::new(),
        }
    }

    fn start(&mut self, now_us: u64) {
        self.round_at_us = now_us + ROUND_US;
        self.optimistic_at_us = now_us + OPTIMISTIC_US;
        self.ask_tracker();
        if self.held.is_full() {
            self.sync.done();
        }
    }

    /// Connects to random hosts until there are enough.
    fn ask_tracker(&mut self) {
        let count = self.members.count();
        let known = self.peers.len() + self.connecting.len();
        let wanted = TRACKER_PEERS.saturating_sub(known);
        let is_free = |host: &MemberId| {
            *host != self.me
                && !self.peers.contains_key(host)
                && !self.connecting.contains(host)
                && !self.banned.contains(host)
        };
        let mut chosen = BTreeSet::new();
        if count > 4 * TRACKER_PEERS {
            // Nearly all hosts are free: draw until enough are found, within a limit.
            for _ in 0..8 * TRACKER_PEERS {
                let host = self.rng.below(count as u64) as MemberId;
                if chosen.len() < wanted && is_free(&host) {
                    chosen.insert(host);
                }
            }
        } else {
            let mut free: Vec<MemberId> = (0..count as MemberId).filter(is_free).collect();
            while chosen.len() < wanted && !free.is_empty() {
                chosen.insert(free.swap_remove(self.rng.below(free.len() as u64) as usize));
            }
        }
        for host in chosen {
            self.connecting.insert(host);
            self.out.push_back(Output::Connect(host));
        }
    }

    fn up(&mut self, peer: MemberId) {
        self.connecting.remove(&peer);
        self.sync.up(peer);
        if self.banned.contains(&peer) {
            return;
        }
        self.peers.insert(peer, BittorrentPeer::new(self.held.pieces()));
        if !self.held.is_empty() {
            self.out.push_back(Output::Send(peer, Message::Bitfield(self.held.to_bytes())));
        }
    }

    fn down(&mut self, now_us: u64, peer: MemberId) {
        self.connecting.remove(&peer);
        self.sync.down(peer);
        if let Some(gone) = self.peers.remove(&peer) {
            self.give_back(gone.asked);
            self.fill_slots();
            self.ask_all(now_us);
        }
    }

    fn message(&mut self, now_us: u64, from: MemberId, message: Message) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match message {
            Message::Bitfield(bits) => {
                let Some(has) = PieceSet::from_bytes(self.held.pieces(), &bits) else { return };
                peer.lacked = has.count_without(&self.held);
                peer.has = has;
                self.see(now_us, from);
            }
            Message::Have(pieces) => {
                for piece in pieces {
                    peer.lacked += u32::from(peer.has.insert(piece) && !self.held.contains(piece));
                }
                self.see(now_us, from);
            }
            Message::Interested => {
                peer.is_interested = true;
                self.fill_slots();
                self.spare_slots();
            }
            Message::NotInterested => {
                peer.is_interested = false;
                self.fill_slots();
            }
            Message::Choke => {
                peer.is_choking = true;
                let asked = std::mem::take(&mut peer.asked);
                self.give_back(asked);
                self.ask_all(now_us);
            }
            Message::Unchoke => {
                peer.is_choking = false;
                self.ask(now_us, from);
            }
            Message::Request(pieces) => {
                for piece in pieces {
                    let is_new = !peer.queued.contains(&piece) && peer.queued.len() < MAX_QUEUED;
                    if !peer.is_choked && is_new && self.held.contains(piece) {
                        peer.queued.push(piece);
                        self.out.push_back(Output::SendPiece(from, piece));
                    }
                }
            }
            other => self.sync.message(from, &other),
        }
    }

    /// The peer holds more than before.
    fn see(&mut self, now_us: u64, id: MemberId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.lacked > 0 && !peer.is_interesting {
            peer.is_interesting = true;
            self.out.push_back(Output::Send(id, Message::Interested));
        }
        self.ask(now_us, id);
    }

    fn stored(&mut self, now_us: u64, from: MemberId, piece: u32) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.asked.retain(|p| *p != piece);
            peer.gave[0] += 1;
            peer.heard_us = now_us;
            peer.is_snubbing = false;
        }
        self.taken.insert(piece);
        if self.held.insert(piece) {
            for (id, peer) in &mut self.peers {
                self.out.push_back(Output::Send(*id, Message::Have(vec![piece])));
                if peer.has.contains(piece) {
                    peer.lacked -= 1;
                    if peer.lacked == 0 && std::mem::take(&mut peer.is_interesting) {
                        self.out.push_back(Output::Send(*id, Message::NotInterested));
                    }
                }
            }
            if self.held.is_full() {
                self.sync.done();
            }
        }
        self.ask(now_us, from);
    }

    fn bad(&mut self, now_us: u64, from: MemberId) {
        self.banned.insert(from);
        if let Some(peer) = self.peers.remove(&from) {
            self.give_back(peer.asked);
            self.ask_all(now_us);
        }
    }

    /// Pieces that a peer will not send after all.
    fn give_back(&mut self, asked: Vec<u32>) {
        for piece in asked {
            if !self.held.contains(piece) {
                self.taken.remove(piece);
            }
        }
    }

    fn ask_all(&mut self, now_us: u64) {
        let open = self.peers.iter().filter(|(_, p)| !p.is_choking && p.asked.len() < REQUESTS);
        for id in open.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ask(now_us, id);
        }
    }

    /// Requests as many random pieces of a peer as allowed.
    fn ask(&mut self, now_us: u64, id: MemberId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.is_choking || peer.is_snubbing || peer.lacked == 0 {
            return;
        }
        let mut pieces = Vec::new();
        while peer.asked.len() < REQUESTS {
            let Some(piece) = draw(&mut self.rng, &peer.has, &self.taken) else { break };
            if peer.asked.is_empty() {
                peer.heard_us = now_us;
            }
            self.taken.insert(piece);
            peer.asked.push(piece);
            pieces.push(piece);
        }
        if !pieces.is_empty() {
            self.out.push_back(Output::Send(id, Message::Request(pieces)));
        }
    }

    fn sent(&mut self, to: MemberId, piece: u32) {
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.queued.retain(|p| *p != piece);
            peer.took[0] += 1;
        }
    }

    fn wake(&mut self, now_us: u64) {
        if now_us < self.round_at_us {
            return;
        }
        self.round_at_us = now_us + ROUND_US;
        self.ask_tracker();
        let snubbing = |p: &BittorrentPeer| !p.asked.is_empty() && now_us.saturating_sub(p.heard_us) >= SNUBBED_US;
        let mut asked = Vec::new();
        for peer in self.peers.values_mut().filter(|p| snubbing(p)) {
            peer.is_snubbing = true;
            asked.append(&mut peer.asked);
        }
        self.give_back(asked);
        self.choose(now_us);
        for peer in self.peers.values_mut() {
            peer.gave = [0, peer.gave[0]];
            peer.took = [0, peer.took[0]];
        }
        self.ask_all(now_us);
    }

    /// Tit-for-tat, and the optimistic unchoke.
    fn choose(&mut self, now_us: u64) {
        let mut unchoked: BTreeSet<MemberId> = self.by_rate().into_iter().take(UNCHOKED - 1).collect();
        let waits = |id: &MemberId, p: &BittorrentPeer| p.is_interested && !unchoked.contains(id);
        let stays = self.optimistic.filter(|id| self.peers.get(id).is_some_and(|p| waits(id, p)));
        if now_us >= self.optimistic_at_us || stays.is_none() {
            self.optimistic_at_us = now_us + OPTIMISTIC_US;
            let mut hat = Vec::new();
            for (id, peer) in self.peers.iter().filter(|(id, p)| waits(id, p)) {
                let chances = if peer.has.is_empty() { NEWCOMER_CHANCE } else { 1 };
                hat.extend((0..chances).map(|_| *id));
            }
            self.optimistic = (!hat.is_empty()).then(|| hat[self.rng.below(hat.len() as u64) as usize]);
        }
        unchoked.extend(self.optimistic);
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.set_choked(id, !unchoked.contains(&id));
        }
    }

    /// The interested peers by merit, in random order where they are equal.
    fn by_rate(&mut self) -> Vec<MemberId> {
        let is_seed = self.held.is_full();
        let rate = |p: &BittorrentPeer| if is_seed { p.took.iter().sum::<u32>() } else { p.gave.iter().sum() };
        let interested = self.peers.iter().filter(|(_, p)| p.is_interested);
        let mut order: Vec<_> =
            interested.map(|(id, p)| (std::cmp::Reverse(rate(p)), self.rng.next_u64(), *id)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Unchokes interested peers while there is room. This needs no round.
    fn fill_slots(&mut self) {
        let used = self.peers.values().filter(|p| !p.is_choked && p.is_interested).count();
        if used >= UNCHOKED || !self.peers.values().any(|p| p.is_choked && p.is_interested) {
            return;
        }
        let waiting: Vec<MemberId> = self.by_rate().into_iter().filter(|id| self.peers[id].is_choked).collect();
        for id in waiting.into_iter().take(UNCHOKED - used) {
            self.set_choked(id, false);
        }
    }

    /// A peer that is interested again still has its slot. The peer with the least merit then loses
    /// one.
    fn spare_slots(&mut self) {
        let optimistic = self.optimistic;
        let used = self.peers.values().filter(|p| !p.is_choked && p.is_interested).count();
        if used > UNCHOKED {
            let order = self.by_rate();
            let worst = order.iter().rev().find(|id| !self.peers[id].is_choked && optimistic != Some(**id)).copied();
            worst.into_iter().for_each(|id| self.set_choked(id, true));
        }
    }

    fn set_choked(&mut self, id: MemberId, choke: bool) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.is_choked == choke {
            return;
        }
        peer.is_choked = choke;
        self.out.push_back(Output::Send(id, if choke { Message::Choke } else { Message::Unchoke }));
        if choke {
            // A piece that has begun arrives in any case.
            self.out.extend(std::mem::take(&mut peer.queued).into_iter().map(|piece| Output::Withdraw(id, piece)));
        }
    }
}

/// A random piece of `has` that is not in `taken`, each with the same probability.
fn draw(rng: &mut Rng, has: &PieceSet, taken: &PieceSet) -> Option<u32> {
    // A few tries usually find one. Counting all is for the case that they are rare.
    for _ in 0..8 {
        let piece = rng.below(u64::from(has.pieces())) as u32;
        if has.contains(piece) && !taken.contains(piece) {
            return Some(piece);
        }
    }
    let count = u64::from(has.count_without(taken));
    has.without(taken).nth(rng.below(count) as usize)
}

impl Node for Bittorrent {
    fn handle(&mut self, now_us: u64, input: Input) {
        match input {
            Input::Start => self.start(now_us),
            Input::Up(peer) => self.up(peer),
            Input::Down(peer) => self.down(now_us, peer),
            Input::Message(from, message) => self.message(now_us, from, message),
            Input::Stored { from, piece } => self.stored(now_us, from, piece),
            Input::Bad { from, .. } => self.bad(now_us, from),
            Input::Sent { to, piece } => self.sent(to, piece),
            Input::Wake => self.wake(now_us),
            Input::Regroup(_) => {}
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front().or_else(|| self.sync.poll())
    }

    fn wake_at_us(&self) -> Option<u64> {
        (!self.sync.is_finished()).then_some(self.round_at_us)
    }

    fn held(&self) -> &PieceSet {
        &self.held
    }
}

#[cfg(test)]
mod tests;
