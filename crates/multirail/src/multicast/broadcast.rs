//! The coordinator: invites the hosts, and is the root.

use super::{Host, Options, Summary};
use std::path::Path;

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
/// What fails on a host, or with it, is in the [`Summary`]; an error means that nobody got anything.
pub async fn broadcast_path(
    source: &Path,
    hosts: &[Host],
    root_cluster: u32,
    options: &Options,
) -> Result<Summary, BroadcastError> {
    let _ = (source, hosts, root_cluster, options);
    Err(BroadcastError::Source("broadcasts are still being built".to_owned()))
}
