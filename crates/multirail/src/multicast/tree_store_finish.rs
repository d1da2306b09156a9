//! The end of a store on the disk: everything gets its mode, its time and its name.

use super::{MARK, Place, Stage, TreeStore, is_as_sent, part_name};
use crate::files::dir::{Dir, Kind};
use crate::files::report::{Cause, Problem};
use crate::files::{Report, Side, part};
use crate::multicast::manifest::EntryKind;
use crate::multicast::store::StoreError;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::sync::PoisonError;

impl TreeStore {
    /// [`super::Store::finish`].
    pub(super) fn give_names(&self) -> Result<Report, StoreError> {
        // Waits for writers that came too late with a piece that is here by now.
        let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Over(Some(report)) = &*stage {
            return Ok(report.clone());
        }
        let held = self.lock_held();
        if !held.is_full() || matches!(*stage, Stage::Over(None)) {
            return Err(StoreError::Incomplete { missing: held.pieces() - held.len() });
        }
        drop(held);
        self.write_mark().map_err(|e| StoreError::io(&self.folder_shown, &e))?;
        let mut report = Report::default();
        let entries = || (0u32..).zip(self.manifest.entries());
        for (index, entry) in entries() {
            let done = match entry.kind() {
                EntryKind::Directory => self.lock_files().target.make_dir(&self.manifest.wire_path(index)),
                EntryKind::File { .. } => self.finish_file(index),
            };
            match (done, entry.kind()) {
                (Err(problem), _) => report.fail(&self.manifest.path(index), Side::Client, problem),
                (Ok(()), EntryKind::Directory) => report.directories += 1,
                (Ok(()), EntryKind::File { total_bytes }) => {
                    report.files += 1;
                    report.bytes += total_bytes;
                }
            }
        }
        // Behind all that is in them, which would change their times.
        for (index, _) in
            entries().filter(|(_, e)| e.kind() == EntryKind::Directory).collect::<Vec<_>>().into_iter().rev()
        {
            if let Err(problem) = self.finish_dir(index) {
                report.fail(&self.manifest.path(index), Side::Client, problem);
            }
        }
        if report.is_success() {
            if let Err(error) = self.remove_mark().and_then(|()| self.base.remove_dir(&self.folder_name)) {
                tracing::warn!(%error, folder = ?self.folder_name, "cannot remove the folder of unfinished files");
            }
            *stage = Stage::Over(Some(report.clone()));
        }
        Ok(report)
    }

    /// Notes the name that a tree is about to get: once there is a directory of that name, opening the store again could not tell
    /// whether the tree belongs into it.
    fn write_mark(&self) -> io::Result<()> {
        let Some(name) = self.lock_files().target.new_name().map(OsStr::to_owned) else { return Ok(()) };
        self.remove_mark()?;
        self.folder.create(OsStr::new(MARK))?.write_all(name.as_bytes())
    }

    pub(super) fn remove_mark(&self) -> io::Result<()> {
        match self.folder.remove_file(OsStr::new(MARK)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Locks the files for one at a time: others are being read by peers.
    fn finish_file(&self, index: u32) -> Result<(), Problem> {
        let failed = |e: io::Error| Problem::io(Cause::Write, &e);
        let (entry, wire) = (self.entry(index), self.manifest.wire_path(index));
        let mut files = self.lock_files();
        let (dir, name) = files.target.file(&wire)?;
        if files.places[index as usize] == Place::Final {
            let file = self.open_file(&mut files, index).map_err(failed)?;
            let stat = file.metadata().map_err(failed)?;
            if !is_as_sent(entry, &stat) {
                return Err(Problem::new(Cause::Changed, "it was written to meanwhile"));
            }
            let mode = entry.meta.mode;
            if stat.permissions().mode() & 0o777 != mode {
                file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
            }
            return Ok(());
        }
        // Whatever is no file must not be replaced by one. Symlinks are replaced, not followed.
        match dir.kind_of(&name).map_err(failed)? {
            None | Some(Kind::File | Kind::Symlink) => {}
            Some(kind) => return Err(Problem::new(Cause::Write, format!("there is {} of that name", kind.name()))),
        }
        let part = match files.places[index as usize] {
            // It is empty.
            Place::Nowhere => {
                let part = self.create_part(index).map_err(failed)?;
                files.places[index as usize] = Place::Part;
                files.open.insert(index, part)
            }
            _ => self.open_file(&mut files, index).map_err(failed)?,
        };
        // Not open for writing any more, or it could not be executed.
        files.open.remove(index);
        part::apply(&part, &entry.meta).map_err(failed)?;
        if self.sync {
            part.sync_all().map_err(failed)?;
        }
        drop(part);
        self.folder.rename_into(&part_name(index), &dir, &name).map_err(|error| match error.raw_os_error() {
            Some(libc::EXDEV) => {
                Problem::new(Cause::Write, "its directory is on another file system than the destination")
            }
            _ => failed(error),
        })?;
        files.places[index as usize] = Place::Final;
        drop(files);
        if self.sync { sync_dir(&dir).map_err(failed) } else { Ok(()) }
    }

    fn finish_dir(&self, index: u32) -> Result<(), Problem> {
        let Some(dir) = self.lock_files().target.dir(&self.manifest.wire_path(index))? else { return Ok(()) };
        let apply = |file: File| part::apply(&file, &self.entry(index).meta);
        dir.as_file().and_then(apply).map_err(|e| Problem::io(Cause::Write, &e))
    }
}

fn sync_dir(dir: &Dir) -> io::Result<()> {
    dir.as_file()?.sync_all()
}
