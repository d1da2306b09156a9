//! The node of the method `adaptive`: requests, answers and the end game.

use super::fetchers::{self, share};
use super::find;
use super::peer::{AdaptivePeer, MIN_WINDOW};
use super::relays;
use super::spread::for_others;
use super::trial::Recruiting;
use crate::multicast::members::{MemberId, Members};
use crate::multicast::message::Message;
use crate::multicast::node::{Input, Node, Output};
use crate::multicast::pieces::{PieceSet, Pieces};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How often a host looks for peers that it wants and does not have.
const RETRY_US: u64 = 2_000_000;
/// How often a host checks its requests and shares.
const TICK_US: u64 = 100_000;
/// A request moves to another peer if the piece would arrive this many times sooner from there, and
/// takes at least `SOONER_S` seconds from here. The piece comes twice only if it was on its way.
const SOONER: f64 = 2.0;
const SOONER_S: f64 = 0.5;
/// Between hosts of one cluster, only a peer that hangs is late.
const SOONER_LOCAL_S: f64 = 1.0;
/// The factor for the first piece in a queue. It may already be on its way, and would then arrive
/// twice.
const SOONER_FIRST: f64 = 4.0;

/// The node of one host.
#[derive(Debug)]
pub(crate) struct Adaptive {
    pub(super) members: Arc<Members>,
    pub(super) me: MemberId,
    pub(super) pieces: u32,
    pub(super) held: PieceSet,
    /// Pieces that are held or requested.
    pub(super) busy: PieceSet,
    /// The pieces that this host fetches for its cluster.
    pub(super) mine: PieceSet,
    /// The pieces that this host, next to the root, gets from the root.
    pub(super) part: PieceSet,
    /// What neighbours gave to this host of their shares.
    pub(super) taken: PieceSet,
    /// The pieces of that share that were given away, and to whom.
    pub(super) given: BTreeMap<u32, MemberId>,
    pub(super) peers: BTreeMap<MemberId, AdaptivePeer>,
    /// The peers that this host looks for.
    pub(super) wanted: Vec<MemberId>,
    pub(super) retry_us: u64,
    pub(super) down: BTreeSet<MemberId>,
    /// Whether this host has looked for peers in other clusters, to fetch from there.
    pub(super) fetches: bool,
    /// The neighbour that was asked for a part of its share and has not answered.
    pub(super) begging: Option<MemberId>,
    /// Whether more hosts should fetch.
    pub(super) recruiting: Recruiting,
    /// Whether a tick found that this host waits for nothing.
    pub(super) stuck: bool,
    pub(super) told_complete: bool,
    pub(super) finished: bool,
    pub(super) rng: Rng,
    pub(super) now_us: u64,
    pub(super) wake_us: Option<u64>,
    pub(super) out: VecDeque<Output>,
}

impl Adaptive {
    /// The node of host `me`, which holds `held`.
    pub(crate) fn new(members: Arc<Members>, me: MemberId, pieces: Pieces, held: PieceSet, seed: u64) -> Self {
        let count = pieces.count();
        Self {
            mine: share(&members, me, count),
            part: relays::part(&members, me, count),
            me,
            pieces: count,
            busy: held.clone(),
            held,
            taken: PieceSet::none(count),
            given: BTreeMap::new(),
            peers: BTreeMap::new(),
            wanted: Vec::new(),
            retry_us: 0,
            down: BTreeSet::new(),
            fetches: fetchers::fetches(&members, me),
            begging: None,
            recruiting: Recruiting::new(),
            stuck: false,
            told_complete: false,
            finished: false,
            rng: find::rng(me, seed),
            now_us: 0,
            wake_us: None,
            out: VecDeque::new(),
            members,
        }
    }

    pub(super) fn is_local(&self, member: MemberId) -> bool {
        self.members.are_local(self.me, member)
    }

    pub(super) fn is_at_source(&self, member: MemberId) -> bool {
        self.members.are_local(member, self.members.root())
    }

    pub(super) fn find_peers(&mut self) {
        self.wanted = find::wanted(&self.members, self.me, &mut self.rng);
        // Of two neighbours that look for each other, the one with the lower number dials. The other one
        // dials only if that failed.
        let members = &self.members;
        let is_called =
            |m: MemberId| m < self.me && members.are_local(self.me, m) && find::surely_wants(members, m, self.me);
        let calls = |m: &&MemberId| !is_called(**m);
        self.out.extend(self.wanted.iter().filter(calls).map(|m| Output::Connect(*m)));
        self.retry_us = self.now_us + RETRY_US;
    }

    fn up(&mut self, id: MemberId) {
        self.down.remove(&id);
        let watch = share(&self.members, id, self.pieces);
        let window = find::first_window(&self.members, self.me, id);
        let mut peer = AdaptivePeer::new(self.is_local(id), self.is_at_source(id), watch, window);
        if peer.at_source && !self.is_at_source(self.me) {
            // The peer will soon hold every piece. A request now saves the time until it announces
            // them.
            peer.presume();
            peer.first = relays::first(&self.members, id, self.pieces);
        }
        peer.for_others = for_others(&self.members, self.me, id, self.pieces);
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

    /// Selects another host in the cluster of a lost host.
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

    /// Notes that a piece is no longer expected from where it was requested.
    pub(super) fn release(&mut self, piece: u32) {
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
                    peer.announces(has.iter());
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
                peer.announces(pieces.into_iter());
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
                // The root was lost before all its neighbours held every piece.
                let vain: Vec<u32> = if peer.presumed { peer.pipe.asked().collect() } else { Vec::new() };
                peer.stop_presuming();
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
            if !peer.local {
                self.recruiting.arrived(now_us);
            }
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
                // A host in the root's cluster needs nothing from other clusters.
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

    pub(super) fn ask_everyone(&mut self) {
        let ids: Vec<_> = self.peers.keys().copied().collect();
        ids.into_iter().for_each(|id| self.ask(id));
    }

    /// Requests pieces that `from` holds and that this host is to get from there.
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

    /// How many more pieces to request of `from`: at most its part, by its rate, of what is left to
    /// fetch, so that all peers finish at the same time.
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
        // A piece that another cluster holds has left the root's cluster. Other hosts need not know that it is fetched.
        if !self.is_local(from) && self.is_at_source(from) {
            let others = self.peers.iter().filter(|(id, p)| **id != from && !p.local && !p.at_source && !p.complete);
            let others: Vec<_> = others.map(|(id, _)| *id).collect();
            for id in others {
                self.send(id, Message::Fetching(pieces.clone()));
            }
        }
        self.send(from, Message::Request(pieces));
    }

    /// Regular work: shares from neighbours, and pieces that wait in slow queues.
    fn tick(&mut self) {
        if self.held.is_full() {
            return;
        }
        if self.now_us >= self.retry_us {
            self.retry_us = self.now_us + RETRY_US;
            let missing = self.wanted.iter().filter(|m| !self.peers.contains_key(m));
            self.out.extend(missing.map(|m| Output::Connect(*m)));
        }
        self.stuck = self.peers.values().all(|p| p.pipe.asked().len() == 0);
        self.ask_everyone();
        self.stuck = false;
        self.beg();
        self.recruit();
        self.move_late_requests();
    }

    /// End game: peers without work are asked for pieces that others are slow with.
    fn move_late_requests(&mut self) {
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

    /// The piece that `to` would bring sooner than the peer it was requested from, by the largest
    /// margin.
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

    pub(super) fn send(&mut self, to: MemberId, message: Message) {
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
            Input::Regroup(members) => self.regroup(members),
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
