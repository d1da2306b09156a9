//! What the driver answers to its links.

use super::MemberDriver;
use crate::link::{LinkHandle, LinkOwner, Next};
use crate::pass::Pass;
use crate::store::Store;
use crate::wire::{PeerHello, PeerReply};
use multirail_net::{Config, Error, PublicKey, Session};
use multirail_proto::multicast::MemberId;
use multirail_proto::multicast::member::{Admission, ControlItem, Fault, LinkEnds};
use std::sync::Arc;

impl LinkOwner for MemberDriver {
    fn hello(&self, peer: MemberId) -> PeerHello {
        let ends = self.lock().machine.link_ends(peer);
        PeerHello { group: self.id, from: self.me, ends, pass: self.passes.own.clone() }
    }

    fn knows(&self, peer: MemberId) -> bool {
        (peer as usize) < self.lock().addresses.len()
    }

    fn is_member(&self, peer: MemberId, key: PublicKey, pass: &Pass) -> bool {
        self.passes.is_member(peer, key, pass)
    }

    fn address(&self, peer: MemberId) -> String {
        self.lock().addresses.get(peer as usize).cloned().unwrap_or_default()
    }

    fn session_config(&self) -> &Config {
        &self.config
    }

    fn admit(&self, peer: MemberId, theirs: LinkEnds) -> PeerReply {
        match self.lock().machine.handle_hello(peer, theirs) {
            Admission::Welcome(ends) => PeerReply::Welcome(ends, self.passes.own.clone()),
            Admission::Duplicate => PeerReply::Duplicate,
            Admission::Refused(why) => PeerReply::Refused(why),
        }
    }

    fn link_up(&self, peer: MemberId, session: Session, theirs: LinkEnds, dialled: bool) {
        let Some(owner) = self.this.upgrade() else { return };
        let mut core = self.lock();
        let number = core.machine.handle_link_up(self.now_us(), peer, theirs, dialled);
        if let Some(number) = number {
            tracing::debug!(me = self.me, peer, dialled, "link up");
            let link = LinkHandle::start(owner, &self.runtime, peer, number, session);
            core.links.insert(peer, link);
        }
        self.carry_out(&mut core);
    }

    fn dial_failed(&self, peer: MemberId, why: &str) {
        tracing::debug!(me = self.me, peer, why, "no link");
        self.with_machine(|machine, now_us| machine.handle_dial_failed(now_us, peer));
    }

    fn link_down(&self, peer: MemberId, link: u64, why: &str, is_fault: bool) {
        tracing::debug!(me = self.me, peer, why, is_fault, "link down");
        self.with_machine(|machine, now_us| machine.handle_link_down(now_us, peer, link, is_fault.then_some(why)));
    }

    fn fail(&self, why: String) {
        Self::fail(self, why);
    }

    fn next(&self, peer: MemberId, link: u64) -> Option<Result<Next, Error>> {
        let mut core = self.lock();
        core.links.get_mut(&peer).filter(|l| l.number() == link).map(LinkHandle::next)
    }

    fn advance(&self, peer: MemberId, link: u64, sent_bytes: Option<u32>) {
        let mut core = self.lock();
        if let Some(link) = core.links.get_mut(&peer).filter(|l| l.number() == link) {
            link.advance(sent_bytes);
        }
    }

    fn sent(&self, peer: MemberId, transfer: u32, piece: u32) {
        self.with_machine(|machine, now_us| machine.handle_sent(now_us, peer, transfer, piece));
    }

    fn store(&self, transfer: u32, piece: u32) -> Option<(Arc<dyn Store>, u32)> {
        let core = self.lock();
        let transfer = core.transfers.get(&transfer)?;
        let range = transfer.pieces.range(piece);
        Some((transfer.store.clone()?, (range.end - range.start) as u32))
    }

    fn control_item(&self, peer: MemberId, item: ControlItem) -> Result<(), Fault> {
        self.with_machine(|machine, now_us| machine.handle_item(now_us, peer, item))
    }

    fn manifest(&self, peer: MemberId, frame: &[u8]) -> Result<(), String> {
        self.receive_manifest(peer, frame)
    }

    fn piece_start(&self, peer: MemberId, number: u32, piece: u32) -> Result<Option<Arc<dyn Store>>, Fault> {
        let mut core = self.lock();
        let is_kept = core.machine.handle_piece_start(peer, number, piece)?;
        Ok(core.transfers.get(&number).and_then(|t| t.store.clone()).filter(|_| is_kept))
    }

    fn bytes_received(&self, peer: MemberId, transfer: u32, bytes: u64) {
        let now_us = self.now_us();
        self.lock().machine.handle_bytes(now_us, peer, transfer, bytes);
    }

    fn stored(&self, peer: MemberId, transfer: u32, piece: u32) {
        self.with_machine(|machine, now_us| machine.handle_stored(now_us, peer, transfer, piece));
    }

    fn bad_piece(&self, peer: MemberId, transfer: u32, piece: u32) {
        self.with_machine(|machine, now_us| machine.handle_bad_piece(now_us, peer, transfer, piece));
    }

    fn take_buffer(&self) -> Vec<u8> {
        self.buffers.take()
    }

    fn put_buffer(&self, buffer: Vec<u8>) {
        self.buffers.put(buffer);
    }
}
