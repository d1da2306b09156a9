//! Why a broadcast does not take place.

/// The error of a whole broadcast. What fails on one host is in the [`Summary`](super::Summary).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BroadcastError {
    /// The hosts do not form a group.
    #[error("{0}")]
    Hosts(String),
    /// The source cannot be broadcast.
    #[error("{0}")]
    Source(String),
    /// This host's part failed.
    #[error(transparent)]
    Own(#[from] multirail_net::Error),
}
