//! The state machine of a member: its events, timers and reports.

#[cfg(test)]
mod tests;

use super::action::{Action, Admission, MemberConfig, Membership, TransferStatus};
use super::fault::Fault;
use super::forward::{self, ForwardTask};
use super::item::{ControlItem, LinkEnds};
use super::links::MAX_TRANSFERS;
use super::member_core::Core;
use super::transfer::{Phase, Transfer};
use crate::multicast::members::{MemberId, Members};
use crate::multicast::method::{Nodes, early_calls};
use crate::multicast::method_name::Method;
use crate::multicast::node::Input;
use crate::multicast::pieces::{PieceSet, Pieces};
use std::collections::{BTreeMap, BTreeSet};

/// How often the machine looks after silent links and missing manifests, and tells what is complete.
pub(super) const CHECK_EVERY_US: u64 = 1_500_000;
/// A link without any arrival for this long is dead: the peer's kernel answers, its process hangs.
pub(super) const LINK_TIMEOUT_US: u64 = 20_000_000;
/// How often a member sends a heartbeat on every link.
pub(super) const ALIVE_EVERY_US: u64 = 5_000_000;
/// At every attempt with this multiple, the root is asked for the manifest instead of a host of the
/// own cluster.
const ASK_ROOT_EVERY: u32 = 3;
/// The pause after a due timer, so that a node that always wants to be woken at once does not keep
/// the driver from its other work.
const MIN_SLEEP_US: u64 = 1_000;
/// Without its coordinator, a member stays until nothing has arrived for this long.
pub(super) const ALONE_TIMEOUT_US: u64 = 60_000_000;
/// The most complaints about peers that a member reports.
pub(super) const MAX_COMPLAINTS: usize = 64;

/// One host's part in a group. See the [module](super) for the order of calls.
#[derive(Debug)]
pub struct Member {
    core: Core,
    complaints: Vec<(MemberId, String)>,
    /// Peers that hold every piece, by transfer; at most [`MAX_TRANSFERS`] transfers.
    complete: BTreeMap<u32, BTreeSet<MemberId>>,
    began_us: u64,
    /// When anything arrived from any member.
    heard_us: u64,
    /// Attempts to get a manifest since the last one arrived.
    asked: u32,
    check_at_us: u64,
    alive_at_us: u64,
}

impl Member {
    /// A member that begins its part at `now_us`. It dials at once the peers that it will surely
    /// need: its children in the manifests' tree and those that the method names.
    pub fn new(config: MemberConfig, now_us: u64) -> Self {
        let mut member = Self {
            core: Core::new(config),
            complaints: Vec::new(),
            complete: BTreeMap::new(),
            began_us: now_us,
            heard_us: now_us,
            asked: 0,
            check_at_us: now_us + CHECK_EVERY_US,
            alive_at_us: now_us + ALIVE_EVERY_US,
        };
        let MemberConfig { members, me, method, seed, .. } = &member.core.config;
        let children = forward::expected(members, *me).into_iter().map(|task| task.to);
        let peers: BTreeSet<MemberId> = children.chain(early_calls(*method, members, *me, *seed)).collect();
        for peer in peers {
            member.core.connect(peer);
        }
        member
    }

    /// This host joins a group that may have begun a broadcast: it asks for manifests at once.
    pub fn handle_join(&mut self) {
        self.ask_for_manifest();
    }

    /// The next thing that the driver carries out.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.actions.pop_front()
    }

    /// When to call [`Member::handle_timeout`]. `None`: never again, since the host has left or
    /// failed.
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.core.membership != Membership::Active {
            return None;
        }
        let wakes = self.core.transfers.values().filter_map(|t| t.node.as_ref()?.wake_at_us());
        Some(wakes.fold(self.check_at_us, u64::min).max(self.core.sleep_until_us))
    }

    /// Whether the host takes part.
    pub fn membership(&self) -> &Membership {
        &self.core.membership
    }

    /// The peers that broke the rules, and how; at most 64.
    pub fn complaints(&self) -> &[(MemberId, String)] {
        &self.complaints
    }

    /// The progress of the latest broadcast. `None`: this host knows of none.
    pub fn status(&self) -> Option<TransferStatus> {
        let (number, transfer) = self.core.transfers.iter().next_back()?;
        // Inline data counts when it is in its place.
        let is_counted = transfer.node.is_some() || transfer.phase == Phase::Done;
        Some(TransferStatus {
            transfer: *number,
            held_bytes: if is_counted { transfer.held_bytes } else { 0 },
            resumed_bytes: transfer.resumed_bytes,
            received_bytes: transfer.received_bytes.iter().map(|(peer, bytes)| (*peer, *bytes)).collect(),
            is_done: transfer.phase == Phase::Done,
        })
    }

    /// Whether this host and every linked peer hold every piece of every broadcast, and there is
    /// one.
    pub fn is_over(&self) -> bool {
        let all_complete = |number: &u32| {
            let complete = self.complete.get(number);
            self.core.links.peers().all(|peer| complete.is_some_and(|c| c.contains(&peer)))
        };
        !self.core.transfers.is_empty()
            && self.core.transfers.iter().all(|(n, t)| t.phase == Phase::Done && all_complete(n))
    }

    /// Whether a member without a coordinator has nothing left to wait for.
    pub fn may_end_alone(&self, now_us: u64) -> bool {
        let is_silent = now_us.saturating_sub(self.heard_us) >= ALONE_TIMEOUT_US;
        self.core.membership != Membership::Active || self.is_over() || is_silent
    }

    /// This host's end of a link to `peer`, for a hello or the answer to one.
    pub fn link_ends(&self, peer: MemberId) -> LinkEnds {
        LinkEnds { incarnation: self.core.config.incarnation, downs: self.core.links.downs(peer) }
    }

    /// Decides about a session from `peer`, which states its end as `theirs`.
    pub fn handle_hello(&self, peer: MemberId, theirs: LinkEnds) -> Admission {
        let refused = |why: &str| Admission::Refused(why.to_owned());
        if !self.core.is_other_member(peer) {
            return refused("no other member of the group has this number");
        }
        match &self.core.membership {
            Membership::Active if self.core.links.is_banned(peer) => return refused("this host has banned the peer"),
            Membership::Active => {}
            Membership::Left => return refused("this host has left the group"),
            Membership::Failed(why) => return refused(why),
        }
        // Of two hosts that dial each other at once, the session of the lower number is kept.
        let dials_itself = self.core.links.is_dialling(peer) && self.core.config.me < peer;
        if self.core.links.duplicates(peer, theirs) || dials_itself {
            return Admission::Duplicate;
        }
        Admission::Welcome(self.link_ends(peer))
    }

    /// A session with `peer` is open; `theirs` is what the peer stated of its end. Returns the
    /// number of the link, which replaces an older one. `None`: the driver drops the session.
    pub fn handle_link_up(&mut self, now_us: u64, peer: MemberId, theirs: LinkEnds, dialled: bool) -> Option<u64> {
        if dialled {
            self.core.links.end_dial(peer);
        }
        let is_welcome = self.core.membership == Membership::Active && !self.core.links.is_banned(peer);
        // If both hosts dialled, the other session may have been admitted meanwhile.
        if !is_welcome || !self.core.is_other_member(peer) || self.core.links.duplicates(peer, theirs) {
            return None;
        }
        self.core.remove_link(now_us, peer);
        let number = self.core.links.open(peer, theirs, now_us);
        for (transfer, state) in &self.core.transfers {
            if state.node.is_some() {
                self.core.actions.push_back(Action::Send { to: peer, item: ControlItem::Ready(*transfer) });
            }
            if state.phase >= Phase::Finishing {
                self.core.actions.push_back(Action::Send { to: peer, item: ControlItem::Complete(*transfer) });
            }
        }
        if self.core.transfers.is_empty() && self.asked > 0 {
            self.core.actions.push_back(Action::Send { to: peer, item: ControlItem::Ask });
        }
        for (transfer, task) in self.core.waiting_forwards.remove(&peer).unwrap_or_default() {
            self.core.forward(transfer, task);
        }
        self.core.publish();
        Some(number)
    }

    /// A dial to `peer` has failed, or the peer was to dial this host and did not.
    pub fn handle_dial_failed(&mut self, now_us: u64, peer: MemberId) {
        self.core.links.end_dial(peer);
        if self.core.links.contains(peer) {
            return;
        }
        for (transfer, task) in self.core.waiting_forwards.remove(&peer).unwrap_or_default() {
            self.core.forward_instead(transfer, &task);
        }
        self.core.tell_nodes_down(now_us, peer);
    }

    /// Link number `link` to `peer` has ended. With a `fault`, the peer is banned.
    pub fn handle_link_down(&mut self, now_us: u64, peer: MemberId, link: u64, fault: Option<&str>) {
        if self.core.links.get(peer).is_none_or(|l| l.number != link) {
            return;
        }
        if let Some(fault) = fault
            && self.core.links.ban(peer)
            && self.complaints.len() < MAX_COMPLAINTS
        {
            self.complaints.push((peer, fault.to_owned()));
        }
        self.core.remove_link(now_us, peer);
        self.core.publish();
    }

    /// The latest arrival of bytes on link number `link` was at `heard_us`.
    pub fn handle_heard(&mut self, peer: MemberId, link: u64, heard_us: u64) {
        if let Some(record) = self.core.links.get_mut(peer).filter(|l| l.number == link) {
            record.heard_us = record.heard_us.max(heard_us);
        }
    }

    /// An item arrived from `peer`.
    ///
    /// # Errors
    ///
    /// The [`Fault`] of the peer, after which the driver ends its link.
    pub fn handle_item(&mut self, now_us: u64, peer: MemberId, item: ControlItem) -> Result<(), Fault> {
        self.heard_us = now_us;
        match item {
            ControlItem::Alive => {}
            ControlItem::Ready(number) => {
                let is_over = number < self.core.over_below;
                let Some(link) = self.core.links.get_mut(peer).filter(|_| !is_over) else { return Ok(()) };
                link.note_ready(number)?;
                self.core.join(now_us, number, peer);
            }
            ControlItem::Node(number, message) => {
                let seconds = now_us.saturating_sub(self.began_us) / 1_000_000;
                let Some(transfer) = self.core.transfers.get_mut(&number) else { return Ok(()) };
                transfer.on_message(peer, &message, seconds)?;
                if self.core.links.get(peer).is_some_and(|l| l.is_up(number)) {
                    self.core.drive(now_us, number, Input::Message(peer, message));
                }
            }
            ControlItem::Complete(number) if number < self.core.over_below => {}
            ControlItem::Complete(number) => {
                let known = self.complete.len();
                match self.complete.get_mut(&number) {
                    Some(complete) => drop(complete.insert(peer)),
                    None if known < MAX_TRANSFERS => drop(self.complete.insert(number, BTreeSet::from([peer]))),
                    None => return Err(Fault::TooManyTransfers),
                }
                self.core.publish();
            }
            ControlItem::Ask => {
                let numbers: Vec<u32> = self.core.transfers.keys().copied().collect();
                for number in numbers {
                    self.core.forward(number, ForwardTask { to: peer, positions: Vec::new() });
                }
            }
        }
        Ok(())
    }

    /// `peer` offers the manifest of a transfer, with this number of tree positions. Returns
    /// whether this host wants it: then the driver verifies it and calls
    /// [`Member::handle_manifest`].
    ///
    /// # Errors
    ///
    /// The [`Fault`] of the peer, after which the driver ends its link.
    pub fn handle_manifest_offer(&mut self, now_us: u64, number: u32, positions: usize) -> Result<bool, Fault> {
        if positions > self.core.config.members.mob(self.core.config.me).len() {
            return Err(Fault::TooManyPositions);
        }
        self.heard_us = now_us;
        if !self.core.is_new(number) || self.core.membership != Membership::Active {
            return Ok(false);
        }
        if self.core.transfers.len() >= MAX_TRANSFERS {
            return Err(Fault::TooManyTransfers);
        }
        self.asked = 0;
        Ok(true)
    }

    /// A verified manifest arrived from `peer`, with `inline_bytes` of data, which are all or none.
    /// The host forwards it to the children of `positions`. Returns whether the transfer is new:
    /// then the driver opens a store and calls [`Member::handle_store_open`].
    pub fn handle_manifest(
        &mut self,
        peer: MemberId,
        number: u32,
        pieces: Pieces,
        inline_bytes: u64,
        positions: &[u32],
    ) -> bool {
        if !self.core.is_new(number) || self.core.transfers.len() >= MAX_TRANSFERS {
            return false;
        }
        let is_inline = pieces.count() == 0 || inline_bytes > 0;
        let mut transfer = Transfer::new(pieces, is_inline);
        *transfer.received_bytes.entry(peer).or_default() += inline_bytes;
        self.core.transfers.insert(number, transfer);
        for task in forward::onward(&self.core.config.members, self.core.config.me, positions) {
            self.core.forward(number, task);
        }
        true
    }

    /// This host is the root and begins a broadcast. With `is_inline`, the data travels with its
    /// manifest.
    pub fn handle_broadcast(&mut self, now_us: u64, number: u32, pieces: Pieces, held: PieceSet, is_inline: bool) {
        let is_inline = is_inline || pieces.count() == 0;
        self.core.transfers.insert(number, Transfer::new(pieces, is_inline));
        for task in forward::from_root(&self.core.config.members) {
            self.core.forward(number, task);
        }
        self.handle_store_open(now_us, number, held);
    }

    /// The store of a transfer is open and holds the pieces `held`.
    pub fn handle_store_open(&mut self, now_us: u64, number: u32, held: PieceSet) {
        let Some(transfer) = self.core.transfers.get_mut(&number) else { return };
        transfer.open(held);
        if !transfer.is_inline {
            let MemberConfig { me, method, bandwidths, seed, .. } = &self.core.config;
            match Nodes::new(*method, self.core.grouped.clone(), transfer.pieces, *seed, bandwidths.as_ref()) {
                Ok(nodes) => transfer.node = Some(nodes.node(*me, transfer.held.clone())),
                Err(error) => return self.handle_failure(error.to_string()),
            }
            self.core.send_to_all(&ControlItem::Ready(number));
            self.core.drive(now_us, number, Input::Start);
            let peers: Vec<MemberId> = self.core.links.peers().collect();
            for peer in peers {
                self.core.join(now_us, number, peer);
            }
        }
        self.core.finish_if_full(number);
        self.core.publish();
    }

    /// Every piece of a transfer is stored under its final name.
    pub fn handle_finished(&mut self, number: u32) {
        if let Some(transfer) = self.core.transfers.get_mut(&number) {
            transfer.phase = Phase::Done;
        }
        self.core.publish();
    }

    /// The first byte of a piece arrives from `peer`. Returns whether to keep the piece.
    ///
    /// # Errors
    ///
    /// The [`Fault`] of the peer, after which the driver ends its link.
    pub fn handle_piece_start(&mut self, peer: MemberId, number: u32, piece: u32) -> Result<bool, Fault> {
        let only_requested = matches!(self.core.config.method, Method::Mob | Method::Bittorrent);
        let Some(transfer) = self.core.transfers.get_mut(&number) else { return Ok(false) };
        transfer.on_piece_start(peer, piece, only_requested)
    }

    /// `bytes` of a piece arrived from `peer`.
    pub fn handle_bytes(&mut self, now_us: u64, peer: MemberId, number: u32, bytes: u64) {
        self.heard_us = now_us;
        if let Some(transfer) = self.core.transfers.get_mut(&number) {
            transfer.on_bytes(now_us, peer, bytes);
        }
    }

    /// A piece from `peer` was verified and stored.
    pub fn handle_stored(&mut self, now_us: u64, peer: MemberId, number: u32, piece: u32) {
        let Some(transfer) = self.core.transfers.get_mut(&number) else { return };
        let is_new = transfer.hold(piece);
        self.core.drive(now_us, number, Input::Stored { from: peer, piece });
        if is_new {
            self.core.finish_if_full(number);
        }
    }

    /// The bytes that `peer` sent for a piece do not have its hash. The driver ends the link after
    /// this.
    pub fn handle_bad_piece(&mut self, now_us: u64, peer: MemberId, number: u32, piece: u32) {
        self.core.drive(now_us, number, Input::Bad { from: peer, piece });
    }

    /// The last byte of a piece went to `peer`'s session.
    pub fn handle_sent(&mut self, now_us: u64, peer: MemberId, number: u32, piece: u32) {
        if let Some(transfer) = self.core.transfers.get_mut(&number) {
            transfer.on_settled(peer, piece);
            self.core.drive(now_us, number, Input::Sent { to: peer, piece });
        }
    }

    /// The clusters are others than were known so far, or hosts have joined, which have the highest numbers;
    /// whether these are clusters of this group. Running broadcasts go on with them. Manifests still travel
    /// as the first clusters have it, which every host knows at the same time. A host that joins asks for
    /// them.
    pub fn handle_regroup(&mut self, now_us: u64, members: Members) -> bool {
        let known = &self.core.grouped;
        let is_same_group = members.count() >= known.count() && members.root() == known.root();
        if !is_same_group || self.core.config.method != Method::Adaptive {
            return false;
        }
        self.core.regroup(now_us, members);
        true
    }

    /// All transfers below `number` are over and are forgotten.
    pub fn handle_over(&mut self, number: u32) {
        let over = std::mem::take(&mut self.core.transfers);
        for (transfer, state) in over {
            if transfer < number {
                self.core.links.forget_transfer(transfer);
            } else {
                self.core.transfers.insert(transfer, state);
            }
        }
        self.complete = self.complete.split_off(&number);
        self.core.over_below = self.core.over_below.max(number);
    }

    /// The host leaves the group: links close after sending what is queued.
    pub fn handle_leave(&mut self) {
        if self.core.membership == Membership::Active {
            self.core.membership = Membership::Left;
        }
        self.core.actions.push_back(Action::CloseLinks);
        self.core.publish();
    }

    /// The host cannot take part any more. Links end at once.
    pub fn handle_failure(&mut self, why: String) {
        if self.core.membership == Membership::Active {
            self.core.membership = Membership::Failed(why);
        }
        self.core.links.clear();
        self.core.transfers.values_mut().for_each(|t| t.node = None);
        self.core.actions.push_back(Action::EndLinks);
        self.core.publish();
    }

    /// Wakes nodes whose time has come, sends heartbeats, ends silent links, and asks for
    /// manifests. The driver calls [`Member::handle_heard`] for its links before.
    pub fn handle_timeout(&mut self, now_us: u64) {
        if self.core.membership != Membership::Active {
            return;
        }
        let is_due = |t: &Transfer| t.node.as_ref().and_then(|node| node.wake_at_us()).is_some_and(|at| at <= now_us);
        let due: Vec<u32> = self.core.transfers.iter().filter(|(_, t)| is_due(t)).map(|(number, _)| *number).collect();
        for number in &due {
            self.core.drive(now_us, *number, Input::Wake);
        }
        if now_us >= self.check_at_us {
            self.check_at_us = now_us + CHECK_EVERY_US;
            self.core.tell_complete();
            self.end_silent_links(now_us);
            if now_us >= self.alive_at_us {
                self.alive_at_us = now_us + ALIVE_EVERY_US;
                self.core.send_to_all(&ControlItem::Alive);
            }
            self.ask_for_manifest();
        }
        self.core.sleep_until_us = if due.is_empty() { 0 } else { now_us + MIN_SLEEP_US };
    }

    /// Ends links to peers that do not answer. After the first silence a peer may make a new link:
    /// its process may have been stopped. After the second it is banned.
    fn end_silent_links(&mut self, now_us: u64) {
        let timeout_us = self.core.config.answer_timeout_us;
        let owes = |peer| self.core.transfers.values().any(|t| t.silence_us(now_us, peer) > timeout_us);
        let is_dead = |heard_us: u64| now_us.saturating_sub(heard_us) > LINK_TIMEOUT_US;
        let silent = self.core.links.iter().filter(|(peer, link)| is_dead(link.heard_us) || owes(*peer));
        let silent: Vec<(MemberId, u64)> = silent.map(|(peer, link)| (peer, link.number)).collect();
        for (peer, link) in silent {
            let fault = (!self.core.links.note_silent(peer)).then(|| Fault::Silent.to_string());
            self.handle_link_down(now_us, peer, link, fault.as_deref());
        }
    }

    /// Asks for manifests while none is known. Hosts of the own cluster come first, so that a
    /// manifest does not cross the networks between clusters again.
    fn ask_for_manifest(&mut self) {
        let MemberConfig { me, members, seed, .. } = &self.core.config;
        if !self.core.transfers.is_empty() || *me == members.root() || self.core.membership != Membership::Active {
            return;
        }
        self.asked += 1;
        let near: Vec<MemberId> = members.mob(*me).iter().copied().filter(|member| member != me).collect();
        let at = (*seed as usize).wrapping_add(*me as usize + self.asked as usize);
        let asks_root = self.asked.is_multiple_of(ASK_ROOT_EVERY) || near.is_empty();
        let peer = if asks_root { members.root() } else { near[at % near.len()] };
        self.core.send_to_all(&ControlItem::Ask);
        self.core.connect(peer);
    }
}
