//! Broadcasts a file or a directory.

use super::coordinator::{CoordinatorDriver, random};
use super::error::BroadcastError;
use super::options::{BroadcastHost, Options};
use super::summary::Summary;
use super::ticket::secret_token;
use crate::store::source::{SourceOptions, SourceStore};
use crate::store::{Store, StoreError};
use crate::wire::MAX_INLINE_BYTES;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the progress display learns how much of the source was read.
const HASHED_EVERY: Duration = Duration::from_millis(100);

/// Broadcasts the file or directory `source` of this host, in cluster `root_cluster`, to `hosts`.
///
/// A failure on one host is in the [`Summary`]. With [`Options::find_clusters`], the clusters are a
/// guess. If `hosts` are in several clusters, every piece
/// enters each cluster once while nothing fails (MOB, section 3.1).
///
/// # Errors
///
/// [`BroadcastError`] if the broadcast did not take place, or the source changed or could not be
/// read meanwhile.
///
/// # Cancel safety
///
/// Dropping the future ends the broadcast. Hosts keep their verified pieces, and another broadcast
/// of the same data continues with them.
pub async fn broadcast_path(
    source: &Path,
    hosts: &[BroadcastHost],
    root_cluster: u32,
    options: &Options,
) -> Result<Summary, BroadcastError> {
    let began = Instant::now();
    let options = &Options { began: options.began.or(Some(began)), ..options.clone() };
    let store = open_source(source, options).await?;
    let prepared = began.elapsed();
    let data = little_data(&*store).map_err(|e| BroadcastError::Source(e.to_string()))?;
    let secret = (options.joining.is_some() && hosts.is_empty() && options.config.token.is_none()).then(random);
    let mut options = options.clone();
    if let Some(secret) = &secret {
        options.config.token = Some(secret_token(secret));
    }
    let destination = options.destination.as_os_str().as_bytes().to_vec();
    let mut coordinator =
        CoordinatorDriver::begin(hosts, root_cluster, &options, Some(destination), Some(store.manifest().id())).await?;
    if let Some(joining) = &options.joining {
        joining.publish(coordinator.ticket(store.manifest().id(), secret).await);
    }
    coordinator.gather().await;
    let summary = coordinator.broadcast(0, store, data).await;
    coordinator.end().await;
    Ok(Summary { prepared, ..summary? })
}

/// Reads and hashes the source.
async fn open_source(source: &Path, options: &Options) -> Result<Arc<dyn Store>, BroadcastError> {
    let counts = Arc::new(multirail_tree::report::Progress::default());
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

/// All of the data if it is small enough to travel with its manifest; else nothing.
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
