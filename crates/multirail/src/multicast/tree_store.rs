//! A receiver's store on the disk.
//!
//! Files grow in a hidden folder beside the destination, which is named by the manifest's id: `.multirail-ID.multirail-part`, with one
//! file for each entry, called by its number. So it is found again after a crash (`tree_store_open.rs`), and nothing has its name
//! before all is there (`tree_store_finish.rs`). Which pieces are in it is nowhere written down: their hashes tell.
//!
//! What is at the destination already with the right length and modification time is looked at, too: a host that was stopped while it
//! gave files their names, or that got some of them by another transfer, fetches only what it lacks.

#[path = "tree_store_finish.rs"]
mod finish;
#[path = "tree_store_open.rs"]
mod open;
#[cfg(test)]
#[path = "tree_store_resume_tests.rs"]
mod resume_tests;
#[path = "tree_store_space.rs"]
mod space;
#[cfg(test)]
#[path = "tree_store_space_tests.rs"]
mod space_tests;
#[cfg(test)]
#[path = "tree_store_testing.rs"]
mod testing;
#[cfg(test)]
#[path = "tree_store_tests.rs"]
mod tests;

use super::manifest::{Entry, Manifest, Span};
use super::store::{Store, StoreError, Written};
use super::store_files::OpenFiles;
use crate::files::Report;
use crate::files::dir::Dir;
use crate::files::part;
use crate::files::target::Target;
use multirail_proto::multicast::PieceSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Shorter files are written at once or nearly so: taking room for them first costs more than it saves.
const RESERVE_FROM_BYTES: u64 = 1 << 20;

/// What tells, in the hidden folder, which name the tree in it is about to get.
const MARK: &str = "name";

/// Where files go, as with the last argument of `cp`: into it if it is a directory, under its name otherwise. Unlike with `cp`, a tree
/// that got the destination's name goes to the same place, and not into itself, when it is sent again.
#[derive(Debug, Clone, Copy)]
pub enum Destination<'a> {
    /// A path of this host's user.
    Local(&'a Path),
    /// A path below a served folder, which nothing leads out of. Relative; empty: the folder itself.
    Below {
        /// The served folder.
        root: &'a Path,
        /// What the peer calls the destination.
        path: &'a Path,
    },
}

/// How to store.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeOptions {
    /// Give no file its name before its content is on the disk; default no. Costs the disk's latency a file.
    pub sync: bool,
}

/// Files in the making, and files that are done. Memory: the manifest, a bit a piece and a byte a file.
///
/// Dropping it leaves what is there for the next time, see [`TreeStore::discard`].
#[derive(Debug)]
pub struct TreeStore {
    manifest: Arc<Manifest>,
    sync: bool,
    /// The destination as its user calls it.
    shown: PathBuf,
    /// The same of the folder that everything goes into.
    folder_shown: PathBuf,
    /// That folder.
    base: Dir,
    folder_name: OsString,
    /// Locked for as long as the store lives.
    folder: Dir,
    /// Locked after `stage`, and never while `files` is.
    held: Mutex<PieceSet>,
    /// Writers hold it for reading, so that nothing is written once files get their names.
    stage: RwLock<Stage>,
    files: Mutex<Files>,
}

/// Where each file is.
#[derive(Debug)]
struct Files {
    target: Target,
    /// By entry.
    places: Vec<Place>,
    open: OpenFiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is not made yet, or is a directory.
    Nowhere,
    /// In the hidden folder.
    Part,
    /// At its destination: put there by this store, or found there.
    Final,
}

/// Comes from the one before it.
#[derive(Debug)]
enum Stage {
    Gathering,
    /// All files have their names, or all is thrown away: the hidden folder is gone.
    Over(Option<Report>),
}

impl TreeStore {
    /// Throws away what is not finished. The store cannot be used any more.
    pub fn discard(&self) -> Result<(), StoreError> {
        let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*stage, Stage::Over(_)) {
            return Ok(());
        }
        *self.lock_held() = PieceSet::none(self.manifest.pieces().count());
        let mut files = self.lock_files();
        for entry in 0..files.places.len() as u32 {
            files.open.remove(entry);
            if std::mem::replace(&mut files.places[entry as usize], Place::Nowhere) == Place::Part {
                self.folder.remove_file(&part_name(entry)).map_err(|e| self.error(&files, entry, &e))?;
            }
        }
        self.remove_mark().map_err(|e| StoreError::io(&self.folder_shown, &e))?;
        self.base.remove_dir(&self.folder_name).map_err(|e| StoreError::io(&self.folder_shown, &e))?;
        *stage = Stage::Over(None);
        Ok(())
    }

    fn lock_files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_held(&self) -> MutexGuard<'_, PieceSet> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, entry: u32) -> &Entry {
        &self.manifest.entries()[entry as usize]
    }

    fn error(&self, files: &Files, entry: u32, error: &io::Error) -> StoreError {
        StoreError::io(&self.shown(files, entry), error)
    }

    /// What the user calls an entry.
    fn shown(&self, files: &Files, entry: u32) -> PathBuf {
        files.target.shown(&self.shown, &self.manifest.wire_path(entry))
    }

    fn write_span(&self, span: &Span, bytes: &[u8]) -> Result<(), StoreError> {
        let (file, place) = self.file_to_write(span.entry)?;
        let file = match place {
            // What is in its place already is never written to; what else could be in it than these bytes?
            Place::Final if is_content(&file, span.offset, bytes) => return Ok(()),
            Place::Final => self.take_back(span.entry)?,
            Place::Nowhere | Place::Part => file,
        };
        file.write_all_at(bytes, span.offset).map_err(|e| self.error(&self.lock_files(), span.entry, &e))
    }

    /// The file of an entry, which is created if there is none.
    fn file_to_write(&self, entry: u32) -> Result<(Arc<File>, Place), StoreError> {
        let mut files = self.lock_files();
        if files.places[entry as usize] != Place::Nowhere {
            let file = self.open_file(&mut files, entry).map_err(|e| self.error(&files, entry, &e))?;
            return Ok((file, files.places[entry as usize]));
        }
        let file = self.create_part(entry).map_err(|e| self.error(&files, entry, &e))?;
        files.places[entry as usize] = Place::Part;
        Ok((files.open.insert(entry, file), Place::Part))
    }

    /// Creates the part of an entry, with its length.
    fn create_part(&self, entry: u32) -> io::Result<File> {
        let (name, total_bytes) = (part_name(entry), self.entry(entry).total_bytes());
        let file = self.folder.create(&name)?;
        let reserved = if total_bytes < RESERVE_FROM_BYTES { Ok(()) } else { part::reserve(&file, total_bytes) };
        let sized = reserved.and_then(|()| file.set_len(total_bytes));
        sized.inspect_err(|_| drop(self.folder.remove_file(&name)))?;
        Ok(file)
    }

    /// Makes a part again of what is at its destination but is not the file after all, with what is right in it.
    fn take_back(&self, entry: u32) -> Result<Arc<File>, StoreError> {
        let mut files = self.lock_files();
        let mut old = self.open_file(&mut files, entry).map_err(|e| self.error(&files, entry, &e))?;
        if files.places[entry as usize] != Place::Final {
            return Ok(old);
        }
        if !old.metadata().is_ok_and(|stat| is_as_sent(self.entry(entry), &stat)) {
            let (path, reason) = (self.shown(&files, entry), "it was written to meanwhile".to_owned());
            return Err(StoreError::Changed { path, reason });
        }
        let copied = self.create_part(entry).and_then(|mut part| {
            io::Seek::rewind(&mut old)?;
            io::copy(&mut &*old, &mut part)
                .map(|_| part)
                .inspect_err(|_| drop(self.folder.remove_file(&part_name(entry))))
        });
        let part = copied.map_err(|e| self.error(&files, entry, &e))?;
        files.places[entry as usize] = Place::Part;
        Ok(files.open.insert(entry, part))
    }

    /// The file of an entry, wherever it is.
    fn open_file(&self, files: &mut Files, entry: u32) -> io::Result<Arc<File>> {
        if let Some(file) = files.open.get(entry) {
            return Ok(file);
        }
        let file = match files.places[entry as usize] {
            Place::Nowhere => return Err(io::ErrorKind::NotFound.into()),
            Place::Part => self.folder.child_file_writable(&part_name(entry))?,
            Place::Final => {
                let found = files.target.file(&self.manifest.wire_path(entry));
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
        let stage = self.stage.read().unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::Over(Some(_)) => return Ok(Written::Already),
            Stage::Over(None) => return Err(StoreError::NotHeld { piece }),
            Stage::Gathering if self.lock_held().contains(piece) => return Ok(Written::Already),
            Stage::Gathering => {}
        }
        for span in self.manifest.spans(self.manifest.pieces().range(piece)) {
            self.write_span(&span, &bytes[span.part.clone()])?;
        }
        // Two threads with the same piece write the same bytes to the same place, and one of them is told that it is new.
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
            // Only what is empty goes.
            let _ = self.base.remove_dir(&self.folder_name);
        }
        self.folder.unlock();
    }
}

/// What the unfinished file of an entry is called.
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
