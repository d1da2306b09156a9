//! What comes into memory, for a program that receives.

use super::manifest::Manifest;
use super::memory_store::MemoryStore;
use super::store::{Store, StoreError};
use multirail_proto::units::format_size;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Broadcasts that wait to be taken. For further ones the root waits.
const MAX_WAITING: usize = 16;

/// Where broadcasts into memory wait for the program.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    limit_bytes: u64,
    whole: mpsc::Sender<Vec<u8>>,
}

/// Where those of one group are put together.
#[derive(Debug)]
pub(super) struct GroupInbox {
    inbox: Inbox,
    /// In the making, by number.
    stores: Mutex<BTreeMap<u32, Arc<MemoryStore>>>,
}

impl Inbox {
    /// For data of at most `limit_bytes`; what is whole comes out of the receiver.
    pub fn new(limit_bytes: u64) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (whole, taken) = mpsc::channel(MAX_WAITING);
        (Self { limit_bytes, whole }, taken)
    }

    /// For one group.
    pub fn of_group(&self) -> GroupInbox {
        GroupInbox { inbox: self.clone(), stores: Mutex::default() }
    }
}

impl GroupInbox {
    /// Opens the store of a transfer.
    pub fn open(&self, number: u32, manifest: Arc<Manifest>) -> Result<Arc<dyn Store>, StoreError> {
        let total_bytes = manifest.pieces().total_bytes;
        if total_bytes > self.inbox.limit_bytes {
            let (total, limit) = (format_size(total_bytes), format_size(self.inbox.limit_bytes));
            return Err(StoreError::Destination(format!("{total} are sent, and this program takes {limit} at most")));
        }
        let store = Arc::new(MemoryStore::empty(manifest)?);
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).insert(number, store.clone());
        Ok(store)
    }

    /// A transfer is whole. The store goes on serving others, so the program gets a copy. Blocks while too many wait.
    pub fn done(&self, number: u32) {
        let store = self.stores.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let Some(store) = store else { return };
        let pieces = store.manifest().pieces();
        let mut data = vec![0; pieces.total_bytes as usize];
        for piece in 0..pieces.count() {
            let range = pieces.range(piece);
            if let Err(error) = store.read(piece, 0, &mut data[range.start as usize..range.end as usize]) {
                tracing::error!(%error, "memory that was whole");
                return;
            }
        }
        // Where the program takes no more, it is about to end.
        let _ = self.inbox.whole.blocking_send(data);
    }
}
