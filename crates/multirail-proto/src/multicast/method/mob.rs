//! MOB (den Burger and Kielmann, HPDC 2007, section 3.1): every host of a cluster fetches its share
//! from other clusters, and the hosts of the cluster exchange the pieces. As in the paper, a share
//! stays with its owner: if that host dies, its cluster lacks the pieces that it had not fetched.
//! [`super::adaptive`] tolerates such failures. Unlike in the paper, a lost link is made again.

use crate::multicast::members::{MemberId, Members};
use crate::multicast::message::Message;
use crate::multicast::method::sync::Sync;
use crate::multicast::node::{Input, Node, Output};
use crate::multicast::pieces::{PieceSet, Pieces};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The number of local peers, and of global peers, that a host looks for (phases 1 and 2).
const PEERS: usize = 5;
/// The requests under way at one peer (section 2.5).
const REQUESTS: usize = 5;
/// The pause before a lost link is made again.
const AGAIN_US: u64 = 1_000_000;

/// The node of one host.
#[derive(Debug)]
pub(crate) struct Mob {
    members: Arc<Members>,
    me: MemberId,
    pieces: u32,
    held: PieceSet,
    /// Pieces that are held or requested.
    busy: PieceSet,
    /// The mob share of this host. Empty in the cluster of the root, where every piece is to be
    /// had.
    share: PieceSet,
    /// The peers that this host looked for.
    chosen: BTreeSet<MemberId>,
    /// The peers among them whose session is lost, and when to look for them again.
    again_us: BTreeMap<MemberId, u64>,
    peers: BTreeMap<MemberId, MobPeer>,
    sync: Sync,
    rng: Rng,
    out: VecDeque<Output>,
}

#[derive(Debug)]
struct MobPeer {
    has: PieceSet,
    /// The pieces that this host fetches from other clusters. A global peer is told of these only.
    share: PieceSet,
    asked: Vec<u32>,
}

impl Mob {
    /// The node of host `me`, which holds `held`.
    pub(crate) fn new(members: Arc<Members>, me: MemberId, pieces: Pieces, held: PieceSet, seed: u64) -> Self {
        let count = pieces.count();
        let share = share(&members, me, count);
        let sync = Sync::new(&members, me);
        let rng = Rng::new(seed ^ u64::from(me).wrapping_mul(0x9e37_79b9));
        let busy = held.clone();
        Self {
            members,
            me,
            pieces: count,
            held,
            busy,
            share,
            chosen: BTreeSet::new(),
            again_us: BTreeMap::new(),
            peers: BTreeMap::new(),
            sync,
            rng,
            out: VecDeque::new(),
        }
    }

    /// Phases 1 and 2: five peers in the own cluster, and five with the same rank in other
    /// clusters.
    fn find_peers(&mut self) {
        let locals = self.members.mob(self.me).iter().copied().filter(|m| *m != self.me).collect();
        let mine = self.members.cluster(self.me);
        let clusters = 0..self.members.clusters().len() as u32;
        let globals = clusters.filter(|c| *c != mine).map(|c| self.members.counterpart(self.me, c)).collect();
        for mut candidates in [locals, globals] {
            for peer in choose(&mut candidates, PEERS, &mut self.rng) {
                self.chosen.insert(peer);
                self.out.push_back(Output::Connect(peer));
            }
        }
    }

    /// Looks for lost peers again.
    fn wake(&mut self, now_us: u64) {
        let due: Vec<_> = self.again_us.iter().filter(|(_, at)| **at <= now_us).map(|(peer, _)| *peer).collect();
        for peer in due {
            self.again_us.remove(&peer);
            self.out.push_back(Output::Connect(peer));
        }
    }

    fn up(&mut self, peer: MemberId) {
        self.again_us.remove(&peer);
        let share = share(&self.members, peer, self.pieces);
        self.peers.insert(peer, MobPeer { has: PieceSet::none(self.pieces), share, asked: Vec::new() });
        if !self.held.is_empty() {
            self.out.push_back(Output::Send(peer, Message::Bitfield(self.held.to_bytes())));
        }
    }

    fn down(&mut self, now_us: u64, peer: MemberId) {
        if self.chosen.contains(&peer) {
            self.again_us.insert(peer, now_us + AGAIN_US);
        }
        self.forget(peer);
    }

    fn forget(&mut self, peer: MemberId) {
        if let Some(peer) = self.peers.remove(&peer) {
            for piece in peer.asked {
                if !self.held.contains(piece) {
                    self.busy.remove(piece);
                }
            }
            let up: Vec<_> = self.peers.keys().copied().collect();
            up.into_iter().for_each(|p| self.ask(p));
        }
    }

    fn message(&mut self, from: MemberId, message: Message) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match message {
            Message::Bitfield(bits) => {
                if let Some(has) = PieceSet::from_bytes(self.pieces, &bits) {
                    peer.has = has;
                }
                self.ask(from);
            }
            Message::Have(pieces) => {
                pieces.into_iter().for_each(|p| {
                    peer.has.insert(p);
                });
                self.ask(from);
            }
            // A request is always honoured (phase 3).
            Message::Request(pieces) => {
                let held = pieces.into_iter().filter(|p| self.held.contains(*p));
                self.out.extend(held.map(|p| Output::SendPiece(from, p)));
            }
            _ => {}
        }
    }

    fn stored(&mut self, from: MemberId, piece: u32) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.asked.retain(|p| *p != piece);
        }
        self.busy.insert(piece);
        if self.held.insert(piece) {
            for (id, peer) in &self.peers {
                let concerned = self.members.are_local(self.me, *id) || peer.share.contains(piece);
                if concerned && *id != from {
                    self.out.push_back(Output::Send(*id, Message::Have(vec![piece])));
                }
            }
        }
        self.ask(from);
    }

    /// Requests random pieces that `from` holds and that this host is to get from there.
    fn ask(&mut self, from: MemberId) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let local = self.members.are_local(self.me, from);
        while peer.asked.len() < REQUESTS {
            let piece = if local {
                peer.has.pick(&[], &[&self.busy, &self.share], &mut self.rng)
            } else {
                peer.has.pick(&[&self.share], &[&self.busy], &mut self.rng)
            };
            let Some(piece) = piece else { break };
            self.busy.insert(piece);
            peer.asked.push(piece);
            self.out.push_back(Output::Send(from, Message::Request(vec![piece])));
        }
    }
}

impl Node for Mob {
    fn handle(&mut self, now_us: u64, input: Input) {
        match input {
            Input::Start => self.find_peers(),
            Input::Up(peer) => {
                self.up(peer);
                self.sync.up(peer);
            }
            Input::Down(peer) => {
                self.down(now_us, peer);
                self.sync.down(peer);
            }
            Input::Message(from, message) => {
                self.sync.message(from, &message);
                self.message(from, message);
            }
            Input::Stored { from, piece } => self.stored(from, piece),
            Input::Bad { from, .. } => self.forget(from),
            Input::Wake => self.wake(now_us),
            Input::Sent { .. } | Input::Regroup(_) => {}
        }
        // Phase 4: hosts that still lack pieces look for this host.
        if self.held.is_full() {
            self.again_us.clear();
            self.sync.done();
        }
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front().or_else(|| self.sync.poll())
    }

    fn wake_at_us(&self) -> Option<u64> {
        self.again_us.values().min().copied()
    }

    fn held(&self) -> &PieceSet {
        &self.held
    }
}

/// The pieces that `member` fetches for its cluster.
pub(super) fn share(members: &Members, member: MemberId, pieces: u32) -> PieceSet {
    let mut share = PieceSet::none(pieces);
    if !members.are_local(member, members.root()) {
        share.insert_range(members.share(member, pieces));
    }
    share
}

/// At most `count` of `candidates`, at random.
pub(super) fn choose(candidates: &mut Vec<MemberId>, count: usize, rng: &mut Rng) -> Vec<MemberId> {
    let count = count.min(candidates.len());
    (0..count).map(|_| candidates.swap_remove(rng.below(candidates.len() as u64) as usize)).collect()
}
