//! The stores of a member's transfers: from a manifest to files under their names.

use super::{MemberDriver, TransferData};
use crate::store::{Manifest, Store, StoreError};
use crate::wire;
use multirail_proto::multicast::MemberId;
use std::sync::Arc;

impl MemberDriver {
    /// Begins broadcast `number` of what `store` has: this host is the root. `data`: all of it, if it
    /// travels with its manifest.
    pub(crate) fn broadcast(&self, number: u32, store: Arc<dyn Store>, data: Vec<u8>) {
        let manifest = Arc::new(store.manifest().encode());
        let (pieces, held, is_inline) = (store.manifest().pieces(), store.held(), !data.is_empty());
        let transfer = TransferData { manifest, data: Arc::new(data), pieces, store: Some(store) };
        let mut core = self.lock();
        core.transfers.insert(number, transfer);
        core.machine.handle_broadcast(self.now_us(), number, pieces, held, is_inline);
        self.carry_out(&mut core);
    }

    /// Forgets the transfers below `number`, which are over.
    pub(crate) fn forget_below(&self, number: u32) {
        let mut core = self.lock();
        core.machine.handle_over(number);
        let left = core.transfers.split_off(&number);
        let over = std::mem::replace(&mut core.transfers, left);
        for number in over.keys() {
            core.links.values_mut().for_each(|link| link.forget(*number));
        }
        self.carry_out(&mut core);
        drop(core);
        // Memory and files are released outside the lock.
        drop(over);
    }

    /// Checks a manifest frame from `peer` and begins its transfer, unless this host has no use for
    /// it. An error says what the peer did wrong.
    pub(super) fn receive_manifest(&self, peer: MemberId, frame: &[u8]) -> Result<(), String> {
        let Some(driver) = self.this.upgrade() else { return Ok(()) };
        let (head, manifest, data) = wire::split_manifest(frame).map_err(|error| error.to_string())?;
        let (number, positions) = (head.transfer, head.positions.len());
        let offer = self.with_machine(|machine, now_us| machine.handle_manifest_offer(now_us, number, positions));
        if !offer.map_err(|fault| fault.to_string())? {
            return Ok(());
        }
        let decoded = Manifest::decode(manifest).map_err(|error| format!("invalid manifest: {error}"))?;
        if self.manifest.is_some_and(|id| id != decoded.id()) {
            return Err("its manifest is not the one of this broadcast".to_owned());
        }
        let pieces = decoded.pieces();
        let is_inline = pieces.count() == 0 || !data.is_empty();
        let is_whole = data.len() as u64 == pieces.total_bytes && data.len() as u64 <= wire::MAX_INLINE_BYTES;
        if !data.is_empty() && !is_whole {
            return Err("the data with its manifest has another length".to_owned());
        }
        for piece in (0..pieces.count()).filter(|_| is_inline) {
            let range = pieces.range(piece);
            let checked = decoded.check(piece, &data[range.start as usize..range.end as usize]);
            checked.map_err(|error| format!("in the data with its manifest, {error}"))?;
        }
        let data = Arc::new(data.to_vec());
        let mut core = self.lock();
        let inline_bytes = data.len() as u64;
        if core.machine.handle_manifest(peer, number, pieces, inline_bytes, &head.positions) {
            let manifest = Arc::new(manifest.to_vec());
            core.transfers.insert(number, TransferData { manifest, data: data.clone(), pieces, store: None });
            self.runtime.spawn(driver.open_store(number, Arc::new(decoded), data, is_inline));
        }
        self.carry_out(&mut core);
        Ok(())
    }

    /// Opens the store of a transfer, and writes the data that came with its manifest.
    async fn open_store(self: Arc<Self>, number: u32, manifest: Arc<Manifest>, data: Arc<Vec<u8>>, is_inline: bool) {
        let driver = self.clone();
        let is_quick = is_inline && self.inbox.is_some();
        let opened = run(is_quick, move || {
            let store = (driver.open)(number, manifest)?;
            let pieces = store.manifest().pieces();
            for piece in (0..pieces.count()).filter(|_| is_inline) {
                let range = pieces.range(piece);
                store.write(piece, &data[range.start as usize..range.end as usize])?;
            }
            Ok::<_, StoreError>(store)
        });
        match opened.await {
            Ok(store) => {
                let held = store.held();
                let mut core = self.lock();
                let Some(transfer) = core.transfers.get_mut(&number) else { return };
                transfer.store = Some(store);
                core.machine.handle_store_open(self.now_us(), number, held);
                self.carry_out(&mut core);
            }
            Err(error) => self.fail(error),
        }
    }

    /// Gives the files of a transfer their names, or its data to the program.
    pub(super) async fn finish_store(self: Arc<Self>, number: u32, store: Arc<dyn Store>) {
        let inbox = self.inbox.clone();
        let is_quick = inbox.is_some() && store.manifest().pieces().total_bytes <= wire::MAX_INLINE_BYTES;
        let finish = move || {
            let report = store.finish()?;
            let inbox = inbox.filter(|_| report.failed.is_empty());
            let data = inbox.map(|inbox| inbox.take(number)).transpose()?.flatten();
            Ok((report, data))
        };
        match run(is_quick, finish).await {
            Err(error) => self.fail(error),
            Ok((report, data)) => match report.failed.first() {
                Some(failure) => self.fail(format!("{}: {}", failure.path.display(), failure.reason)),
                None => {
                    if let (Some(inbox), Some(data)) = (&self.inbox, data) {
                        inbox.deliver(data).await;
                    }
                    self.with_machine(|machine, _| machine.handle_finished(number));
                }
            },
        }
    }
}

/// Runs `work` on a thread that may wait for a disk. If it `is_quick`, since it moves little data in memory,
/// it runs at once: another thread would take longer to wake than the work takes.
async fn run<T: Send + 'static>(
    is_quick: bool,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, String> {
    if is_quick {
        return work().map_err(|error| error.to_string());
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(error) => Err(format!("a task of the store failed: {error}")),
    }
}
