//! Broadcasts into the memory of a program.

use crate::store::manifest::Manifest;
use crate::store::memory::MemoryStore;
use crate::store::{Store, StoreError};
use multirail_net::sync::lock;
use multirail_proto::units::format_size;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// The most broadcasts that wait to be taken. The root waits with further ones.
const MAX_WAITING: usize = 16;

/// The queue of broadcasts that wait for the program.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    limit_bytes: u64,
    whole: mpsc::Sender<Vec<u8>>,
}

/// The broadcasts of one group that are arriving.
#[derive(Debug)]
pub(super) struct GroupInbox {
    inbox: Inbox,
    /// Incomplete stores by the number of the broadcast.
    stores: Mutex<BTreeMap<u32, Arc<MemoryStore>>>,
}

impl Inbox {
    /// An inbox for data of at most `limit_bytes`. Complete data comes out of the receiver.
    pub(super) fn new(limit_bytes: u64) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (whole, taken) = mpsc::channel(MAX_WAITING);
        (Self { limit_bytes, whole }, taken)
    }

    /// The inbox of one group.
    pub(super) fn of_group(&self) -> GroupInbox {
        GroupInbox { inbox: self.clone(), stores: Mutex::default() }
    }
}

impl GroupInbox {
    /// Opens the store of a transfer.
    pub(super) fn open(&self, number: u32, manifest: Arc<Manifest>) -> Result<Arc<dyn Store>, StoreError> {
        let total_bytes = manifest.pieces().total_bytes;
        if total_bytes > self.inbox.limit_bytes {
            let (total, limit) = (format_size(total_bytes), format_size(self.inbox.limit_bytes));
            return Err(StoreError::Destination(format!("{total} are sent, and this program takes {limit} at most")));
        }
        let store = Arc::new(MemoryStore::empty(manifest)?);
        lock(&self.stores).insert(number, store.clone());
        Ok(store)
    }

    /// The data of a transfer that is complete, once. It is a copy, since the store goes on serving others.
    pub(super) fn take(&self, number: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let store = lock(&self.stores).remove(&number);
        let Some(store) = store else { return Ok(None) };
        let pieces = store.manifest().pieces();
        let mut data = vec![0; pieces.total_bytes as usize];
        for piece in 0..pieces.count() {
            let range = pieces.range(piece);
            store.read(piece, 0, &mut data[range.start as usize..range.end as usize])?;
        }
        Ok(Some(data))
    }

    /// Gives the data to the program. Waits while too many broadcasts wait.
    pub(super) async fn deliver(&self, data: Vec<u8>) {
        // A program that takes no more is about to end.
        let _ = self.inbox.whole.send(data).await;
    }
}
