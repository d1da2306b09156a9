//! More hosts of a cluster that fetch, where those that do are the limit.
//!
//! A few hosts of a cluster fetch from other clusters ([`super::fetchers`]). Where links between clusters are the limit,
//! more would be no faster, and pieces would arrive later. Where the hosts' own access is the limit, each host that
//! fetches adds its own rate. Nothing tells a host which is the case, so it tries: it gives a part of its share to a
//! neighbour, a *recruit*. If its own rate then stays, it gives parts to all its recruits. Not in a group of many clusters,
//! where more hosts were slower.

use super::fetchers::{fetches, has_many_clusters, is_fetcher, most};
use super::find::surely_wants;
use super::node::Adaptive;
use super::trial::{MEASURED_S, Measuring, Recruiting};
use crate::multicast::members::{MemberId, Members};
use crate::multicast::message::Message;

/// A rate is measured over as many pieces as all peers bring that answer this many requests each...
const MEASURED_OF_A_PEER: u32 = 4;
/// ... at least over this many pieces.
const MEASURED_PIECES: u32 = 12;
/// Twice as many hosts on one link have half the rate each. A rate above this part of the one before has stayed.
const STAYED: f64 = 0.8;
/// A recruit gets this many times the measured pieces at first, so that it does not finish while the rate is measured
/// again. A host that has not this many times as many left itself finishes before it knows more.
const TRIED: u32 = 2;

impl Adaptive {
    /// Gives parts of this host's share to its recruits, if that promises to be faster.
    pub(super) fn recruit(&mut self) {
        if !fetches(&self.members, self.me) || has_many_clusters(&self.members) {
            return;
        }
        let peers = self.peers.values().filter(|p| !p.local).count() as u32;
        let least = MEASURED_PIECES.max(MEASURED_OF_A_PEER * peers);
        match &mut self.recruiting {
            Recruiting::Before(measuring) => {
                let Some(before) = measuring.rate_pieces_s(least, self.now_us) else { return };
                self.recruiting = Recruiting::Over;
                let tried = TRIED * least.max((before * MEASURED_S) as u32);
                if self.mine.count_without(&self.busy) < TRIED * tried {
                    return;
                }
                if let Some(first) = self.recruits().first().copied() {
                    self.recruiting = Recruiting::Trial { before, first, measuring: Measuring::default() };
                    self.give_last(first, tried);
                }
            }
            Recruiting::Trial { before, first, measuring } => {
                let Some(peer) = self.peers.get(first) else { return };
                if !self.given.iter().any(|(piece, to)| to == first && peer.has.contains(*piece)) {
                    // Until then, the recruit takes nothing from any link.
                    *measuring = Measuring::default();
                    return;
                }
                let Some(rate) = measuring.rate_pieces_s(least, self.now_us) else { return };
                let stayed = rate > STAYED * *before;
                self.recruiting = Recruiting::Over;
                if stayed {
                    let recruits = self.recruits();
                    let part = self.mine.count_without(&self.busy) / (recruits.len() as u32 + 1);
                    recruits.into_iter().for_each(|id| self.give_last(id, part));
                }
            }
            Recruiting::Over => {}
        }
    }

    /// The hosts that this one may recruit, by rank: neighbours that fetch nothing. Of several hosts that could recruit
    /// one, only one does.
    fn recruits(&self) -> Vec<MemberId> {
        let recruits = self
            .peers
            .iter()
            .filter(|(id, p)| p.local && !p.complete && recruiter(&self.members, **id) == Some(self.me));
        recruits.map(|(id, _)| *id).collect()
    }

    /// Gives the last `count` pieces of what is left of the share, so that hosts of the same rank in other clusters get
    /// the same ones. Such hosts tell each other what they fetch.
    fn give_last(&mut self, to: MemberId, count: u32) {
        let left: Vec<u32> = self.mine.without(&self.busy).collect();
        let pieces = left[left.len().saturating_sub(count as usize)..].to_vec();
        for piece in &pieces {
            self.mine.remove(*piece);
            self.given.insert(*piece, to);
        }
        self.send(to, Message::Take(pieces));
    }
}

/// The host that may recruit `member`.
fn recruiter(members: &Members, member: MemberId) -> Option<MemberId> {
    let mob = members.mob(member);
    let fetchers = most(members, mob.len());
    if is_fetcher(members, member) {
        return None;
    }
    let near = mob.iter().take(fetchers).copied().filter(|f| surely_wants(members, *f, member));
    near.min_by_key(|f| (members.rank(member) - members.rank(*f)) as usize % fetchers)
}
