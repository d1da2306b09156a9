//! Other clusters than were thought: shares, peers and what they are told follow them.

use super::fetchers::{fetches, share};
use super::node::Adaptive;
use super::relays;
use super::spread::for_others;
use super::trial::Recruiting;
use crate::multicast::members::{MemberId, Members};
use crate::multicast::message::Message;
use std::sync::Arc;

impl Adaptive {
    /// Goes on with the clusters of `members`, which are the same hosts.
    ///
    /// Requests under way stay, except those to a host that was thought to be next to the root and is not.
    /// Every share begins anew. What neighbours gave to this host stays in its share, since they may have
    /// learnt of the clusters before; so a piece can be in two shares, but never in none.
    pub(super) fn regroup(&mut self, members: Arc<Members>) {
        self.members = members;
        self.mine = share(&self.members, self.me, self.pieces);
        self.part = relays::part(&self.members, self.me, self.pieces);
        for piece in self.taken.without(&self.held) {
            self.mine.insert(piece);
        }
        self.fetches = fetches(&self.members, self.me);
        self.recruiting = Recruiting::new();
        self.begging = None;
        let ids: Vec<MemberId> = self.peers.keys().copied().collect();
        for id in ids {
            self.regroup_peer(id);
        }
        let gone: Vec<MemberId> = self.down.iter().copied().collect();
        gone.into_iter().for_each(|id| self.inherit(id));
        self.find_peers();
        self.ask_everyone();
    }

    fn regroup_peer(&mut self, id: MemberId) {
        let (local, at_source) = (self.is_local(id), self.is_at_source(id));
        let presumes = at_source && !self.is_at_source(self.me);
        let watch = share(&self.members, id, self.pieces);
        let first = relays::first(&self.members, id, self.pieces);
        let for_others = for_others(&self.members, self.me, id, self.pieces);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.first = first;
        peer.for_others = for_others;
        let vain: Vec<u32> = peer.regroup(local, at_source, &watch, presumes);
        if !vain.is_empty() {
            vain.iter().for_each(|piece| self.release(*piece));
            self.send(id, Message::Cancel(vain));
        }
        // As a neighbour, the peer has been told of every piece. In another cluster, only of its share.
        if !self.held.is_full() && !self.held.is_empty() {
            let bits = self.held.to_bytes();
            self.send(id, Message::Bitfield(bits));
        }
        if !local {
            self.watch_what_was_taken(id);
        }
    }
}
