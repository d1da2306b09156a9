//! A source and a store that takes its pieces.

use super::*;
use crate::store::source::{SourceOptions, SourceStore};
use crate::store::testing::{Snapshot, Temp, content};
use std::fs;

const PIECE_BYTES: u32 = 1 << 14;

pub(super) fn source(paths: &[PathBuf]) -> SourceStore {
    let options = SourceOptions { recursive: true, piece_bytes: Some(PIECE_BYTES), ..SourceOptions::default() };
    SourceStore::open(paths, &options).unwrap()
}

pub(super) fn open(source: &SourceStore, to: &Path) -> Result<TreeStore, StoreError> {
    // The manifest as another host receives it.
    let manifest = Arc::new(Manifest::decode(&source.manifest().encode()).unwrap());
    let (root, path) = (to.parent().unwrap(), Path::new(to.file_name().unwrap()));
    TreeStore::open(manifest, Destination { root: &root.into(), path }, TreeOptions::default())
}

pub(super) fn piece(source: &SourceStore, piece: u32) -> Vec<u8> {
    let mut bytes = vec![0; source.manifest().piece_len(piece)];
    source.read(piece, 0, &mut bytes).unwrap();
    bytes
}

/// Writes the missing pieces and returns their number.
pub(super) fn complete(source: &SourceStore, store: &TreeStore) -> u32 {
    let missing: Vec<u32> = PieceSet::all(store.held().pieces()).without(&store.held()).collect();
    for number in &missing {
        assert_eq!(store.write(*number, &piece(source, *number)), Ok(Written::New));
    }
    missing.len() as u32
}

pub(super) fn complete_but_one(source: &SourceStore, store: &TreeStore) {
    for number in 1..source.manifest().pieces().count() {
        assert_eq!(store.write(number, &piece(source, number)), Ok(Written::New));
    }
}

pub(super) fn finish(store: &TreeStore) {
    let report = store.finish().unwrap();
    assert!(report.is_success(), "{report:?}");
    assert_eq!(report.bytes, store.manifest().pieces().total_bytes);
    assert_eq!((report.files + report.directories) as usize, store.manifest().entries().len());
}

/// A source of one file with `bytes` bytes.
pub(super) fn file(temp: &Temp, name: &str, bytes: usize) -> SourceStore {
    let path = temp.join("from").join(name);
    fs::write(&path, content(7, bytes)).unwrap();
    source(&[path])
}

pub(super) fn without_root_times(mut snapshot: Snapshot) -> Snapshot {
    snapshot.remove(Path::new(""));
    snapshot
}
