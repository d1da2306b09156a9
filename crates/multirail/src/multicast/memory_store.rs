//! A store in memory.

use super::manifest::Manifest;
use super::store::{Store, StoreError, Written};
use crate::files::Report;
use multirail_proto::multicast::PieceSet;
use multirail_proto::units::format_size;
use std::sync::{Arc, PoisonError, RwLock};

/// Data in memory: the root's, or a receiver's in the making. Its size is the data's.
#[derive(Debug)]
pub struct MemoryStore {
    manifest: Arc<Manifest>,
    /// Hashing, which takes longer than copying, is done outside the lock.
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    data: Vec<u8>,
    held: PieceSet,
}

impl MemoryStore {
    /// Room for the data of `manifest`, none of which is here. The pages are taken from the system as they are written. How much a
    /// peer may make this host take is for the caller to decide first.
    pub fn empty(manifest: Arc<Manifest>) -> Result<Self, StoreError> {
        let pieces = manifest.pieces();
        let bytes = usize::try_from(pieces.total_bytes).unwrap_or(usize::MAX);
        // Asks first, as the second allocation, which is of zeros that are not touched before they are used, cannot say no.
        let fits = Vec::<u8>::new().try_reserve_exact(bytes);
        fits.map_err(|_| StoreError::Destination(format!("no memory for {}", format_size(pieces.total_bytes))))?;
        let data = vec![0; bytes];
        Ok(Self { manifest, state: RwLock::new(State { data, held: PieceSet::none(pieces.count()) }) })
    }

    /// The root's: all of `data`, in pieces of `piece_bytes` (default: as [`multirail_proto::multicast::Pieces::of`] has it).
    pub fn full(data: Vec<u8>, piece_bytes: Option<u32>) -> Result<Self, StoreError> {
        let manifest = Arc::new(Manifest::of_memory(&data, piece_bytes)?);
        let held = PieceSet::all(manifest.pieces().count());
        Ok(Self { manifest, state: RwLock::new(State { data, held }) })
    }

    /// Takes the data out, once it is whole. The store is empty from then on.
    pub fn take(&self) -> Result<Vec<u8>, StoreError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let pieces = state.held.pieces();
        if !state.held.is_full() {
            return Err(StoreError::Incomplete { missing: pieces - state.held.len() });
        }
        state.held = PieceSet::none(pieces);
        Ok(std::mem::take(&mut state.data))
    }
}

impl Store for MemoryStore {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn held(&self) -> PieceSet {
        self.state.read().unwrap_or_else(PoisonError::into_inner).held.clone()
    }

    fn write(&self, piece: u32, bytes: &[u8]) -> Result<Written, StoreError> {
        self.manifest.check(piece, bytes)?;
        let range = self.manifest.pieces().range(piece);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
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
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
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
        Ok(Report { bytes: self.manifest.pieces().total_bytes, ..Report::default() })
    }
}

#[cfg(test)]
#[path = "memory_store_tests.rs"]
mod tests;
