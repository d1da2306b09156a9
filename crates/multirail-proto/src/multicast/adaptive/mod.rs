//! The default: MOB (see [`super::mob`]) without its weak spots.
//!
//! What is different, and why:
//! - **Requests by what the path takes**: a peer that has sent all it was asked for says so, and is asked for more at once from
//!   then on. Five requests, as in the paper, do not fill 100 ms of round trip.
//! - **Rarest first across clusters**: a host tells its global peers what it is fetching, so that the root's links carry each piece
//!   to one cluster first, and the others get it from there.
//! - **Shares move**: who has nothing left to steal asks a neighbour for half of what that has left, and the next in rank takes
//!   over the share of a host that died.
//! - **An end game**: a piece that waits in a slow peer's queue is asked of a faster one that has nothing to do.
//!
//! Every piece still enters each cluster once, but for what is asked again because it does not come.

mod find;
mod peer;
mod shares;

use super::members::{MemberId, Members};
use super::message::Message;
use super::mob::share;
use super::node::{Input, Node, Output};
use super::pieces::{PieceSet, Pieces};
use crate::rng::Rng;
pub use find::early_calls;
use peer::{MIN_WINDOW, Peer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How often a host looks for peers that it wants and has not.
const RETRY_US: u64 = 2_000_000;
/// How often a host looks after what does not go by itself.
const TICK_US: u64 = 100_000;
/// A piece is asked of somebody else if it comes this much sooner from there, and by this much at least.
const SOONER: f64 = 2.0;
const SOONER_S: f64 = 0.5;
/// Next door only a peer that hangs is late.
const SOONER_LOCAL_S: f64 = 1.0;
/// The first in a queue may be on its way already: then it comes twice.
const SOONER_FIRST: f64 = 4.0;

/// One host's part.
#[derive(Debug)]
pub struct Adaptive {
    members: Arc<Members>,
    me: MemberId,
    pieces: u32,
    held: PieceSet,
    /// Held, or asked of somebody.
    busy: PieceSet,
    /// What this host brings into its cluster.
    mine: PieceSet,
    /// What it gave away of that, by whom it was taken.
    given: BTreeMap<u32, MemberId>,
    peers: BTreeMap<MemberId, Peer>,
    /// Whom this host looks for.
    wanted: Vec<MemberId>,
    retry_us: u64,
    down: BTreeSet<MemberId>,
    /// A neighbour was asked for work and has not answered.
    begging: Option<MemberId>,
    told_complete: bool,
    finished: bool,
    rng: Rng,
    now_us: u64,
    wake_us: Option<u64>,
    out: VecDeque<Output>,
}

impl Adaptive {
    /// A host that has `held`.
    pub fn new(members: Arc<Members>, me: MemberId, pieces: Pieces, held: PieceSet, seed: u64) -> Self {
        let count = pieces.count();
        Self {
            mine: share(&members, me, count),
            me,
            pieces: count,
            busy: held.clone(),
            held,
            given: BTreeMap::new(),
            peers: BTreeMap::new(),
            wanted: Vec::new(),
            retry_us: 0,
            down: BTreeSet::new(),
            begging: None,
            told_complete: false,
            finished: false,
            rng: find::rng(me, seed),
            now_us: 0,
            wake_us: None,
            out: VecDeque::new(),
            members,
        }
    }

    fn is_local(&self, member: MemberId) -> bool {
        self.members.are_local(self.me, member)
    }

    fn is_at_source(&self, member: MemberId) -> bool {
        self.members.are_local(member, self.members.root())
    }

    fn find_peers(&mut self) {
        self.wanted = find::wanted(&self.members, self.me, &mut self.rng);
        // In a full mesh the first of two calls the second; the second calls only if that did not work.
        let mesh = find::is_mesh(&self.members, self.me);
        let calls = |m: &&MemberId| !mesh || **m > self.me || !self.members.are_local(self.me, **m);
        self.out.extend(self.wanted.iter().filter(calls).map(|m| Output::Connect(*m)));
        self.retry_us = self.now_us + RETRY_US;
    }

    fn up(&mut self, id: MemberId) {
        self.down.remove(&id);
        let watch = share(&self.members, id, self.pieces);
        let mut peer = Peer::new(self.is_local(id), self.is_at_source(id), watch);
        if peer.at_source && !self.is_at_source(self.me) {
            // It will have everything soon, if not yet; asking now saves the time until it says so.
            peer.presumed = true;
            peer.has = PieceSet::all(self.pieces);
        }
        self.peers.insert(id, peer);
        if self.held.is_full() {
            self.send(id, Message::Complete);
        } else if !self.held.is_empty() {
            let bits = self.held.to_bytes();
            self.send(id, Message::Bitfield(bits));
        }
        if !self.is_local(id) {
            self.watch_what_was_taken(id);
        }
        self.ask(id);
    }

    fn lost(&mut self, id: MemberId) {
        if !self.down.insert(id) && !self.peers.contains_key(&id) {
            return;
        }
        if self.begging == Some(id) {
            self.begging = None;
        }
        if let Some(peer) = self.peers.remove(&id) {
            for piece in peer.pipe.asked() {
                self.release(piece);
            }
        }
        self.inherit(id);
        if !self.is_local(id) && !self.is_at_source(self.me) {
            self.find_substitute(id);
        }
        self.ask_everyone();
    }

    /// Somebody else of a cluster whose host is gone.
    fn find_substitute(&mut self, gone: MemberId) {
        let cluster = self.members.cluster(gone);
        if self.peers.keys().any(|p| self.members.cluster(*p) == cluster) {
            return;
        }
        let hosts = self.members.mob(gone);
        let first = self.members.rank(gone) as usize;
        let next = (1..hosts.len()).map(|i| hosts[(first + i) % hosts.len()]).find(|h| !self.down.contains(h));
        if let Some(next) = next.filter(|n| !self.peers.contains_key(n)) {
            self.out.push_back(Output::Connect(next));
        }
    }

    /// Not expected any more from where it was asked.
    fn release(&mut self, piece: u32) {
        let elsewhere = self.peers.values().any(|p| p.pipe.asked().any(|a| a == piece));
        if !self.held.contains(piece) && !elsewhere {
            self.busy.remove(piece);
        }
    }

    fn message(&mut self, from: MemberId, message: Message) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match message {
            Message::Bitfield(bits) => {
                if let Some(has) = PieceSet::from_bytes(self.pieces, &bits) {
                    peer.presumed = false;
                    peer.has = has;
                }
                self.ask(from);
            }
            Message::Complete => {
                peer.presumed = false;
                peer.has = PieceSet::all(self.pieces);
                peer.complete = true;
                self.ask(from);
            }
            Message::Have(pieces) => {
                peer.speaks();
                for piece in pieces {
                    peer.has.insert(piece);
                    peer.fetching.remove(piece);
                }
                self.ask(from);
            }
            Message::Fetching(pieces) => pieces.into_iter().for_each(|p| {
                peer.fetching.insert(p);
            }),
            Message::Request(pieces) => {
                for piece in pieces {
                    if self.held.contains(piece) {
                        peer.owed += 1;
                        self.out.push_back(Output::SendPiece(from, piece));
                    } else {
                        peer.waits.insert(piece);
                    }
                }
            }
            Message::Cancel(pieces) => {
                for piece in pieces {
                    if peer.waits.remove(piece) {
                        continue;
                    }
                    peer.owed = peer.owed.saturating_sub(1);
                    self.out.push_back(Output::Withdraw(from, piece));
                }
            }
            Message::Starved => {
                peer.pipe.starved();
                self.ask(from);
            }
            Message::Spare(wanted) => self.spare(from, wanted),
            Message::Take(pieces) => self.take(from, pieces),
            Message::Watch(pieces) => {
                pieces.iter().for_each(|p| {
                    peer.watch.insert(*p);
                });
                peer.at_source = false;
                // The root is gone before all next to it had everything.
                let vain: Vec<u32> = if peer.presumed { peer.pipe.asked().collect() } else { Vec::new() };
                peer.speaks();
                vain.iter().for_each(|p| {
                    peer.pipe.forget(*p);
                });
                let here: Vec<u32> = pieces.into_iter().filter(|p| self.held.contains(*p)).collect();
                if !here.is_empty() {
                    self.send(from, Message::Have(here));
                }
                if !vain.is_empty() {
                    vain.iter().for_each(|p| self.release(*p));
                    self.send(from, Message::Cancel(vain));
                }
            }
            _ => {}
        }
    }

    fn stored(&mut self, from: MemberId, piece: u32) {
        let now_us = self.now_us;
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.pipe.arrived(piece, now_us);
            peer.has.insert(piece);
        }
        self.busy.insert(piece);
        if self.held.insert(piece) {
            let full = self.held.is_full();
            let mut sends = Vec::new();
            for (id, peer) in &mut self.peers {
                if peer.pipe.forget(piece) {
                    sends.push((*id, Message::Cancel(vec![piece])));
                }
                if peer.waits.remove(piece) {
                    peer.owed += 1;
                    self.out.push_back(Output::SendPiece(*id, piece));
                    continue;
                }
                // Who sits next to the root needs nothing from afar.
                let concerned = peer.local || (!peer.at_source && peer.watch.contains(piece));
                if concerned && !full && !peer.has.contains(piece) {
                    sends.push((*id, Message::Have(vec![piece])));
                }
            }
            self.out.extend(sends.into_iter().map(|(to, message)| Output::Send(to, message)));
        }
        self.ask(from);
    }

    fn sent(&mut self, to: MemberId) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        peer.owed = peer.owed.saturating_sub(1);
        if peer.owed == 0 && peer.waits.is_empty() && !peer.local && !peer.complete {
            self.send(to, Message::Starved);
        }
    }

    fn ask_everyone(&mut self) {
        let ids: Vec<_> = self.peers.keys().copied().collect();
        ids.into_iter().for_each(|id| self.ask(id));
    }

    /// Requests what `from` has and this host is to get from there.
    fn ask(&mut self, from: MemberId) {
        if self.held.is_full() {
            return;
        }
        let room = self.room(from);
        let mut pieces = Vec::new();
        for _ in 0..room {
            let Some(piece) = self.choose_piece(from) else { break };
            self.busy.insert(piece);
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.pipe.ask(piece, self.now_us);
            }
            pieces.push(piece);
        }
        self.request(from, pieces);
    }

    /// How many more to ask of `from`: of what is left to bring in not more than its part, so that all peers finish at a time.
    fn room(&self, from: MemberId) -> usize {
        let Some(peer) = self.peers.get(&from) else { return 0 };
        if peer.local {
            return peer.pipe.room();
        }
        let all_pieces_s: f64 = self.peers.values().filter(|p| !p.local).map(|p| p.pipe.rate_pieces_s()).sum();
        let left = f64::from(self.mine.count_without(&self.held));
        let part = if all_pieces_s > 0.0 { left * peer.pipe.rate_pieces_s() / all_pieces_s } else { left };
        peer.pipe.room().min((part.ceil() as usize).max(MIN_WINDOW).saturating_sub(peer.pipe.asked().len()))
    }

    fn request(&mut self, from: MemberId, pieces: Vec<u32>) {
        if pieces.is_empty() {
            return;
        }
        if !self.is_local(from) {
            let others = self.peers.iter().filter(|(id, p)| **id != from && !p.local && !p.at_source && !p.complete);
            let others: Vec<_> = others.map(|(id, _)| *id).collect();
            for id in others {
                self.send(id, Message::Fetching(pieces.clone()));
            }
        }
        self.send(from, Message::Request(pieces));
    }

    fn choose_piece(&mut self, from: MemberId) -> Option<u32> {
        let peer = self.peers.get(&from)?;
        if peer.local {
            // Next to the root, what other clusters come for goes first; elsewhere this host's share has its own way in.
            if self.is_at_source(self.me) {
                let waited: Vec<_> = self.peers.values().filter(|p| !p.local).collect();
                let asked = waited.iter().find_map(|p| peer.has.pick(&[&p.waits], &[&self.busy], &mut self.rng));
                let wanted = asked
                    .or_else(|| waited.iter().find_map(|p| peer.has.pick(&[&p.watch], &[&self.busy], &mut self.rng)));
                return wanted.or_else(|| peer.has.pick(&[], &[&self.busy], &mut self.rng));
            }
            return peer.has.pick(&[], &[&self.busy], &mut self.rng);
        }
        // What a neighbour has is here already, as long as the neighbour is.
        let mut not = vec![&self.busy];
        not.extend(self.peers.values().filter(|p| p.local).map(|p| &p.has));
        let here = not.len();
        // Rarest first: what no other cluster has or is getting, then what they are only getting, then the rest.
        let others = || self.peers.iter().filter(|(id, p)| **id != from && !p.local && !p.at_source).map(|(_, p)| p);
        not.extend(others().map(|p| &p.has));
        let held_elsewhere = not.len();
        not.extend(others().map(|p| &p.fetching));
        let pick = |not: &[&PieceSet], rng: &mut Rng| peer.has.pick(&[&self.mine], not, rng);
        pick(&not, &mut self.rng)
            .or_else(|| pick(&not[..held_elsewhere], &mut self.rng))
            .or_else(|| pick(&not[..here], &mut self.rng))
    }

    /// What does not go by itself: work from neighbours, and pieces that wait in slow queues.
    fn tick(&mut self) {
        if self.held.is_full() {
            return;
        }
        if self.now_us >= self.retry_us {
            self.retry_us = self.now_us + RETRY_US;
            let missing = self.wanted.iter().filter(|m| !self.peers.contains_key(m));
            self.out.extend(missing.map(|m| Output::Connect(*m)));
        }
        self.ask_everyone();
        self.beg();
        self.hurry();
    }

    /// End game: peers with nothing to do get what others are slow with.
    fn hurry(&mut self) {
        let ids: Vec<_> = self.peers.keys().copied().collect();
        for to in ids {
            for _ in 0..self.peers.get(&to).map_or(0, |p| p.pipe.room()) {
                let Some((from, piece)) = self.latest_for(to) else { break };
                let Some(peer) = self.peers.get_mut(&from) else { break };
                peer.pipe.forget(piece);
                self.send(from, Message::Cancel(vec![piece]));
                if let Some(peer) = self.peers.get_mut(&to) {
                    peer.pipe.ask(piece, self.now_us);
                }
                self.request(to, vec![piece]);
            }
        }
    }

    /// The piece that `to` would bring sooner than the peer it was asked of, by the most.
    fn latest_for(&self, to: MemberId) -> Option<(MemberId, u32)> {
        let target = self.peers.get(&to)?;
        let there_s = target.pipe.wait_s(target.pipe.asked().len(), self.now_us);
        let mut best: Option<(f64, MemberId, u32)> = None;
        for (id, peer) in self.peers.iter().filter(|(id, p)| **id != to && p.local == target.local) {
            for (place, piece) in peer.pipe.asked().enumerate() {
                if !target.has.contains(piece) {
                    continue;
                }
                let here_s = peer.pipe.wait_s(place, self.now_us);
                let sooner = if place == 0 { SOONER_FIRST } else { SOONER };
                let at_least_s = if target.local { SOONER_LOCAL_S } else { SOONER_S };
                let gain_s = here_s - (there_s * sooner).max(at_least_s);
                if gain_s > 0.0 && best.as_ref().is_none_or(|b| b.0 < gain_s) {
                    best = Some((gain_s, *id, piece));
                }
            }
        }
        best.map(|(_, id, piece)| (id, piece))
    }

    fn send(&mut self, to: MemberId, message: Message) {
        self.out.push_back(Output::Send(to, message));
    }

    fn after(&mut self) {
        if self.held.is_full() && !self.told_complete {
            self.told_complete = true;
            let ids: Vec<_> = self.peers.keys().copied().collect();
            ids.into_iter().for_each(|id| self.send(id, Message::Complete));
        }
        if self.told_complete && !self.finished && self.peers.values().all(|p| p.complete) {
            self.finished = true;
            self.out.push_back(Output::Finished);
        }
        self.wake_us = match self.wake_us {
            _ if self.held.is_full() => None,
            Some(at) if at > self.now_us => Some(at),
            _ => Some(self.now_us + TICK_US),
        };
    }
}

impl Node for Adaptive {
    fn handle(&mut self, now_us: u64, input: Input) {
        self.now_us = self.now_us.max(now_us);
        match input {
            Input::Start => self.find_peers(),
            Input::Up(peer) => self.up(peer),
            Input::Down(peer) => self.lost(peer),
            Input::Message(from, message) => self.message(from, message),
            Input::Stored { from, piece } => self.stored(from, piece),
            Input::Bad { from, .. } => self.lost(from),
            Input::Sent { to, .. } => self.sent(to),
            Input::Wake if self.wake_us.is_some_and(|at| at <= self.now_us) => self.tick(),
            Input::Wake => {}
        }
        self.after();
    }

    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn wake_at_us(&self) -> Option<u64> {
        self.wake_us
    }

    fn held(&self) -> &PieceSet {
        &self.held
    }
}
