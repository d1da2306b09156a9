//! What comes and goes for the transfers, and what their nodes decide.

use super::super::manifest::Manifest;
use super::super::store::{Store, StoreError};
use super::super::transfer::{Phase, Transfer};
use super::super::tree;
use super::super::wire::{self, Item};
use super::{Core, MAX_TRANSFERS, Member, State};
use multirail_proto::multicast::{Input, MemberId, Method, Nodes, Output};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

impl Member {
    /// Begins the broadcast `number` of what `store` has: this host is the root. `data`: all of it, if it shall travel with its
    /// manifest.
    pub fn broadcast(self: &Arc<Self>, number: u32, store: Arc<dyn Store>, data: Vec<u8>) {
        let manifest = Arc::new(store.manifest().encode());
        let pieces = store.manifest().pieces();
        let inline = !data.is_empty() || pieces.count() == 0;
        let mut core = self.lock();
        core.transfers.insert(number, Transfer::new(manifest, Arc::new(data), pieces, self.members.clusters().len()));
        for errand in tree::from_root(&self.members) {
            self.run_errand(&mut core, number, errand);
        }
        self.start(&mut core, number, store, inline);
    }

    /// Forgets the transfers below `number`, which are over.
    pub fn forget_below(&self, number: u32) {
        let mut core = self.lock();
        let left = core.transfers.split_off(&number);
        let over = std::mem::replace(&mut core.transfers, left);
        core.complete = core.complete.split_off(&number);
        core.over_below = core.over_below.max(number);
        for number in over.keys() {
            core.links.values_mut().for_each(|l| l.forget(*number));
        }
        drop(core);
        // Memory and files are let go outside the lock.
        drop(over);
    }

    /// A manifest came; an error is the peer's fault.
    pub(in crate::multicast) fn take_manifest(self: &Arc<Self>, peer: MemberId, frame: &[u8]) -> Result<(), String> {
        let (head, manifest, data) = wire::split_manifest(frame).map_err(|e| e.to_string())?;
        let number = head.transfer;
        if head.duties.len() > self.members.mob(self.me).len() {
            return Err("it gives more places than there are".to_owned());
        }
        {
            let mut core = self.lock();
            core.heard = Some(Instant::now());
            let known = core.transfers.contains_key(&number) || number < core.over_below;
            if known || core.state != State::Member {
                return Ok(());
            }
            if core.transfers.len() >= MAX_TRANSFERS {
                return Err("it begins too many transfers".to_owned());
            }
            core.asked = 0;
        }
        let decoded = Manifest::decode(manifest).map_err(|e| format!("its manifest is none: {e}"))?;
        if self.manifest.is_some_and(|id| id != decoded.id()) {
            return Err("its manifest is not the one of this broadcast".to_owned());
        }
        let pieces = decoded.pieces();
        let inline = pieces.count() == 0 || !data.is_empty();
        if !data.is_empty() && (data.len() as u64 != pieces.total_bytes || data.len() as u64 > wire::MAX_INLINE_BYTES) {
            return Err("data beside its manifest that is not the manifest's".to_owned());
        }
        for piece in (0..pieces.count()).filter(|_| inline) {
            let range = pieces.range(piece);
            let checked = decoded.check(piece, &data[range.start as usize..range.end as usize]);
            checked.map_err(|e| format!("beside its manifest, {e}"))?;
        }
        let data = Arc::new(data.to_vec());
        let mut core = self.lock();
        let mut transfer =
            Transfer::new(Arc::new(manifest.to_vec()), data.clone(), pieces, self.members.clusters().len());
        transfer.received_bytes[self.members.cluster(peer) as usize] += data.len() as u64;
        core.transfers.insert(number, transfer);
        for errand in tree::passed_on(&self.members, self.me, &head.duties) {
            self.run_errand(&mut core, number, errand);
        }
        drop(core);
        let member = self.clone();
        self.runtime.spawn(async move { member.open_store(number, Arc::new(decoded), data, inline).await });
        Ok(())
    }

    async fn open_store(self: Arc<Self>, number: u32, manifest: Arc<Manifest>, data: Arc<Vec<u8>>, inline: bool) {
        let member = self.clone();
        let opened = blocking(move || {
            let store = (member.open)(number, manifest)?;
            let pieces = store.manifest().pieces();
            for piece in (0..pieces.count()).filter(|_| inline) {
                let range = pieces.range(piece);
                store.write(piece, &data[range.start as usize..range.end as usize])?;
            }
            Ok::<_, StoreError>(store)
        });
        match opened.await {
            Ok(store) => {
                let mut core = self.lock();
                self.start(&mut core, number, store, inline);
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// The store is open: the node begins.
    pub(super) fn start(self: &Arc<Self>, core: &mut Core, number: u32, store: Arc<dyn Store>, inline: bool) {
        let Some(transfer) = core.transfers.get_mut(&number) else { return };
        transfer.held = store.held();
        let bytes = |p| transfer.pieces.range(p).end - transfer.pieces.range(p).start;
        transfer.held_bytes = transfer.held.iter().map(bytes).sum();
        transfer.phase = Phase::Running;
        transfer.store = Some(store);
        if !inline {
            transfer.resumed_bytes = transfer.held_bytes;
            let bandwidths = self.bandwidths.as_ref();
            match Nodes::new(self.method, self.members.clone(), transfer.pieces, self.seed, bandwidths) {
                Ok(nodes) => transfer.node = Some(nodes.node(self.me, transfer.held.clone())),
                Err(error) => {
                    core.state = State::Failed(error.to_string());
                    return self.tell(core);
                }
            }
        }
        if core.transfers[&number].node.is_some() {
            core.links.values_mut().for_each(|l| l.push(Item::Ready(number)));
            self.drive(core, number, Input::Start);
            let peers: Vec<MemberId> = core.links.keys().copied().collect();
            for peer in peers {
                self.join(core, number, peer);
            }
        }
        self.finish_if_full(core, number);
        self.tell(core);
    }

    /// Tells the node of a peer, once both sides know the transfer.
    pub(super) fn join(self: &Arc<Self>, core: &mut Core, number: u32, peer: MemberId) {
        let running = core.transfers.get(&number).is_some_and(|t| t.node.is_some());
        if running && core.links.get_mut(&peer).is_some_and(|l| l.join(number)) {
            self.drive(core, number, Input::Up(peer));
        }
    }

    /// A peer begins to send a piece: whether to keep it.
    pub(in crate::multicast) fn comes(
        &self,
        peer: MemberId,
        number: u32,
        piece: u32,
    ) -> Result<Option<Arc<dyn Store>>, String> {
        let only_asked = matches!(self.method, Method::Mob | Method::Bittorrent);
        let mut core = self.lock();
        let Some(transfer) = core.transfers.get_mut(&number) else { return Ok(None) };
        let keep = transfer.comes(peer, piece, only_asked)?;
        Ok(transfer.store.clone().filter(|_| keep))
    }

    /// `bytes` of a piece came.
    pub(in crate::multicast) fn count_received(&self, peer: MemberId, number: u32, bytes: u64) {
        let mut core = self.lock();
        core.heard = Some(Instant::now());
        if let Some(transfer) = core.transfers.get_mut(&number) {
            transfer.receives(peer, self.members.cluster(peer), bytes);
        }
    }

    /// A piece was verified and stored.
    pub(in crate::multicast) fn stored(self: &Arc<Self>, peer: MemberId, number: u32, piece: u32) {
        let mut core = self.lock();
        let Some(transfer) = core.transfers.get_mut(&number) else { return };
        let new = transfer.hold(piece);
        self.drive(&mut core, number, Input::Stored { from: peer, piece });
        if new {
            self.finish_if_full(&mut core, number);
        }
    }

    /// What came for a piece was not that piece.
    pub(in crate::multicast) fn bad(self: &Arc<Self>, peer: MemberId, number: u32, piece: u32) {
        self.drive(&mut self.lock(), number, Input::Bad { from: peer, piece });
    }

    /// The last byte of a piece went to a peer's session.
    pub(in crate::multicast) fn sent(self: &Arc<Self>, peer: MemberId, number: u32, piece: u32) {
        let mut core = self.lock();
        if let Some(transfer) = core.transfers.get_mut(&number) {
            transfer.settled(peer, piece);
            self.drive(&mut core, number, Input::Sent { to: peer, piece });
        }
    }

    /// The store of a transfer and the length of a piece.
    pub(in crate::multicast) fn store(&self, number: u32, piece: u32) -> Option<(Arc<dyn Store>, u32)> {
        let core = self.lock();
        let transfer = core.transfers.get(&number)?;
        let range = transfer.pieces.range(piece);
        Some((transfer.store.clone()?, (range.end - range.start) as u32))
    }

    pub(super) fn drive(self: &Arc<Self>, core: &mut Core, number: u32, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now_us = self.now_us();
            let mut outputs = Vec::new();
            let Some(node) = core.transfers.get_mut(&number).and_then(|t| t.node.as_mut()) else { return };
            node.handle(now_us, input);
            outputs.extend(std::iter::from_fn(|| node.poll()));
            for output in outputs {
                self.act(core, number, output, &mut inputs);
            }
        }
        let wake_at_us = core.transfers.get(&number).and_then(|t| t.node.as_ref()?.wake_at_us());
        if wake_at_us.is_some_and(|at| core.timer_at_us.is_none_or(|timer| at < timer)) {
            core.timer_at_us = wake_at_us;
            self.timer.notify_one();
        }
    }

    pub(super) fn act(self: &Arc<Self>, core: &mut Core, number: u32, output: Output, inputs: &mut VecDeque<Input>) {
        let Some(transfer) = core.transfers.get_mut(&number) else { return };
        match output {
            Output::Connect(peer) => {
                if !self.connect(core, peer) {
                    inputs.push_back(Input::Down(peer));
                }
            }
            Output::Send(peer, message) => {
                if let Some(link) = core.links.get_mut(&peer).filter(|l| l.is_up(number)) {
                    transfer.says(peer, &message);
                    link.push(Item::Node(number, message));
                }
            }
            Output::SendPiece(peer, piece) => {
                let held = transfer.held.contains(piece);
                debug_assert!(held, "a node sends what it has");
                if let Some(link) = core.links.get_mut(&peer).filter(|l| held && l.is_up(number)) {
                    link.push_piece(number, piece);
                }
            }
            Output::Withdraw(peer, piece) => {
                if let Some(link) = core.links.get_mut(&peer) {
                    link.withdraw(number, piece);
                }
                transfer.settled(peer, piece);
            }
            Output::Finished => {
                transfer.synchronized = true;
                self.tell(core);
            }
        }
    }

    pub(super) fn finish_if_full(self: &Arc<Self>, core: &mut Core, number: u32) {
        let Some(transfer) = core.transfers.get_mut(&number) else { return };
        if !transfer.held.is_full() || transfer.phase != Phase::Running {
            return;
        }
        transfer.phase = Phase::Finishing;
        let Some(store) = transfer.store.clone() else { return };
        core.links.values_mut().for_each(|l| l.push(Item::Complete(number)));
        let member = self.clone();
        self.runtime.spawn(async move {
            let (finishing, own) = (store, member.clone());
            let finish = move || {
                let report = finishing.finish()?;
                if report.failed.is_empty() {
                    (own.done)(number);
                }
                Ok(report)
            };
            match blocking(finish).await {
                Err(error) => member.fail(error.to_string()),
                Ok(report) => match report.failed.first() {
                    Some(failure) => member.fail(format!("{}: {}", failure.path.display(), failure.reason)),
                    None => {
                        let mut core = member.lock();
                        if let Some(transfer) = core.transfers.get_mut(&number) {
                            transfer.phase = Phase::Done;
                        }
                        member.tell(&core);
                    }
                },
            }
        });
        self.tell(core);
    }
}

/// Runs what waits for a disk on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(error) => Err(format!("a task of the store broke off: {error}")),
    }
}
