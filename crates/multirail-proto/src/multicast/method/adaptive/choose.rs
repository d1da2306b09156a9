//! Which piece is requested of a peer.

use super::node::Adaptive;
use crate::multicast::members::MemberId;
use crate::multicast::pieces::PieceSet;

impl Adaptive {
    /// The piece to request of `from` next.
    pub(super) fn choose_piece(&mut self, from: MemberId) -> Option<u32> {
        match self.is_local(from) {
            true if from == self.members.root() && !self.stuck => self.choose_from_root(from),
            true => self.choose_from_neighbour(from),
            false => self.choose_from_elsewhere(from),
        }
    }

    /// The root sends a piece to one neighbour, which passes it on: pieces that other clusters wait for, and those of
    /// this host's part. A host that waits for nothing asks for any piece, since another relay may be slow or down.
    fn choose_from_root(&mut self, root: MemberId) -> Option<u32> {
        let has = &self.peers.get(&root)?.has;
        let mut not = vec![&self.busy];
        not.extend(self.peers.iter().filter(|(id, p)| **id != root && p.local).map(|(_, p)| &p.has));
        let mut waiting = self.peers.values().filter(|p| !p.local);
        let asked = waiting.find_map(|p| p.waits.pick(&[has], &not, &mut self.rng));
        asked.or_else(|| self.part.pick(&[has], &not, &mut self.rng))
    }

    fn choose_from_neighbour(&mut self, from: MemberId) -> Option<u32> {
        let peer = self.peers.get(&from)?;
        // A host that waits for nothing asks for any piece, since the neighbour that is to pass it on may be slow or down.
        let busy = if self.stuck { vec![&self.busy] } else { vec![&self.busy, &peer.for_others] };
        if self.is_at_source(self.me) {
            // Pieces that other clusters are waiting for come first. In other clusters, the share of this host has
            // its own way in.
            let mut waiting = self.peers.values().filter(|p| !p.local);
            let asked = waiting.find_map(|p| peer.has.pick(&[&p.waits], &busy, &mut self.rng));
            let mut waiting = self.peers.values().filter(|p| !p.local);
            let wanted = asked.or_else(|| waiting.find_map(|p| peer.has.pick(&[&p.watch], &busy, &mut self.rng)));
            if wanted.is_some() {
                return wanted;
            }
        }
        // Pieces that no other neighbour holds come first: they have the longest way to go in this cluster.
        let root = self.members.root();
        let mut not = busy.clone();
        let others = self.peers.iter().filter(|(id, p)| **id != from && **id != root && p.local && !p.complete);
        not.extend(others.map(|(_, p)| &p.has));
        let rare = peer.has.pick(&[], &not, &mut self.rng);
        rare.or_else(|| peer.has.pick(&[], &busy, &mut self.rng))
    }

    fn choose_from_elsewhere(&mut self, from: MemberId) -> Option<u32> {
        let peer = self.peers.get(&from)?;
        // A piece that a neighbour holds is in the cluster already, while the neighbour is up.
        let mut not = vec![&self.busy];
        not.extend(self.peers.values().filter(|p| p.local).map(|p| &p.has));
        let here = not.len();
        // Rarest first: pieces that no other cluster holds or fetches, then pieces that are only
        // being fetched, then the rest.
        let others = || self.peers.iter().filter(|(id, p)| **id != from && !p.local && !p.at_source).map(|(_, p)| p);
        not.extend(others().map(|p| &p.has));
        let held_elsewhere = not.len();
        not.extend(others().map(|p| &p.fetching));
        // Among these, a relay's own part comes first.
        let first = peer.first.pick(&[&self.mine, &peer.has], &not, &mut self.rng);
        let pick = |not: &[&PieceSet], rng: &mut _| peer.has.pick(&[&self.mine], not, rng);
        first
            .or_else(|| pick(&not, &mut self.rng))
            .or_else(|| pick(&not[..held_elsewhere], &mut self.rng))
            .or_else(|| pick(&not[..here], &mut self.rng))
    }
}
