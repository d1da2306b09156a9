//! The interface of every kind of store.

use super::error::StoreError;
use crate::store::manifest::Manifest;
use multirail_proto::multicast::PieceSet;
use multirail_tree::report::Report;
use std::sync::Arc;

/// One host's copy of the data, complete or incomplete.
///
/// Several threads may call all functions at once. They block while the disk works, so asynchronous
/// code calls them where blocking is harmless.
pub(crate) trait Store: std::fmt::Debug + Send + Sync {
    /// The description of the data.
    fn manifest(&self) -> &Arc<Manifest>;

    /// The pieces that are stored.
    fn held(&self) -> PieceSet;

    /// Verifies a piece by its BLAKE3 hash and stores it. Other bytes give [`StoreError::Mismatch`]
    /// and change nothing. After any other error the piece may be written again.
    fn write(&self, piece: u32, bytes: &[u8]) -> Result<Written, StoreError>;

    /// Reads bytes of a stored piece into `buffer`, from `offset` bytes into the piece, before or
    /// after [`Store::finish`]. The content is not verified again.
    fn read(&self, piece: u32, offset: u32, buffer: &mut [u8]) -> Result<(), StoreError>;

    /// Gives every file its mode, modification time and name, one by one. All pieces must be
    /// stored. No file has its name before. Files that cannot get their name are in the report, and
    /// the others get theirs; then the call can be repeated. After a complete call, another one
    /// does nothing and returns the same report.
    fn finish(&self) -> Result<Report, StoreError>;
}

/// The effect of [`Store::write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// The piece is new.
    New,
    /// The piece was already stored.
    Already,
}
