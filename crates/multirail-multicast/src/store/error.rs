//! The errors of stores and manifests.

use multirail_proto::units::format_size;
use multirail_tree::report::{Cause, Problem};
use std::io;
use std::path::{Path, PathBuf};

/// The most files and directories of one manifest.
pub(super) const MAX_ENTRIES: usize = 1 << 20;
/// The longest encoded manifest, in bytes. With pieces of 1 MiB it suffices for 1 TiB.
pub(super) const MAX_ENCODED_BYTES: usize = 32 << 20;

/// Why a manifest is invalid, or cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// More files and directories than `MAX_ENTRIES`.
    #[error("more than {MAX_ENTRIES} files and directories; send an archive of them, or a part at a time")]
    TooMany,
    /// More than `MAX_ENCODED_BYTES`.
    #[error(
        "the list of files and hashes is longer than 32 MiB; send fewer files or less data (at most about 1 TiB) at a time"
    )]
    TooLong,
    /// A path that is not allowed.
    #[error("{path:?}: {reason}")]
    Path {
        /// The path, as far as it is known.
        path: PathBuf,
        /// The reason in words.
        reason: String,
    },
    /// Any other error. Only a broken or hostile peer causes it.
    #[error("invalid manifest: {0}")]
    Malformed(&'static str),
}

/// Why an operation of a store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// The bytes for a piece do not have its hash.
    #[error("the bytes for piece {piece} have another BLAKE3 hash")]
    Mismatch {
        /// The piece.
        piece: u32,
    },
    /// There is no piece with this number.
    #[error("there is no piece {piece} of {pieces}")]
    NoSuchPiece {
        /// The number.
        piece: u32,
        /// The number of pieces.
        pieces: u32,
    },
    /// The range exceeds the piece.
    #[error("piece {piece} has no {bytes} bytes at offset {offset}")]
    OutOfRange {
        /// The piece.
        piece: u32,
        /// The offset in the piece, in bytes.
        offset: u32,
        /// The number of bytes.
        bytes: usize,
    },
    /// The piece is not stored.
    #[error("piece {piece} is missing")]
    NotHeld {
        /// The piece.
        piece: u32,
    },
    /// The store is incomplete.
    #[error("{missing} pieces are missing")]
    Incomplete {
        /// The number of missing pieces.
        missing: u32,
    },
    /// The data does not fit. This is found before anything is written.
    #[error("needs {}, {} has {} free", format_size(*.needed_bytes), .path.display(), format_size(*.free_bytes))]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// Bytes still to be written, in whole blocks of the file system.
        needed_bytes: u64,
        /// Bytes that are free for this user.
        free_bytes: u64,
    },
    /// As [`StoreError::NoRoom`], for files.
    #[error("needs {needed} files, {} has room for {free}", .path.display())]
    NoRoomForFiles {
        /// The folder.
        path: PathBuf,
        /// Files and directories still to be made.
        needed: u64,
        /// Files that the file system has room for.
        free: u64,
    },
    /// The disk, or the user's quota, is full.
    #[error("no space left to write {}", .path.display())]
    Full {
        /// The file being written.
        path: PathBuf,
    },
    /// Another store uses the unfinished files.
    #[error("another transfer of the same data into {} is running; wait for it, or use another destination", .path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The destination cannot be used.
    #[error("{0}")]
    Destination(String),
    /// A source changed after its manifest was made.
    #[error("{} changed: {reason}", .path.display())]
    Changed {
        /// The source.
        path: PathBuf,
        /// The change.
        reason: String,
    },
    /// No manifest can be made of the source, or the received manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Any other error of reading or writing.
    #[error("{}: {reason}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The reason in words.
        reason: String,
    },
}

impl StoreError {
    /// An I/O error on `path`.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::ENOSPC | libc::EDQUOT), _) => Self::Full { path },
            (_, io::ErrorKind::UnexpectedEof) => Self::Changed { path, reason: "it became shorter".to_owned() },
            _ => Self::Io { path, reason: Problem::io(Cause::Write, error).reason },
        }
    }

    /// As [`StoreError::io`], from a problem that the `tree` crate reports.
    pub(crate) fn problem(path: &Path, problem: Problem) -> Self {
        Self::Io { path: path.to_owned(), reason: problem.reason }
    }
}
