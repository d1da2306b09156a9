//! The manifest: how the data is cut, the hash of every piece, and the files of the data.
//!
//! The data of a tree is the contents of its files in the order of the entries, without gaps: a
//! piece can hold the end of one file, some small files, and the begin of another. Paths are
//! relative, like those of a copy: each begins with the name of its source, and none leads
//! elsewhere. Entries have one order only (a directory before its content, names in one directory
//! by their bytes), so that equal data has equal manifests, and duplicate names are found.

pub(crate) mod scan;

use crate::store::error::{MAX_ENCODED_BYTES, MAX_ENTRIES, ManifestError, StoreError};
use multirail_proto::multicast::Pieces;
use multirail_proto::multicast::pieces::{MAX_PIECE_BYTES, MIN_PIECE_BYTES};
use multirail_tree::meta::{Meta, raw};
use multirail_tree::names::{self, CONTENT_ONLY, MAX_PATH_BYTES};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const HASH_BYTES: usize = blake3::OUT_LEN;
const VERSION: u8 = 1;

/// A description of the data. Always valid: decoded manifests have been checked.
#[derive(Debug, Clone)]
pub struct Manifest {
    pieces: Pieces,
    hashes: Vec<[u8; HASH_BYTES]>,
    layout: Layout,
    /// Where each non-empty file begins in the data, and its entry.
    starts: Vec<(u64, u32)>,
    id: [u8; 32],
}

/// The kind of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Bytes in memory.
    Memory,
    /// Files and directories.
    Files(Vec<Entry>),
}

/// A file or a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The entry of its directory; `None`: it is a source itself.
    pub(crate) parent: Option<u32>,
    #[serde(with = "name_bytes")]
    pub(crate) name: Box<[u8]>,
    pub(crate) kind: EntryKind,
    pub(crate) meta: Meta,
}

/// The kind of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory. Receivers leave other files in it alone.
    Directory,
    /// A file. Its content is the next `total_bytes` of the data.
    File {
        /// The length.
        total_bytes: u64,
    },
}

/// The head before the hashes. The entries follow the hashes.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u8,
    total_bytes: u64,
    piece_bytes: u32,
    /// The number of entries; `None`: memory.
    entries: Option<u32>,
}

/// A part of one file, as part of a longer range of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub entry: u32,
    /// In the file.
    pub offset: u64,
    /// In the range.
    pub part: Range<usize>,
}

impl Manifest {
    /// A manifest with a hash for each piece, if it keeps all rules.
    pub(crate) fn new(pieces: Pieces, hashes: Vec<[u8; 32]>, layout: Layout) -> Result<Self, ManifestError> {
        check_pieces(&pieces)?;
        if hashes.len() as u64 != count(&pieces) {
            return Err(ManifestError::Malformed("the numbers of hashes and pieces differ"));
        }
        let mut starts = Vec::new();
        if let Layout::Files(entries) = &layout {
            check_paths(entries)?;
            let mut at = 0u64;
            for (index, entry) in entries.iter().enumerate() {
                let bytes = entry.total_bytes();
                if bytes > 0 {
                    starts.push((at, index as u32));
                }
                at = at.checked_add(bytes).ok_or(ManifestError::Malformed("files of 2^64 bytes or more"))?;
            }
            if at != pieces.total_bytes {
                return Err(ManifestError::Malformed("the files' lengths do not add up to the data's"));
            }
        }
        let mut manifest = Self { pieces, hashes, layout, starts, id: [0; 32] };
        let encoded = manifest.encode();
        if encoded.len() > MAX_ENCODED_BYTES {
            return Err(ManifestError::TooLong);
        }
        manifest.id = *blake3::hash(&encoded).as_bytes();
        Ok(manifest)
    }

    /// The manifest of bytes in memory, in pieces of `piece_bytes` (default: as [`Pieces::of`]).
    pub fn of_memory(data: &[u8], piece_bytes: Option<u32>) -> Result<Self, ManifestError> {
        let pieces = cut(data.len() as u64, piece_bytes)?;
        let hash = |piece| {
            let Range { start, end } = pieces.range(piece);
            *blake3::hash(&data[start as usize..end as usize]).as_bytes()
        };
        let hashes =
            crate::store::manifest::scan::map_pieces(&pieces, |piece, _| Ok::<_, ManifestError>(Some(hash(piece))))?;
        Self::new(pieces, hashes.into_iter().map(|(_, hash)| hash).collect(), Layout::Memory)
    }

    /// The same manifest with other hashes.
    pub(crate) fn with_hashes(self, hashes: Vec<[u8; 32]>) -> Result<Self, ManifestError> {
        Self::new(self.pieces, hashes, self.layout)
    }

    /// The encoded manifest; at most `MAX_ENCODED_BYTES`.
    pub fn encode(&self) -> Vec<u8> {
        let entries = match &self.layout {
            Layout::Memory => None,
            Layout::Files(entries) => Some(entries.len() as u32),
        };
        let Pieces { total_bytes, piece_bytes } = self.pieces;
        let head = Head { version: VERSION, total_bytes, piece_bytes, entries };
        // Serializing integers and bytes into memory cannot fail.
        let mut bytes = postcard::to_extend(&head, Vec::new()).unwrap_or_default();
        bytes.extend_from_slice(self.hashes.as_flattened());
        for entry in self.entries() {
            bytes = postcard::to_extend(entry, bytes).unwrap_or_default();
        }
        bytes
    }

    /// Decodes the bytes of [`Manifest::encode`], which may come from a peer.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        const SHORT: ManifestError = ManifestError::Malformed("it is truncated or cannot be parsed");
        if bytes.len() > MAX_ENCODED_BYTES {
            return Err(ManifestError::TooLong);
        }
        let (head, rest) = postcard::take_from_bytes::<Head>(bytes).map_err(|_| SHORT)?;
        if head.version != VERSION {
            return Err(ManifestError::Malformed("another version"));
        }
        let pieces = Pieces { total_bytes: head.total_bytes, piece_bytes: head.piece_bytes };
        check_pieces(&pieces)?;
        let (hashes, mut rest) = rest.split_at_checked(pieces.count() as usize * HASH_BYTES).ok_or(SHORT)?;
        let hashes = hashes.as_chunks().0.to_vec();
        let layout = match head.entries {
            None => Layout::Memory,
            Some(count) if count as usize > MAX_ENTRIES => return Err(ManifestError::TooMany),
            Some(count) => {
                let mut entries = Vec::new();
                for _ in 0..count {
                    let (entry, left) = postcard::take_from_bytes::<Entry>(rest).map_err(|_| SHORT)?;
                    entries.push(entry);
                    rest = left;
                }
                Layout::Files(entries)
            }
        };
        let manifest = Self::new(pieces, hashes, layout)?;
        // A manifest has one encoding, since its id depends on it.
        if !rest.is_empty() || manifest.id != *blake3::hash(bytes).as_bytes() {
            return Err(ManifestError::Malformed("it is not in canonical form"));
        }
        Ok(manifest)
    }

    /// The BLAKE3 hash of the encoding.
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// [`Manifest::id`] as 64 hexadecimal digits.
    pub fn id_hex(&self) -> String {
        self.id.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// How the data is cut.
    pub fn pieces(&self) -> Pieces {
        self.pieces
    }

    /// The kind of data.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Files and directories; none for memory.
    pub fn entries(&self) -> &[Entry] {
        match &self.layout {
            Layout::Memory => &[],
            Layout::Files(entries) => entries,
        }
    }

    /// The path of an entry, which begins with the name of its source. Empty if there is no such
    /// entry.
    pub fn path(&self, entry: u32) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.wire_path(entry)))
    }

    /// [`Manifest::path`] as bytes.
    pub(crate) fn wire_path(&self, entry: u32) -> Vec<u8> {
        wire_path(self.entries(), entry)
    }

    /// The files that `range` of the data covers.
    pub(crate) fn spans(&self, range: Range<u64>) -> impl Iterator<Item = Span> + '_ {
        let first = self.starts.partition_point(|(start, _)| *start <= range.start).saturating_sub(1);
        self.starts[first..].iter().take_while(move |(start, _)| *start < range.end).filter_map({
            let entries = self.entries();
            move |&(start, entry)| {
                let end = start + entries[entry as usize].total_bytes();
                let (from, to) = (range.start.max(start), range.end.min(end));
                let part = || (from - range.start) as usize..(to - range.start) as usize;
                (from < to).then(|| Span { entry, offset: from - start, part: part() })
            }
        })
    }

    /// Checks that `piece` exists and `bytes` have its hash.
    pub(crate) fn check(&self, piece: u32, bytes: &[u8]) -> Result<(), StoreError> {
        match self.hashes.get(piece as usize) {
            None => Err(StoreError::NoSuchPiece { piece, pieces: self.pieces.count() }),
            // The length is checked first, to avoid hashing for nothing.
            Some(hash) if self.piece_len(piece) == bytes.len() && *blake3::hash(bytes).as_bytes() == *hash => Ok(()),
            Some(_) => Err(StoreError::Mismatch { piece }),
        }
    }

    /// The range in the data of the `bytes` at `offset` of `piece`, if the piece is that long.
    pub(crate) fn stretch(&self, piece: u32, offset: u32, bytes: usize) -> Result<Range<u64>, StoreError> {
        if piece >= self.pieces.count() {
            return Err(StoreError::NoSuchPiece { piece, pieces: self.pieces.count() });
        }
        let all = self.pieces.range(piece);
        let start = all.start + u64::from(offset);
        match start.checked_add(bytes as u64) {
            Some(end) if end <= all.end => Ok(start..end),
            _ => Err(StoreError::OutOfRange { piece, offset, bytes }),
        }
    }

    /// The hash of `piece`, which exists.
    pub(crate) fn hash(&self, piece: u32) -> &[u8; 32] {
        &self.hashes[piece as usize]
    }

    pub(crate) fn piece_len(&self, piece: u32) -> usize {
        let range = self.pieces.range(piece);
        (range.end - range.start) as usize
    }
}

impl Entry {
    /// The bytes of the data in this entry: none for a directory.
    pub fn total_bytes(&self) -> u64 {
        match self.kind {
            EntryKind::Directory => 0,
            EntryKind::File { total_bytes } => total_bytes,
        }
    }

    /// The kind of the entry.
    pub fn kind(&self) -> EntryKind {
        self.kind
    }
}

/// The pieces of `total_bytes`, if their number and size are allowed.
pub(crate) fn cut(total_bytes: u64, piece_bytes: Option<u32>) -> Result<Pieces, ManifestError> {
    let mut pieces = Pieces::of(total_bytes);
    pieces.piece_bytes = piece_bytes.unwrap_or(pieces.piece_bytes);
    check_pieces(&pieces)?;
    Ok(pieces)
}

fn count(pieces: &Pieces) -> u64 {
    pieces.total_bytes.div_ceil(u64::from(pieces.piece_bytes))
}

fn check_pieces(pieces: &Pieces) -> Result<(), ManifestError> {
    let size = pieces.piece_bytes;
    if !size.is_power_of_two() || !(MIN_PIECE_BYTES..=MAX_PIECE_BYTES).contains(&size) {
        return Err(ManifestError::Malformed("the size of a piece is not a power of two from 2^14 to 2^20"));
    }
    if count(pieces) > (MAX_ENCODED_BYTES / HASH_BYTES) as u64 {
        return Err(ManifestError::TooLong);
    }
    Ok(())
}

/// Checks that the entries are in order. Then no path occurs twice, and all are below directories
/// that are entries themselves.
fn check_paths(entries: &[Entry]) -> Result<(), ManifestError> {
    if entries.len() > MAX_ENTRIES {
        return Err(ManifestError::TooMany);
    }
    let refuse = |index: usize, reason: &str| {
        let path = PathBuf::from(OsStr::from_bytes(&wire_path(&entries[..=index], index as u32)));
        Err(ManifestError::Path { path, reason: reason.to_owned() })
    };
    // The directories of the entry before, including itself, with the length of each path and the
    // last entry in each.
    let mut open: Vec<(Option<u32>, usize, Option<usize>)> = vec![(None, 0, None)];
    for (index, entry) in entries.iter().enumerate() {
        // Parents point backwards; otherwise paths would have no begin.
        if entry.parent.is_some_and(|p| p as usize >= index) {
            return Err(ManifestError::Malformed("a directory follows its content"));
        }
        while open.last().is_some_and(|(directory, ..)| *directory != entry.parent) {
            open.pop();
        }
        let Some((_, parent_bytes, last)) = open.last_mut() else {
            return refuse(index, "it is in no directory of the list, or out of order");
        };
        let is_content = entry.parent.is_none() && *entry.name == *CONTENT_ONLY.as_bytes();
        if is_content && entry.kind != EntryKind::Directory {
            return refuse(index, "a file without a name");
        }
        if !is_content && let Err(why) = names::check_name(&entry.name) {
            return refuse(index, why);
        }
        // A slash before each name but the first.
        let path_bytes = *parent_bytes + usize::from(entry.parent.is_some()) + entry.name.len();
        if path_bytes > MAX_PATH_BYTES {
            return refuse(index, "the path is longer than 4095 bytes");
        }
        if last.is_some_and(|last| entries[last].name >= entry.name) {
            return refuse(index, "its name is a duplicate or out of order");
        }
        *last = Some(index);
        let Meta { mode, mtime_ns, .. } = entry.meta;
        if mode > 0o777 || mtime_ns > 999_999_999 {
            return refuse(index, "an invalid mode or time");
        }
        if entry.kind == EntryKind::Directory {
            open.push((Some(index as u32), path_bytes, None));
        }
    }
    Ok(())
}

/// The path of an entry whose parents precede it.
fn wire_path(entries: &[Entry], entry: u32) -> Vec<u8> {
    let mut names = Vec::new();
    let mut next = Some(entry);
    while let Some(entry) = next.and_then(|index| entries.get(index as usize)) {
        names.push(&*entry.name);
        next = entry.parent;
    }
    names.reverse();
    names.join(&b'/')
}

/// Names as bytes of postcard.
mod name_bytes {
    use super::raw;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(name: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        raw::serialize(name, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[u8]>, D::Error> {
        raw::deserialize(deserializer).map(Box::from)
    }
}

#[cfg(test)]
mod tests;
