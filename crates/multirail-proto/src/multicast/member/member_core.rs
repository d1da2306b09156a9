//! The core of a member: links, transfers, and what their nodes decide.
//!
//! [`Member`](super::Member) turns events into calls of this module, which turns them into actions.

use super::action::{Action, MemberConfig, Membership};
use super::forward::{self, ForwardTask};
use super::item::ControlItem;
use super::links::LinkTable;
use super::transfer::{Phase, Transfer};
use crate::multicast::members::{MemberId, Members};
use crate::multicast::node::{Input, Output};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The state that links and transfers share.
#[derive(Debug)]
pub(super) struct Core {
    pub config: MemberConfig,
    /// The hosts that are known now, those that joined later included, in the clusters that are known now.
    pub grouped: Arc<Members>,
    pub links: LinkTable,
    /// Manifests for peers that are being dialled.
    pub waiting_forwards: BTreeMap<MemberId, Vec<(u32, ForwardTask)>>,
    /// The broadcasts in progress; at most [`MAX_TRANSFERS`](super::MAX_TRANSFERS).
    pub transfers: BTreeMap<u32, Transfer>,
    /// Transfers below this number are over and forgotten.
    pub over_below: u32,
    pub membership: Membership,
    /// No timer fires before this time, so that a node that always wants to be woken at once does
    /// not keep the driver from its other work. Zero once a node has had other input.
    pub sleep_until_us: u64,
    pub actions: VecDeque<Action>,
    /// The buffer of `drive`, kept to reuse its memory.
    outputs: Vec<Output>,
}

impl Core {
    pub(super) fn new(config: MemberConfig) -> Self {
        Self {
            grouped: config.members.clone(),
            config,
            links: LinkTable::default(),
            waiting_forwards: BTreeMap::new(),
            transfers: BTreeMap::new(),
            over_below: 0,
            membership: Membership::Active,
            sleep_until_us: 0,
            actions: VecDeque::new(),
            outputs: Vec::new(),
        }
    }

    /// Whether no transfer with this number was ever known.
    pub(super) fn is_new(&self, number: u32) -> bool {
        !self.transfers.contains_key(&number) && number >= self.over_below
    }

    /// Whether `peer` is another member of the group.
    pub(super) fn is_other_member(&self, peer: MemberId) -> bool {
        peer != self.config.me && self.grouped.contains(peer)
    }

    /// Dials `peer` unless there is a link; whether there is or may be one.
    pub(super) fn connect(&mut self, peer: MemberId) -> bool {
        let is_refused = self.membership != Membership::Active || self.links.is_banned(peer);
        if is_refused || !self.is_other_member(peer) {
            return false;
        }
        if !self.links.contains(peer) && self.links.begin_dial(peer) {
            self.actions.push_back(Action::Dial(peer));
        }
        true
    }

    /// Removes the link to `peer`, if there is one, and all that was under way on it.
    pub(super) fn remove_link(&mut self, now_us: u64, peer: MemberId) {
        if let Some(link) = self.links.remove(peer) {
            self.actions.push_back(Action::EndLink { peer, link });
            self.transfers.values_mut().for_each(|t| t.forget_requests(peer));
            self.tell_nodes_down(now_us, peer);
        }
    }

    /// Tells every node that there is no link to `peer`.
    pub(super) fn tell_nodes_down(&mut self, now_us: u64, peer: MemberId) {
        let numbers: Vec<u32> = self.transfers.keys().copied().collect();
        for number in numbers {
            self.drive(now_us, number, Input::Down(peer));
        }
    }

    /// Sends a manifest on, as soon as there is a link.
    pub(super) fn forward(&mut self, number: u32, task: ForwardTask) {
        let ForwardTask { to, .. } = task;
        if let Some(link) = self.links.get_mut(to) {
            if link.mark_manifest_sent(number) {
                self.actions.push_back(Action::SendManifest { to, transfer: number, positions: task.positions });
            }
        } else if self.connect(to) {
            self.waiting_forwards.entry(to).or_default().push((number, task));
        } else {
            self.forward_instead(number, &task);
        }
    }

    /// Replaces a task whose receiver cannot be reached.
    pub(super) fn forward_instead(&mut self, number: u32, task: &ForwardTask) {
        for other in forward::instead(&self.config.members, self.config.me, task) {
            self.forward(number, other);
        }
    }

    /// Tells the node of `peer` once both hosts are ready for the transfer.
    pub(super) fn join(&mut self, now_us: u64, number: u32, peer: MemberId) {
        let is_running = self.transfers.get(&number).is_some_and(|t| t.node.is_some());
        if is_running && self.links.get_mut(peer).is_some_and(|l| l.join(number)) {
            self.drive(now_us, number, Input::Up(peer));
        }
    }

    /// Tells every node that the hosts or the clusters are others than were known.
    pub(super) fn regroup(&mut self, now_us: u64, members: Members) {
        if members == *self.grouped {
            return;
        }
        self.grouped = Arc::new(members);
        let numbers: Vec<u32> = self.transfers.keys().copied().collect();
        for number in numbers {
            self.drive(now_us, number, Input::Regroup(self.grouped.clone()));
        }
    }

    /// Gives `input` to the node of a transfer and turns its outputs into actions.
    pub(super) fn drive(&mut self, now_us: u64, number: u32, input: Input) {
        self.sleep_until_us = 0;
        let mut inputs = VecDeque::from([input]);
        let mut outputs = std::mem::take(&mut self.outputs);
        while let Some(input) = inputs.pop_front() {
            let Some(node) = self.transfers.get_mut(&number).and_then(|t| t.node.as_mut()) else { break };
            node.handle(now_us, input);
            outputs.extend(std::iter::from_fn(|| node.poll()));
            for output in outputs.drain(..) {
                if let Some(refused) = self.act(now_us, number, output) {
                    inputs.push_back(Input::Down(refused));
                }
            }
        }
        self.outputs = outputs;
    }

    /// Carries out what a node decided. Returns the peer of a link that cannot be made.
    fn act(&mut self, now_us: u64, number: u32, output: Output) -> Option<MemberId> {
        let transfer = self.transfers.get_mut(&number)?;
        let is_up = |peer| self.links.get(peer).is_some_and(|l| l.is_up(number));
        match output {
            Output::Connect(peer) => return (!self.connect(peer)).then_some(peer),
            Output::Send(to, message) if is_up(to) => {
                transfer.on_sent(now_us, to, &message);
                self.actions.push_back(Action::Send { to, item: ControlItem::Node(number, message) });
            }
            Output::Send(..) => {}
            Output::SendPiece(to, piece) => {
                let is_held = transfer.held.contains(piece);
                debug_assert!(is_held, "a node sends pieces that the host holds");
                if is_held && is_up(to) {
                    self.actions.push_back(Action::SendPiece { to, transfer: number, piece });
                }
            }
            Output::Withdraw(to, piece) => {
                transfer.on_settled(to, piece);
                self.actions.push_back(Action::Withdraw { to, transfer: number, piece });
            }
            Output::Finished => self.publish(),
        }
        None
    }

    /// Ends the running phase when every piece is stored.
    pub(super) fn finish_if_full(&mut self, number: u32) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        if transfer.held.is_full() && transfer.phase == Phase::Running {
            transfer.phase = Phase::Finishing;
            self.actions.push_back(Action::Finish(number));
            self.publish();
        }
    }

    /// Tells every peer of the transfers that are complete here and of which it has not been told. Peers need to
    /// know that only if they lose the coordinator. Said at once, it would delay small broadcasts, which are
    /// complete on some hosts before they have reached others.
    pub(super) fn tell_complete(&mut self) {
        let untold = |t: &Transfer| t.phase >= Phase::Finishing && !t.told_complete;
        let numbers: Vec<u32> = self.transfers.iter().filter(|(_, t)| untold(t)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.send_to_all(&ControlItem::Complete(number));
            self.transfers.entry(number).and_modify(|transfer| transfer.told_complete = true);
        }
    }

    /// Sends an item over every link.
    pub(super) fn send_to_all(&mut self, item: &ControlItem) {
        self.actions.extend(self.links.peers().map(|to| Action::Send { to, item: item.clone() }));
    }

    /// Asks the driver to publish changes, once in a row.
    pub(super) fn publish(&mut self) {
        if self.actions.back() != Some(&Action::Publish) {
            self.actions.push_back(Action::Publish);
        }
    }
}
