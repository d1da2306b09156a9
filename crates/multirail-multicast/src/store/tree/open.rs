//! Opening a store on disk: which pieces exist, and whether the rest fits.

use super::abandoned::{ID_DIGITS, KEPT_FOR, remove_abandoned};
use super::holes::is_hole;
use super::{Destination, EntryLocation, Files, MARK, OpenFiles, Stage, TreeOptions, TreeStore, is_as_sent, part_name};
use crate::store::error::StoreError;
use crate::store::manifest::scan::map_pieces;
use crate::store::manifest::{EntryKind, Layout, Manifest};
use multirail_net::quota::Reservation;
use multirail_proto::multicast::PieceSet;
use multirail_tree::dir::{Dir, Kind};
use multirail_tree::names::{self, MAX_NAME_BYTES};
use multirail_tree::part::PART_SUFFIX;
use multirail_tree::report::{Cause, Problem};
use multirail_tree::space::Space;
use multirail_tree::target::{self, Target};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

/// Another attempt is needed if the owner of a folder is just removing it.
const LOCK_TRIES: u32 = 16;

impl TreeStore {
    /// Opens the place for the files of `manifest`, with the pieces that exist.
    ///
    /// Errors, all before anything is written: [`StoreError::Destination`] and [`StoreError::Io`]
    /// if files cannot go there, [`StoreError::Busy`] while another store has the unfinished files,
    /// [`StoreError::NoRoom`] and [`StoreError::NoRoomForFiles`].
    pub(crate) fn open(
        manifest: Arc<Manifest>,
        destination: Destination<'_>,
        options: TreeOptions,
    ) -> Result<Self, StoreError> {
        if *manifest.layout() == Layout::Memory {
            return Err(StoreError::Destination("data from memory cannot be stored as files".to_owned()));
        }
        let folder_name = OsString::from(format!(".multirail-{}{PART_SUFFIX}", &manifest.id_hex()[..ID_DIGITS]));
        let target = target(&manifest, destination, &folder_name).map_err(StoreError::Destination)?;
        let shown = destination.path.to_owned();
        let folder_shown = folder_shown(&target, destination);
        let base = target.base().map_err(|e| StoreError::io(&folder_shown, &e))?;
        let folder = own_folder(&base, &folder_name, &folder_shown)?;
        if let Err(error) = remove_abandoned(&base, KEPT_FOR) {
            tracing::warn!(%error, "cannot look for the files of interrupted broadcasts");
        }
        let places = vec![EntryLocation::Nowhere; manifest.entries().len()];
        let held = PieceSet::none(manifest.pieces().count());
        let store = Self {
            sync: options.sync,
            shown,
            folder_shown,
            base,
            folder_name,
            folder,
            held: Mutex::new(held),
            stage: RwLock::new(Stage::Gathering),
            files: Mutex::new(Files { target, places, open: OpenFiles::default() }),
            manifest,
            reserved: Reservation::default(),
            had_bytes: 0,
        };
        store.find_parts().map_err(|e| StoreError::io(&store.folder_shown, &e))?;
        store.look_at_destination()?;
        store.check_space()?;
        store.find_pieces()?;
        Ok(store)
    }

    /// Finds the files in the hidden folder and removes foreign ones.
    fn find_parts(&self) -> io::Result<()> {
        let mut files = self.lock_files();
        for name in self.folder.entries()? {
            let name = name?;
            let entry = name.to_str().and_then(|n| n.parse().ok()).filter(|e: &u32| part_name(*e) == name);
            let known = entry.and_then(|entry| self.manifest.entries().get(entry as usize).zip(Some(entry)));
            match known {
                _ if name == MARK => {}
                Some((described, entry)) if described.total_bytes() > 0 => {
                    // A file that was stopped while it got its mode may have lost its owner's
                    // rights.
                    self.folder.set_mode(&name, 0o600)?;
                    // The hashes detect content that another length hides or adds.
                    self.folder.child_file_writable(&name)?.set_len(described.total_bytes())?;
                    files.places[entry as usize] = EntryLocation::Part;
                }
                _ => self.folder.remove_file(&name)?,
            }
        }
        Ok(())
    }

    /// Finds files that may be complete, and files that are in the way.
    fn look_at_destination(&self) -> Result<(), StoreError> {
        let mut files = self.lock_files();
        for (index, entry) in self.manifest.entries().iter().enumerate() {
            let wire = self.manifest.wire_path(index as u32);
            let found = match entry.kind() {
                EntryKind::Directory => files.target.kind(&wire).map(|kind| (kind, None)),
                EntryKind::File { .. } => files.target.file_if_any(&wire).and_then(|place| {
                    let Some((dir, name)) = place else { return Ok((None, None)) };
                    let kind = dir.kind_of(&name).map_err(|e| Problem::io(Cause::Write, &e))?;
                    Ok((kind, Some((dir, name))))
                }),
            };
            let error = |problem| StoreError::problem(&self.shown(&files, index as u32), problem);
            let (kind, place) = found.map_err(error)?;
            let is_file = entry.kind() != EntryKind::Directory;
            match kind {
                None => {}
                Some(Kind::Directory) if !is_file => {}
                Some(Kind::Symlink) if is_file => {}
                Some(Kind::File) if is_file => {
                    let stat = place.map(|(dir, name)| dir.child_file(&name).and_then(|file| file.metadata()));
                    // A file that cannot be read will be replaced.
                    if files.places[index] == EntryLocation::Nowhere
                        && entry.total_bytes() > 0
                        && stat.is_some_and(|stat| stat.is_ok_and(|stat| is_as_sent(entry, &stat)))
                    {
                        files.places[index] = EntryLocation::Final;
                    }
                }
                Some(kind) => {
                    let reason = format!("there is {} of that name", kind.name());
                    return Err(error(Problem::new(Cause::Write, reason)));
                }
            }
        }
        Ok(())
    }

    /// Checks that the rest fits on the disk.
    fn check_space(&self) -> Result<(), StoreError> {
        let (mut needed_bytes, mut needed) = (0u64, 0u64);
        let space = self.folder.as_file().and_then(|file| Space::of(&file));
        let space = space.map_err(|e| StoreError::io(&self.folder_shown, &e))?;
        let mut files = self.lock_files();
        for (index, entry) in self.manifest.entries().iter().enumerate() {
            let mut missing = entry.total_bytes().div_ceil(space.block_bytes).saturating_mul(space.block_bytes);
            match files.places[index] {
                EntryLocation::Final => continue,
                EntryLocation::Nowhere => needed += 1,
                EntryLocation::Part => {
                    let stat = self.open_file(&mut files, index as u32).and_then(|file| file.metadata());
                    let stat = stat.map_err(|e| self.error(&files, index as u32, &e))?;
                    missing = missing.saturating_sub(stat.blocks() * 512);
                }
            }
            needed_bytes = needed_bytes.saturating_add(missing);
        }
        let path = self.folder_shown.clone();
        if needed_bytes > space.free_bytes {
            return Err(StoreError::NoRoom { path, needed_bytes, free_bytes: space.free_bytes });
        }
        if needed > space.free_files {
            return Err(StoreError::NoRoomForFiles { path, needed, free: space.free_files });
        }
        Ok(())
    }

    /// Hashes what may be complete, with all cores.
    fn find_pieces(&self) -> Result<(), StoreError> {
        if self.lock_files().places.iter().all(|place| *place == EntryLocation::Nowhere) {
            return Ok(());
        }
        let pieces = self.manifest.pieces();
        let zeros = blake3::hash(&vec![0; pieces.piece_bytes as usize]);
        let found = map_pieces(&pieces, |piece, buffer| -> Result<Option<()>, StoreError> {
            let mut nothing_written = true;
            for span in self.manifest.spans(pieces.range(piece)) {
                let mut files = self.lock_files();
                if files.places[span.entry as usize] == EntryLocation::Nowhere {
                    return Ok(None);
                }
                let file = self.open_file(&mut files, span.entry).map_err(|e| self.error(&files, span.entry, &e))?;
                drop(files);
                nothing_written &= is_hole(&file, span.offset, span.part.len() as u64);
            }
            // Zeros may be correct, and some file systems store them as holes.
            let hash = if nothing_written && buffer.len() == pieces.piece_bytes as usize {
                zeros
            } else {
                for span in self.manifest.spans(pieces.range(piece)) {
                    match self.read_span(&span, buffer) {
                        Err(StoreError::Changed { .. }) => return Ok(None),
                        read => read?,
                    }
                }
                blake3::hash(buffer)
            };
            Ok((*hash.as_bytes() == *self.manifest.hash(piece)).then_some(()))
        })?;
        let mut held = self.lock_held();
        for (piece, ()) in found {
            held.insert(piece);
        }
        Ok(())
    }
}

fn target(manifest: &Manifest, destination: Destination<'_>, folder_name: &OsStr) -> Result<Target, String> {
    let mut tops = manifest.entries().iter().filter(|e| e.parent.is_none());
    let is_directory = tops.next().is_some_and(|top| top.kind() == EntryKind::Directory);
    let mut target = match begun(destination, folder_name) {
        Some(begun) => begun,
        None => target::put_target(destination.root, names::bytes(destination.path), tops.next().is_some())?,
    };
    if is_directory {
        target.use_as_folder();
    }
    Ok(target)
}

/// The destination of a transfer that was stopped after it had made the destination a directory. Its
/// hidden folder is beside the destination, and not in it.
fn begun(destination: Destination<'_>, folder_name: &OsStr) -> Option<Target> {
    let root = destination.root.open().ok()?;
    let path = names::check_path(names::trim_end(names::bytes(destination.path))).ok()?;
    let mut target = Target::named(root, &path)?;
    let (base, name) = (target.base().ok()?, path.file_name()?);
    let is_marked = read_mark(&base.child_dir(folder_name).ok()?).is_ok_and(|mark| mark == name);
    if !is_marked || base.kind_of(name).ok()? != Some(Kind::Directory) {
        return None;
    }
    target.use_as_folder();
    Some(target)
}

/// The name of the destination of the hidden `folder`, if that is about to be made.
fn read_mark(folder: &Dir) -> io::Result<OsString> {
    let mut name = Vec::new();
    folder.child_file(OsStr::new(MARK))?.take(MAX_NAME_BYTES as u64 + 1).read_to_end(&mut name)?;
    Ok(OsString::from_vec(name))
}

/// The folder that everything goes into, as the user knows it.
fn folder_shown(target: &Target, destination: Destination<'_>) -> PathBuf {
    let path = destination.path;
    let folder = if target.new_name().is_some() { path.parent().unwrap_or(path) } else { path };
    if folder.as_os_str().is_empty() { "the served folder".into() } else { folder.to_owned() }
}

/// Makes the hidden folder unless it exists, and locks it.
fn own_folder(base: &Dir, name: &OsStr, shown: &Path) -> Result<Dir, StoreError> {
    let failed = |e: io::Error| StoreError::io(shown, &e);
    let identity = |dir: &Dir| dir.as_file().and_then(|file| file.metadata()).map(|stat| (stat.dev(), stat.ino()));
    for _ in 0..LOCK_TRIES {
        match base.make_dir(name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let dir = match base.child_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(failed)?,
        };
        if !dir.lock().map_err(failed)? {
            return Err(StoreError::Busy { path: shown.to_owned() });
        }
        // The previous owner may have finished a moment ago and removed the folder.
        let still_there = base.child_dir(name).and_then(|again| Ok(identity(&again)? == identity(&dir)?));
        match still_there {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        }
        let stat = dir.as_file().and_then(|file| file.metadata()).map_err(failed)?;
        // SAFETY: the call takes no pointers.
        if stat.uid() != unsafe { libc::geteuid() } || stat.mode() & 0o022 != 0 {
            let reason = format!("the folder {} in it belongs to another user, or is open to others", name.display());
            return Err(StoreError::Io { path: shown.to_owned(), reason });
        }
        return Ok(dir);
    }
    Err(StoreError::Busy { path: shown.to_owned() })
}
