//! A store in memory.

use crate::store::api::{Store, Written};
use crate::store::error::StoreError;
use crate::store::manifest::Manifest;
use multirail_net::sync::{read, write};
use multirail_proto::multicast::PieceSet;
use multirail_proto::units::format_size;
use multirail_tree::report::Report;
use std::sync::{Arc, RwLock};

/// Data in memory: that of the root, or incomplete data of a receiver. Takes as much memory as the
/// data has.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    manifest: Arc<Manifest>,
    /// Hashing takes longer than copying, and is done outside the lock.
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    data: Vec<u8>,
    held: PieceSet,
}

impl MemoryStore {
    /// Room for the data of `manifest`, without any piece. The system provides pages as they are
    /// written. The caller first limits how much a peer may make this host allocate.
    pub(crate) fn empty(manifest: Arc<Manifest>) -> Result<Self, StoreError> {
        let pieces = manifest.pieces();
        let bytes = usize::try_from(pieces.total_bytes).unwrap_or(usize::MAX);
        // Asks first, since an allocation of zeros succeeds until it is touched.
        let fits = Vec::<u8>::new().try_reserve_exact(bytes);
        fits.map_err(|_| StoreError::Destination(format!("no memory for {}", format_size(pieces.total_bytes))))?;
        let data = vec![0; bytes];
        Ok(Self { manifest, state: RwLock::new(State { data, held: PieceSet::none(pieces.count()) }) })
    }

    /// The store of the root: all of `data`, in pieces of `piece_bytes` (default: as
    /// [`multirail_proto::multicast::Pieces::of`]).
    pub(crate) fn full(data: Vec<u8>, piece_bytes: Option<u32>) -> Result<Self, StoreError> {
        let manifest = Arc::new(Manifest::of_memory(&data, piece_bytes)?);
        let held = PieceSet::all(manifest.pieces().count());
        Ok(Self { manifest, state: RwLock::new(State { data, held }) })
    }
}

impl Store for MemoryStore {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn held(&self) -> PieceSet {
        read(&self.state).held.clone()
    }

    fn write(&self, piece: u32, bytes: &[u8]) -> Result<Written, StoreError> {
        self.manifest.check(piece, bytes)?;
        let range = self.manifest.pieces().range(piece);
        let mut state = write(&self.state);
        if state.held.contains(piece) {
            return Ok(Written::Already);
        }
        let room = state.data.get_mut(range.start as usize..range.end as usize);
        // Only after `take`.
        room.ok_or(StoreError::NotHeld { piece })?.copy_from_slice(bytes);
        state.held.insert(piece);
        Ok(Written::New)
    }

    fn read(&self, piece: u32, offset: u32, buffer: &mut [u8]) -> Result<(), StoreError> {
        let range = self.manifest.stretch(piece, offset, buffer.len())?;
        let state = read(&self.state);
        if !state.held.contains(piece) {
            return Err(StoreError::NotHeld { piece });
        }
        buffer.copy_from_slice(&state.data[range.start as usize..range.end as usize]);
        Ok(())
    }

    fn finish(&self) -> Result<Report, StoreError> {
        let held = self.held();
        if !held.is_full() {
            return Err(StoreError::Incomplete { missing: held.pieces() - held.len() });
        }
        let mut report = Report::default();
        report.bytes = self.manifest.pieces().total_bytes;
        Ok(report)
    }
}

#[cfg(test)]
mod tests;
