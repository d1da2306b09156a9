//! A file or a directory to many hosts.

use super::coordinator::Coordinator;
use super::source_store::{SourceOptions, SourceStore};
use super::wire::MAX_INLINE_BYTES;
use super::{Host, Options, Store, StoreError, Summary};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the display learns how much of the source has been read.
const HASHED_EVERY: Duration = Duration::from_millis(100);

/// Why a broadcast did not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BroadcastError {
    /// The hosts make no group.
    #[error("{0}")]
    Hosts(String),
    /// The source cannot be broadcast.
    #[error("{0}")]
    Source(String),
    /// This host's part failed.
    #[error(transparent)]
    Own(#[from] crate::Error),
}

/// Brings the file or directory `source` of this host to `hosts`; this host is in cluster `root_cluster`.
///
/// What fails on a host, or with it, is in the [`Summary`]; an error means that the broadcast did not take place, or that the
/// source changed or could not be read while it went on.
pub async fn broadcast_path(
    source: &Path,
    hosts: &[Host],
    root_cluster: u32,
    options: &Options,
) -> Result<Summary, BroadcastError> {
    let began = Instant::now();
    let store = open_source(source, options).await?;
    let prepared = began.elapsed();
    let data = little_data(&*store).map_err(|e| BroadcastError::Source(e.to_string()))?;
    let destination = options.destination.as_os_str().as_bytes().to_vec();
    let mut coordinator =
        Coordinator::begin(hosts, root_cluster, options, Some(destination), Some(store.manifest().id())).await?;
    coordinator.gather().await;
    let summary = coordinator.broadcast(0, store, data).await;
    coordinator.end().await;
    Ok(Summary { prepared, ..summary? })
}

/// Reads and hashes the source.
async fn open_source(source: &Path, options: &Options) -> Result<Arc<dyn Store>, BroadcastError> {
    let counts = Arc::new(crate::files::Progress::default());
    let how =
        SourceOptions { recursive: options.recursive, piece_bytes: options.piece_bytes, progress: counts.clone() };
    let sources = [source.to_owned()];
    let mut opening = tokio::task::spawn_blocking(move || SourceStore::open(&sources, &how));
    loop {
        match tokio::time::timeout(HASHED_EVERY, &mut opening).await {
            Err(_) => options.progress.update(|s| s.hashed_bytes = counts.bytes()),
            Ok(opened) => {
                let opened =
                    opened.map_err(|e| BroadcastError::Source(format!("reading the source broke off: {e}")))?;
                return Ok(Arc::new(opened.map_err(|e| BroadcastError::Source(e.to_string()))?));
            }
        }
    }
}

/// All of the data, if it is so little that it travels with its manifest.
pub(super) fn little_data(store: &dyn Store) -> Result<Vec<u8>, StoreError> {
    let pieces = store.manifest().pieces();
    if pieces.total_bytes > MAX_INLINE_BYTES {
        return Ok(Vec::new());
    }
    let mut data = vec![0; pieces.total_bytes as usize];
    for piece in 0..pieces.count() {
        let range = pieces.range(piece);
        store.read(piece, 0, &mut data[range.start as usize..range.end as usize])?;
    }
    Ok(data)
}
