//! Shares that move: from hosts with much left to hosts with nothing left, and from hosts that died
//! to the next ones by rank.

use super::fetchers::{fetches, range, share};
use super::find::{self, next_in_rank};
use super::node::Adaptive;
use super::peer::AdaptivePeer;
use crate::multicast::members::MemberId;
use crate::multicast::message::Message;
use crate::multicast::node::Output;

/// A neighbour that had nothing to spare is asked again after this time.
const REFUSED_US: u64 = 300_000;
/// A neighbour is asked for what arrives in this time.
const BEGGED_S: f64 = 2.0;
/// A requested piece that arrives later than this may be given away.
const LATE_S: f64 = 1.0;

impl Adaptive {
    /// Asks the neighbour with the most left for a part of its share, if this host could fetch
    /// more.
    pub(super) fn beg(&mut self) {
        if self.begging.is_some() || !fetches(&self.members, self.me) {
            return;
        }
        let room: usize = self.peers.values().filter(|p| !p.local).map(|p| p.pipe.room()).sum();
        let left = self.mine.count_without(&self.busy) as usize;
        if left >= room || room == 0 {
            return;
        }
        let asleep = |refused: Option<u64>| refused.is_some_and(|at| at + REFUSED_US > self.now_us);
        let neighbours = self.peers.iter().filter(|(_, p)| p.local && !p.complete && !asleep(p.refused_us));
        // A piece that neither host holds is certainly not fetched yet. What the neighbour gave to others is unknown.
        let left_of = |id: MemberId, p: &AdaptivePeer| {
            let mut left = share(&self.members, id, self.pieces);
            p.fetching.iter().for_each(|piece| {
                left.insert(piece);
            });
            left.without(&p.has).filter(|p| !self.held.contains(*p)).count()
        };
        let most = neighbours.map(|(id, p)| (left_of(*id, p), *id)).max();
        if let Some((_, id)) = most {
            self.begging = Some(id);
            // What a host gets in a while, so that it need not ask for each piece.
            let soon = self.peers.values().filter(|p| !p.local).map(|p| p.pipe.rate_pieces_s()).sum::<f64>() * BEGGED_S;
            self.send(id, Message::Spare((room - left).max(soon as usize) as u32));
        }
    }

    /// Gives `to` half of what is left of the share, at most `wanted` pieces.
    pub(super) fn spare(&mut self, to: MemberId, wanted: u32) {
        if !self.is_local(to) {
            // Before it has learnt of other clusters, the peer takes this host for a neighbour.
            return self.send(to, Message::Take(Vec::new()));
        }
        let left = self.mine.count_without(&self.busy);
        let mut pieces: Vec<u32> = Vec::new();
        for _ in 0..left.div_ceil(2).min(wanted) {
            let Some(piece) = self.mine.pick(&[], &[&self.busy], &mut self.rng) else { break };
            self.mine.remove(piece);
            pieces.push(piece);
        }
        if pieces.is_empty() {
            pieces = self.take_back_late(wanted);
        }
        self.given.extend(pieces.iter().map(|p| (*p, to)));
        self.send(to, Message::Take(pieces));
    }

    /// Takes back the last piece of each slow queue.
    fn take_back_late(&mut self, wanted: u32) -> Vec<u32> {
        let mut late = Vec::new();
        for (id, peer) in self.peers.iter().filter(|(_, p)| !p.local) {
            let places = peer.pipe.asked().len();
            let last = peer.pipe.asked().next_back();
            if let Some(piece) = last.filter(|_| places > 2 && peer.pipe.wait_s(places - 1, self.now_us) > LATE_S) {
                late.push((*id, piece));
            }
        }
        late.truncate(wanted as usize);
        for (id, piece) in &late {
            if let Some(peer) = self.peers.get_mut(id) {
                peer.pipe.forget(*piece);
            }
            self.send(*id, Message::Cancel(vec![*piece]));
            self.release(*piece);
            self.mine.remove(*piece);
        }
        late.into_iter().map(|(_, piece)| piece).collect()
    }

    /// Takes pieces from a neighbour's share.
    pub(super) fn take(&mut self, from: MemberId, pieces: Vec<u32>) {
        if self.begging == Some(from) {
            self.begging = None;
        }
        if pieces.is_empty() {
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.refused_us = Some(self.now_us);
            }
            self.beg();
            return;
        }
        for piece in &pieces {
            self.taken.insert(*piece);
        }
        self.adopt(pieces);
    }

    /// Adds pieces to this host's share, and asks the peers in other clusters to report them.
    fn adopt(&mut self, pieces: Vec<u32>) {
        let new: Vec<u32> = pieces.into_iter().filter(|p| !self.held.contains(*p) && self.mine.insert(*p)).collect();
        if new.is_empty() {
            return;
        }
        if !self.fetches {
            // This host had no share so far. Peers in other clusters that look for it may be connected.
            self.fetches = true;
            let mut peers = find::elsewhere(&self.members, self.me, &mut self.rng);
            peers.retain(|peer| !self.peers.contains_key(peer));
            self.out.extend(peers.iter().map(|peer| Output::Connect(*peer)));
            self.wanted.extend(peers);
        }
        let ids: Vec<_> = self.peers.iter().filter(|(_, p)| !p.complete).map(|(id, p)| (*id, p.local)).collect();
        for (id, local) in ids {
            // A neighbour that finishes early asks this host for a part of them.
            self.send(id, if local { Message::Fetching(new.clone()) } else { Message::Watch(new.clone()) });
        }
        self.ask_everyone();
    }

    /// Asks a new peer in another cluster to report the pieces that are not in this host's own
    /// share.
    pub(super) fn watch_what_was_taken(&mut self, id: MemberId) {
        let own = share(&self.members, self.me, self.pieces);
        let taken: Vec<u32> = self.mine.without(&own).filter(|p| !self.held.contains(*p)).collect();
        if !taken.is_empty() {
            self.send(id, Message::Watch(taken));
        }
    }

    /// Host `gone` is down. Takes back what it was given, and takes over its share if this host is
    /// the next one that is up.
    pub(super) fn inherit(&mut self, gone: MemberId) {
        if !self.is_local(gone) {
            return;
        }
        if self.is_at_source(self.me) {
            // Without the root, its cluster is like the others: its hosts may hold pieces that this
            // one lacks.
            if gone == self.members.root() {
                let own = [self.me, gone].map(|host| range(&self.members, host, self.pieces));
                self.adopt(own.into_iter().flatten().collect());
            }
            return;
        }
        let mut back: Vec<u32> = self.given.iter().filter(|(_, to)| **to == gone).map(|(p, _)| *p).collect();
        back.iter().for_each(|p| {
            self.given.remove(p);
        });
        let mut heir = next_in_rank(&self.members, gone);
        while heir != self.me && heir != gone && self.down.contains(&heir) {
            heir = next_in_rank(&self.members, heir);
        }
        if heir == self.me {
            // Hosts with a lower rank may have died before, as its heirs or without notice.
            let mob = self.members.mob(self.me);
            let mut dead = gone;
            loop {
                back.extend(share(&self.members, dead, self.pieces).iter());
                dead = mob[(self.members.rank(dead) as usize + mob.len() - 1) % mob.len()];
                if dead == self.me || !self.down.contains(&dead) {
                    break;
                }
            }
            if dead != self.me && !self.peers.contains_key(&dead) {
                self.out.push_back(Output::Connect(dead));
            }
        }
        self.adopt(back);
    }
}
