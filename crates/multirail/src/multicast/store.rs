//! Where the data is kept: what every kind of store can do.

use super::manifest::{Manifest, ManifestError};
use crate::files::Report;
use crate::files::report::{Cause, Problem};
use multirail_proto::multicast::PieceSet;
use multirail_proto::units::format_size;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One host's copy of the data, whole or in the making.
///
/// All functions may be called from several threads at once. They block for as long as the disk takes; from asynchronous code,
/// call them where that does no harm.
pub trait Store: std::fmt::Debug + Send + Sync {
    /// What is kept.
    fn manifest(&self) -> &Arc<Manifest>;

    /// The pieces that are here.
    fn held(&self) -> PieceSet;

    /// Takes in a piece. Its BLAKE3 hash is looked at before anything else: what is not the piece is
    /// [`StoreError::Mismatch`] and leaves no trace. After any other error the piece may be written again.
    fn write(&self, piece: u32, bytes: &[u8]) -> Result<Written, StoreError>;

    /// Fills `buffer` with bytes of a piece that is held, from `offset` bytes behind its begin. Before and after
    /// [`Store::finish`]. The content is not verified again.
    fn read(&self, piece: u32, offset: u32, buffer: &mut [u8]) -> Result<(), StoreError>;

    /// Once everything is held: gives every file its mode, its modification time and its name, one by one. Before that,
    /// nothing has its name. Files that cannot get it are in the report, and the others do; then it can be called again. Once all
    /// have, a second call does nothing and gives the same report.
    fn finish(&self) -> Result<Report, StoreError>;
}

/// What [`Store::write`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The piece is held from now on.
    New,
    /// It was before.
    Already,
}

/// Why a store cannot do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// What came for a piece is not that piece.
    #[error("what came for piece {piece} has another BLAKE3 hash")]
    Mismatch {
        /// Which.
        piece: u32,
    },
    /// There is no piece of that number.
    #[error("piece {piece} of {pieces}")]
    NoSuchPiece {
        /// The number.
        piece: u32,
        /// How many there are.
        pieces: u32,
    },
    /// A piece does not have so many bytes.
    #[error("{bytes} bytes from {offset} of piece {piece}: it is not that long")]
    OutOfRange {
        /// Which.
        piece: u32,
        /// From where on, in bytes of the piece.
        offset: u32,
        /// How many.
        bytes: usize,
    },
    /// The piece is not here.
    #[error("piece {piece} is not here")]
    NotHeld {
        /// Which.
        piece: u32,
    },
    /// It is not whole yet.
    #[error("{missing} pieces are not here")]
    Incomplete {
        /// How many pieces are not here.
        missing: u32,
    },
    /// Found before anything was written: the data does not fit.
    #[error("needs {}, {} has {} free", format_size(*.needed_bytes), .path.display(), format_size(*.free_bytes))]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// What is still to be written, in whole blocks of the file system.
        needed_bytes: u64,
        /// What it has for this user.
        free_bytes: u64,
    },
    /// As [`StoreError::NoRoom`], of files.
    #[error("needs {needed} files, {} has room for {free}", .path.display())]
    NoRoomForFiles {
        /// The folder.
        path: PathBuf,
        /// Files and directories that are still to be made.
        needed: u64,
        /// What the file system can take.
        free: u64,
    },
    /// The disk, or the user's share of it, got full.
    #[error("no space left to write {}", .path.display())]
    Full {
        /// What was being written.
        path: PathBuf,
    },
    /// Somebody else has the unfinished files.
    #[error("another transfer of the same data into {} is under way\nhint: wait for it, or take another destination", .path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing can be written there.
    #[error("{0}")]
    Destination(String),
    /// A source is not what it was when its manifest was made.
    #[error("{} changed: {reason}", .path.display())]
    Changed {
        /// Which.
        path: PathBuf,
        /// What is different.
        reason: String,
    },
    /// What is to be sent cannot be.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Anything else that reading or writing can meet.
    #[error("{}: {reason}", .path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// In words.
        reason: String,
    },
}

impl StoreError {
    /// What went wrong with `path`.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::ENOSPC | libc::EDQUOT), _) => Self::Full { path },
            (_, io::ErrorKind::UnexpectedEof) => Self::Changed { path, reason: "it became shorter".to_owned() },
            _ => Self::Io { path, reason: Problem::io(Cause::Write, error).reason },
        }
    }

    /// As [`StoreError::io`], from what the pieces of a copy give.
    pub(crate) fn problem(path: &Path, problem: Problem) -> Self {
        Self::Io { path: path.to_owned(), reason: problem.reason }
    }
}
