//! The store of a receiver on disk.
//!
//! Files grow in a hidden folder beside the destination, which the manifest's id names:
//! `.multirail-ID.multirail-part`, with one file for each entry, named by its number. The folder is
//! found again after a crash (`open`), and no file has its name before all are complete (`finish`).
//! No file lists the pieces that are stored: their hashes tell.
//!
//! Files at the destination with the right length and modification time are examined, too. A host
//! that was stopped while it named files, or that has some of them from another transfer, fetches
//! only what it lacks.

pub(crate) mod abandoned;
mod finish;
mod holes;
mod open;
#[cfg(test)]
mod resume_tests;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use crate::store::api::{Store, Written};
use crate::store::error::StoreError;
use crate::store::files::OpenFiles;
use crate::store::manifest::{Entry, Manifest, Span};
use multirail_net::quota::Reservation;
use multirail_net::sync::{lock, read};
use multirail_proto::multicast::PieceSet;
use multirail_tree::dir::Dir;
use multirail_tree::report::Report;
use multirail_tree::root::Root;
use multirail_tree::target::Target;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// The file in the hidden folder with the name of the destination, if that is about to be made.
const MARK: &str = "name";

/// Where files go, as [`multirail_tree::target`] says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    /// The served folder. The destination cannot leave it.
    pub root: &'a Root,
    /// The relative path below it, as the peer gave it. Empty: the folder itself.
    pub path: &'a Path,
}

/// How to store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TreeOptions {
    /// Whether the content of a file is synced to disk before the file gets its name, and names
    /// before the store is complete; default no. Costs the disk's latency for each file and
    /// directory.
    pub sync: bool,
}

/// Incomplete and complete files. Memory: the manifest, a bit for each piece and a byte for each
/// file.
///
/// Dropping the store keeps its files for the next attempt.
#[derive(Debug)]
pub(crate) struct TreeStore {
    manifest: Arc<Manifest>,
    sync: bool,
    /// The destination as its user knows it.
    shown: PathBuf,
    /// The folder that everything goes into, as its user knows it.
    folder_shown: PathBuf,
    /// That folder.
    base: Dir,
    folder_name: OsString,
    /// Locked for as long as the store lives.
    folder: Dir,
    /// Locked after `stage`, and never while `files` is locked.
    held: Mutex<PieceSet>,
    /// Writers hold it for reading, so that nothing is written once files get their names.
    stage: RwLock<Stage>,
    files: Mutex<Files>,
    /// Of the quota of the root, for what was missing at the beginning.
    reserved: Reservation,
    /// What was there at the beginning.
    had_bytes: u64,
}

/// The location of each file.
#[derive(Debug)]
struct Files {
    target: Target,
    /// By entry.
    places: Vec<EntryLocation>,
    open: OpenFiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryLocation {
    /// The file is not made yet, or is a directory.
    Nowhere,
    /// The file is in the hidden folder.
    Part,
    /// The file is at its destination: moved or found there.
    Final,
}

/// The stages follow each other in this order.
#[derive(Debug)]
enum Stage {
    Gathering,
    /// All files have their names: the hidden folder is removed.
    Over(Report),
}

impl TreeStore {
    /// Counts what this store will write in the quota of the root, of which `reserved` was taken for
    /// everything.
    pub(crate) fn counting(mut self, mut reserved: Reservation) -> Self {
        self.had_bytes = self.held_bytes();
        let missing_bytes = self.manifest.pieces().total_bytes - self.had_bytes;
        // Without a missing piece, all that is left is names.
        let keeps_all = missing_bytes > 0 || self.had_bytes == 0;
        reserved.shrink(if keeps_all { reserved.bytes().saturating_sub(self.had_bytes) } else { 0 });
        self.reserved = reserved;
        self
    }

    fn held_bytes(&self) -> u64 {
        let (held, pieces) = (self.lock_held(), self.manifest.pieces());
        let ranges = (0..pieces.count()).filter(|piece| held.contains(*piece)).map(|piece| pieces.range(piece));
        ranges.map(|range| range.end - range.start).sum()
    }

    fn lock_files(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }

    fn lock_held(&self) -> MutexGuard<'_, PieceSet> {
        lock(&self.held)
    }

    fn entry(&self, entry: u32) -> &Entry {
        &self.manifest.entries()[entry as usize]
    }

    fn error(&self, files: &Files, entry: u32, error: &io::Error) -> StoreError {
        StoreError::io(&self.shown(files, entry), error)
    }

    /// The path of an entry as the user knows it.
    fn shown(&self, files: &Files, entry: u32) -> PathBuf {
        files.target.shown(&self.shown, &self.manifest.wire_path(entry))
    }

    fn write_span(&self, span: &Span, bytes: &[u8]) -> Result<(), StoreError> {
        let (file, place) = self.file_to_write(span.entry)?;
        let file = match place {
            // A file at its destination is never written to: it already has these bytes.
            EntryLocation::Final if is_content(&file, span.offset, bytes) => return Ok(()),
            EntryLocation::Final => self.take_back(span.entry)?,
            EntryLocation::Nowhere | EntryLocation::Part => file,
        };
        file.write_all_at(bytes, span.offset).map_err(|e| self.error(&self.lock_files(), span.entry, &e))
    }

    /// The file of an entry, which is created if there is none.
    fn file_to_write(&self, entry: u32) -> Result<(Arc<File>, EntryLocation), StoreError> {
        let mut files = self.lock_files();
        if files.places[entry as usize] != EntryLocation::Nowhere {
            let file = self.open_file(&mut files, entry).map_err(|e| self.error(&files, entry, &e))?;
            return Ok((file, files.places[entry as usize]));
        }
        let file = self.create_part(entry).map_err(|e| self.error(&files, entry, &e))?;
        files.places[entry as usize] = EntryLocation::Part;
        Ok((files.open.insert(entry, file), EntryLocation::Part))
    }

    /// Creates the part of an entry, with its length. It takes room on the disk as pieces arrive.
    fn create_part(&self, entry: u32) -> io::Result<File> {
        let (name, total_bytes) = (part_name(entry), self.entry(entry).total_bytes());
        let file = self.folder.create(&name)?;
        file.set_len(total_bytes).inspect_err(|_| drop(self.folder.remove_file(&name)))?;
        Ok(file)
    }

    /// Makes a part of a file at its destination that is not the file after all, with its right
    /// pieces.
    fn take_back(&self, entry: u32) -> Result<Arc<File>, StoreError> {
        let mut files = self.lock_files();
        let mut old = self.open_file(&mut files, entry).map_err(|e| self.error(&files, entry, &e))?;
        if files.places[entry as usize] != EntryLocation::Final {
            return Ok(old);
        }
        if !old.metadata().is_ok_and(|stat| is_as_sent(self.entry(entry), &stat)) {
            let (path, reason) = (self.shown(&files, entry), "it was modified during the transfer".to_owned());
            return Err(StoreError::Changed { path, reason });
        }
        let copied = self.create_part(entry).and_then(|mut part| {
            io::Seek::rewind(&mut old)?;
            io::copy(&mut &*old, &mut part)
                .map(|_| part)
                .inspect_err(|_| drop(self.folder.remove_file(&part_name(entry))))
        });
        let part = copied.map_err(|e| self.error(&files, entry, &e))?;
        files.places[entry as usize] = EntryLocation::Part;
        Ok(files.open.insert(entry, part))
    }

    /// The file of an entry, wherever it is.
    fn open_file(&self, files: &mut Files, entry: u32) -> io::Result<Arc<File>> {
        if let Some(file) = files.open.get(entry) {
            return Ok(file);
        }
        let file = match files.places[entry as usize] {
            EntryLocation::Nowhere => return Err(io::ErrorKind::NotFound.into()),
            EntryLocation::Part => self.folder.child_file_writable(&part_name(entry))?,
            EntryLocation::Final => {
                let found = files.target.file(&self.manifest.wire_path(entry), self.sync);
                let (dir, name) = found.map_err(|problem| io::Error::other(problem.reason))?;
                dir.child_file(&name)?
            }
        };
        Ok(files.open.insert(entry, file))
    }

    fn read_span(&self, span: &Span, buffer: &mut [u8]) -> Result<(), StoreError> {
        let mut files = self.lock_files();
        let file = self.open_file(&mut files, span.entry).map_err(|e| self.error(&files, span.entry, &e))?;
        drop(files);
        let read = file.read_exact_at(&mut buffer[span.part.clone()], span.offset);
        read.map_err(|e| self.error(&self.lock_files(), span.entry, &e))
    }
}

impl Store for TreeStore {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn held(&self) -> PieceSet {
        self.lock_held().clone()
    }

    fn write(&self, piece: u32, bytes: &[u8]) -> Result<Written, StoreError> {
        self.manifest.check(piece, bytes)?;
        let stage = read(&self.stage);
        match *stage {
            Stage::Over(_) => return Ok(Written::Already),
            Stage::Gathering if self.lock_held().contains(piece) => return Ok(Written::Already),
            Stage::Gathering => {}
        }
        for span in self.manifest.spans(self.manifest.pieces().range(piece)) {
            self.write_span(&span, &bytes[span.part.clone()])?;
        }
        // Two threads with the same piece write the same bytes to the same place, and one of them
        // reports it as new.
        Ok(if self.lock_held().insert(piece) { Written::New } else { Written::Already })
    }

    fn read(&self, piece: u32, offset: u32, buffer: &mut [u8]) -> Result<(), StoreError> {
        let range = self.manifest.stretch(piece, offset, buffer.len())?;
        if !self.lock_held().contains(piece) {
            return Err(StoreError::NotHeld { piece });
        }
        self.manifest.spans(range).try_for_each(|span| self.read_span(&span, buffer))
    }

    fn finish(&self) -> Result<Report, StoreError> {
        self.give_names()
    }
}

impl Drop for TreeStore {
    fn drop(&mut self) {
        if matches!(self.stage.get_mut(), Ok(Stage::Gathering)) {
            // Only an empty folder is removed.
            let _ = self.base.remove_dir(&self.folder_name);
            // What arrived stays on the disk for the next attempt.
            self.reserved.shrink(self.held_bytes() - self.had_bytes);
        }
        std::mem::take(&mut self.reserved).keep();
        self.folder.unlock();
    }
}

/// The name of the unfinished file of an entry.
fn part_name(entry: u32) -> OsString {
    entry.to_string().into()
}

fn is_content(file: &File, offset: u64, bytes: &[u8]) -> bool {
    let mut there = vec![0; bytes.len()];
    file.read_exact_at(&mut there, offset).is_ok() && there == bytes
}

/// Whether a file can be the one that `entry` describes.
fn is_as_sent(entry: &Entry, stat: &std::fs::Metadata) -> bool {
    stat.is_file()
        && stat.len() == entry.total_bytes()
        && (stat.mtime(), stat.mtime_nsec()) == (entry.meta.mtime_s, i64::from(entry.meta.mtime_ns))
}
