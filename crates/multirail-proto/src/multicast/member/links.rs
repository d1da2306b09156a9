//! The links of a member: which exist, which are being made, and which peers are banned.

use super::fault::Fault;
use super::item::LinkEnds;
use crate::multicast::members::MemberId;
use std::collections::{BTreeMap, BTreeSet};

/// The most broadcasts in progress in a group at a time.
pub(crate) const MAX_TRANSFERS: usize = 64;

/// What the machine knows about one link.
#[derive(Debug)]
pub(super) struct LinkRecord {
    /// Counts all links that this member ever had.
    pub number: u64,
    /// The peer's end, as the peer stated it.
    theirs: LinkEnds,
    /// When the last bytes arrived.
    pub heard_us: u64,
    /// Transfers that the peer is ready for; at most [`MAX_TRANSFERS`].
    ready: BTreeSet<u32>,
    /// Transfers that this host's node knows the peer is up for; a subset of `ready`.
    up: BTreeSet<u32>,
    /// Transfers whose manifest was sent over this link.
    manifests_sent: BTreeSet<u32>,
}

impl LinkRecord {
    /// Notes that the peer is ready for a transfer.
    pub(super) fn note_ready(&mut self, transfer: u32) -> Result<(), Fault> {
        if self.ready.len() >= MAX_TRANSFERS && !self.ready.contains(&transfer) {
            return Err(Fault::TooManyTransfers);
        }
        self.ready.insert(transfer);
        Ok(())
    }

    /// Marks the link as up for a transfer that the peer is ready for; whether that is new.
    pub(super) fn join(&mut self, transfer: u32) -> bool {
        self.ready.contains(&transfer) && self.up.insert(transfer)
    }

    /// Whether both ends take part in a transfer.
    pub(super) fn is_up(&self, transfer: u32) -> bool {
        self.up.contains(&transfer)
    }

    /// Marks the manifest as sent; whether it was not sent before.
    pub(super) fn mark_manifest_sent(&mut self, transfer: u32) -> bool {
        self.manifests_sent.insert(transfer)
    }

    /// The number of entries that the peer's messages have made.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.ready.len() + self.up.len() + self.manifests_sent.len()
    }

    /// Removes all traces of a transfer.
    pub(super) fn forget(&mut self, transfer: u32) {
        self.ready.remove(&transfer);
        self.up.remove(&transfer);
        self.manifests_sent.remove(&transfer);
    }
}

/// All links of a member. Every set holds numbers of members only, so its size is bounded by the
/// size of the group.
#[derive(Debug, Default)]
pub(super) struct LinkTable {
    links: BTreeMap<MemberId, LinkRecord>,
    dialling: BTreeSet<MemberId>,
    /// How many links to a peer were lost.
    downs: BTreeMap<MemberId, u32>,
    /// Peers whose link has ended once because they were silent.
    silent: BTreeSet<MemberId>,
    banned: BTreeSet<MemberId>,
    opened: u64,
}

impl LinkTable {
    /// Adds a link, which takes the place of an older one; its number.
    pub(super) fn open(&mut self, peer: MemberId, theirs: LinkEnds, now_us: u64) -> u64 {
        self.opened += 1;
        let number = self.opened;
        let (ready, up, manifests_sent) = Default::default();
        self.links.insert(peer, LinkRecord { number, theirs, heard_us: now_us, ready, up, manifests_sent });
        number
    }

    /// Removes a link and counts the loss; the link's number.
    pub(super) fn remove(&mut self, peer: MemberId) -> Option<u64> {
        let link = self.links.remove(&peer)?;
        *self.downs.entry(peer).or_default() += 1;
        Some(link.number)
    }

    /// Removes all links without counting losses.
    pub(super) fn clear(&mut self) {
        self.links.clear();
    }

    /// The link to `peer`.
    pub(super) fn get(&self, peer: MemberId) -> Option<&LinkRecord> {
        self.links.get(&peer)
    }

    /// The link to `peer`.
    pub(super) fn get_mut(&mut self, peer: MemberId) -> Option<&mut LinkRecord> {
        self.links.get_mut(&peer)
    }

    /// Whether there is a link to `peer`.
    pub(super) fn contains(&self, peer: MemberId) -> bool {
        self.links.contains_key(&peer)
    }

    /// The peers with a link.
    pub(super) fn peers(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.links.keys().copied()
    }

    /// The links with their peers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberId, &LinkRecord)> {
        self.links.iter().map(|(peer, link)| (*peer, link))
    }

    /// Removes all traces of a transfer.
    pub(super) fn forget_transfer(&mut self, transfer: u32) {
        self.links.values_mut().for_each(|link| link.forget(transfer));
    }

    /// Whether a link to `peer` exists that a session with `theirs` would duplicate. The peer
    /// states another incarnation, or more losses, when it knows that the old link is dead.
    pub(super) fn duplicates(&self, peer: MemberId, theirs: LinkEnds) -> bool {
        self.links
            .get(&peer)
            .is_some_and(|l| l.theirs.incarnation == theirs.incarnation && l.theirs.downs >= theirs.downs)
    }

    /// How many links to `peer` were lost.
    pub(super) fn downs(&self, peer: MemberId) -> u32 {
        self.downs.get(&peer).copied().unwrap_or(0)
    }

    /// Marks `peer` as being dialled; whether it was not.
    pub(super) fn begin_dial(&mut self, peer: MemberId) -> bool {
        self.dialling.insert(peer)
    }

    /// Marks `peer` as not being dialled any more.
    pub(super) fn end_dial(&mut self, peer: MemberId) {
        self.dialling.remove(&peer);
    }

    /// Whether `peer` is being dialled.
    pub(super) fn is_dialling(&self, peer: MemberId) -> bool {
        self.dialling.contains(&peer)
    }

    /// Bans `peer`; whether it was not banned.
    pub(super) fn ban(&mut self, peer: MemberId) -> bool {
        self.banned.insert(peer)
    }

    /// Whether `peer` is banned.
    pub(super) fn is_banned(&self, peer: MemberId) -> bool {
        self.banned.contains(&peer)
    }

    /// Notes that `peer` was silent; whether for the first time.
    pub(super) fn note_silent(&mut self, peer: MemberId) -> bool {
        self.silent.insert(peer)
    }
}
