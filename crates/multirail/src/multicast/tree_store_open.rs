//! Opening a store on the disk: what is there already, and whether the rest will fit.

use super::space::{Space, is_hole};
use super::{Destination, Files, MARK, OpenFiles, Place, Stage, TreeOptions, TreeStore, is_as_sent, part_name};
use crate::files;
use crate::files::dir::{Dir, Kind};
use crate::files::names::{self, MAX_NAME_BYTES};
use crate::files::part::PART_SUFFIX;
use crate::files::report::{Cause, Problem};
use crate::files::target::{Expected, Target};
use crate::files::walk::meta_of;
use crate::multicast::manifest::{Entry, EntryKind, Layout, Manifest};
use crate::multicast::manifest_scan::map_pieces;
use crate::multicast::store::StoreError;
use multirail_proto::multicast::PieceSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

/// The owner of a folder that is just being removed makes another try necessary.
const LOCK_TRIES: u32 = 16;
/// Of the id, in the hidden folder's name: half of its hexadecimal digits.
const ID_DIGITS: usize = 32;

impl TreeStore {
    /// Opens the place for the files of `manifest`, with what is there of them already.
    ///
    /// Errors, all before anything is written: [`StoreError::Destination`] and [`StoreError::Io`] where files cannot go there,
    /// [`StoreError::Busy`] while another store has the unfinished files, [`StoreError::NoRoom`] and [`StoreError::NoRoomForFiles`].
    pub fn open(
        manifest: Arc<Manifest>,
        destination: Destination<'_>,
        options: TreeOptions,
    ) -> Result<Self, StoreError> {
        if *manifest.layout() == Layout::Memory {
            return Err(StoreError::Destination("what is sent is no file and has no place on a disk".to_owned()));
        }
        let folder_name = OsString::from(format!(".multirail-{}{PART_SUFFIX}", &manifest.id_hex()[..ID_DIGITS]));
        let target = target(&manifest, destination, &folder_name).map_err(StoreError::Destination)?;
        let shown = match destination {
            Destination::Local(path) | Destination::Below { path, .. } => path.to_owned(),
        };
        let folder_shown = folder_shown(&target, destination);
        let base = target.base().map_err(|e| StoreError::io(&folder_shown, &e))?;
        let folder = own_folder(&base, &folder_name, &folder_shown)?;
        let places = vec![Place::Nowhere; manifest.entries().len()];
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
        };
        store.find_parts().map_err(|e| StoreError::io(&store.folder_shown, &e))?;
        store.look_at_destination()?;
        store.check_space()?;
        store.find_pieces()?;
        Ok(store)
    }

    /// Finds the files in the hidden folder and removes what is none of its.
    fn find_parts(&self) -> io::Result<()> {
        let mut files = self.lock_files();
        for name in self.folder.entries()? {
            let name = name?;
            let entry = name.to_str().and_then(|n| n.parse().ok()).filter(|e: &u32| part_name(*e) == name);
            let known = entry.and_then(|entry| self.manifest.entries().get(entry as usize).zip(Some(entry)));
            match known {
                _ if name == MARK => {}
                Some((described, entry)) if described.total_bytes() > 0 => {
                    // Stopped while it was given its mode, it may have lost its owner's rights.
                    self.folder.set_mode(&name, 0o600)?;
                    // What another length hides or adds is found by the hashes.
                    self.folder.child_file_writable(&name)?.set_len(described.total_bytes())?;
                    files.places[entry as usize] = Place::Part;
                }
                _ => self.folder.remove_file(&name)?,
            }
        }
        Ok(())
    }

    /// Finds files that may be what is sent, and what is in the way.
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
                    // One that cannot be read will be replaced.
                    if files.places[index] == Place::Nowhere
                        && entry.total_bytes() > 0
                        && stat.is_some_and(|stat| stat.is_ok_and(|stat| is_as_sent(entry, &stat)))
                    {
                        files.places[index] = Place::Final;
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

    /// Whether what is still to be written fits.
    fn check_space(&self) -> Result<(), StoreError> {
        let (mut needed_bytes, mut needed) = (0u64, 0u64);
        let space = Space::of(&self.folder).map_err(|e| StoreError::io(&self.folder_shown, &e))?;
        let mut files = self.lock_files();
        for (index, entry) in self.manifest.entries().iter().enumerate() {
            let mut missing = entry.total_bytes().div_ceil(space.block_bytes).saturating_mul(space.block_bytes);
            match files.places[index] {
                Place::Final => continue,
                Place::Nowhere => needed += 1,
                Place::Part => {
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

    /// Hashes what may be there, with all cores.
    fn find_pieces(&self) -> Result<(), StoreError> {
        if self.lock_files().places.iter().all(|place| *place == Place::Nowhere) {
            return Ok(());
        }
        let pieces = self.manifest.pieces();
        let zeros = blake3::hash(&vec![0; pieces.piece_bytes as usize]);
        let found = map_pieces(&pieces, |piece, buffer| -> Result<Option<()>, StoreError> {
            let mut nothing_written = true;
            for span in self.manifest.spans(pieces.range(piece)) {
                let mut files = self.lock_files();
                if files.places[span.entry as usize] == Place::Nowhere {
                    return Ok(None);
                }
                let file = self.open_file(&mut files, span.entry).map_err(|e| self.error(&files, span.entry, &e))?;
                drop(files);
                nothing_written &= is_hole(&file, span.offset, span.part.len() as u64);
            }
            // Zeros may well be what is sent, and some file systems keep them as holes.
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
    let names = manifest.entries().iter().filter(|e| e.parent.is_none()).map(|e| &e.name);
    let tops: Vec<_> =
        names.map(|n| (**n != *names::CONTENT_ONLY.as_bytes()).then(|| OsString::from_vec(n.to_vec()))).collect();
    if let Some(again) = again(manifest, destination, folder_name) {
        return Ok(again);
    }
    let several = tops.len() > 1;
    match destination {
        Destination::Local(path) => {
            let expected = Expected { tops, recursive: true };
            Target::local(path, files::shape(path, several), expected)
        }
        Destination::Below { root, path } => files::put_target(root, names::bytes(path), several),
    }
}

/// The place of a tree that got the destination's name before, or began to.
///
/// By the rules of `cp` it would now go *into* the directory of that name, and a host that comes back would fetch all of it again. It
/// is taken for the tree if the hidden folder says that it was just about to be, or if it and all that is directly in it looks like
/// the tree.
fn again(manifest: &Manifest, destination: Destination<'_>, folder_name: &OsStr) -> Option<Target> {
    let [top, ..] = manifest.entries() else { return None };
    let several = manifest.entries().iter().filter(|e| e.parent.is_none()).count() > 1;
    if several || top.kind() != EntryKind::Directory || *top.name == *names::CONTENT_ONLY.as_bytes() {
        return None;
    }
    let (root, path) = match destination {
        Destination::Local(path) => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (Dir::open(parent).ok()?, PathBuf::from(path.file_name()?))
        }
        Destination::Below { root, path } => {
            (Dir::open(root).ok()?, names::check_path(names::trim_end(names::bytes(path))).ok()?)
        }
    };
    let mut target = Target::named(root, &path)?;
    let (base, name) = (target.base().ok()?, path.file_name()?);
    if base.kind_of(name).ok()? != Some(Kind::Directory) {
        return None;
    }
    let is_begun = base.child_dir(folder_name).is_ok_and(|folder| read_mark(&folder).is_ok_and(|mark| *mark == *name));
    let dir = target.dir(&top.name).ok()??;
    let is_done = || {
        let mut inside = manifest.entries().iter().filter(|e| e.parent == Some(0));
        let looks_right = |entry: &Entry| {
            let name = OsStr::from_bytes(&entry.name);
            match entry.kind() {
                EntryKind::Directory => matches!(dir.kind_of(name), Ok(Some(Kind::Directory))),
                EntryKind::File { .. } => {
                    dir.child_file(name).and_then(|file| file.metadata()).is_ok_and(|stat| is_as_sent(entry, &stat))
                }
            }
        };
        meta_of(&dir).is_ok_and(|meta| meta == top.meta) && inside.all(looks_right)
    };
    (is_begun || is_done()).then_some(target)
}

/// The name that the tree in the hidden `folder` is about to get.
fn read_mark(folder: &Dir) -> io::Result<OsString> {
    let mut name = Vec::new();
    folder.child_file(OsStr::new(MARK))?.take(MAX_NAME_BYTES as u64 + 1).read_to_end(&mut name)?;
    Ok(OsString::from_vec(name))
}

/// What the user calls the folder that everything goes into.
fn folder_shown(target: &Target, destination: Destination<'_>) -> PathBuf {
    let (Destination::Local(path) | Destination::Below { path, .. }) = destination;
    match (if target.new_name().is_some() { path.parent().unwrap_or(path) } else { path }, destination) {
        (path, _) if !path.as_os_str().is_empty() => path.to_owned(),
        (_, Destination::Local(_)) => ".".into(),
        (_, Destination::Below { .. }) => "the served folder".into(),
    }
}

/// Makes the hidden folder, unless it is there, and locks it.
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
        // Whoever had it before may have been done with it a moment ago, and have removed it.
        let still_there = base.child_dir(name).and_then(|again| Ok(identity(&again)? == identity(&dir)?));
        match still_there {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        }
        let stat = dir.as_file().and_then(|file| file.metadata()).map_err(failed)?;
        // SAFETY: it only tells who runs this.
        if stat.uid() != unsafe { libc::geteuid() } || stat.mode() & 0o022 != 0 {
            let reason = format!("the folder {} in it is somebody else's, or open to others", name.display());
            return Err(StoreError::Io { path: shown.to_owned(), reason });
        }
        return Ok(dir);
    }
    Err(StoreError::Busy { path: shown.to_owned() })
}
