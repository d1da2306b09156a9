//! The end of a store on disk: every file gets its mode, its time and its name.

use super::{EntryLocation, MARK, Stage, TreeStore, is_as_sent, part_name};
use crate::store::error::StoreError;
use crate::store::manifest::EntryKind;
use multirail_net::sync::write;
use multirail_tree::dir::Kind;
use multirail_tree::report::{Cause, Problem};
use multirail_tree::{
    part,
    report::{Report, Side},
};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

impl TreeStore {
    /// Implements [`Store::finish`](crate::store::Store::finish).
    pub(super) fn give_names(&self) -> Result<Report, StoreError> {
        // Waits for writers with a duplicate of a piece that is stored.
        let mut stage = write(&self.stage);
        if let Stage::Over(report) = &*stage {
            return Ok(report.clone());
        }
        let held = self.lock_held();
        if !held.is_full() {
            return Err(StoreError::Incomplete { missing: held.pieces() - held.len() });
        }
        drop(held);
        self.write_mark().map_err(|e| StoreError::io(&self.folder_shown, &e))?;
        let mut report = Report::default();
        let entries = || (0u32..).zip(self.manifest.entries());
        for (index, entry) in entries() {
            let done = match entry.kind() {
                EntryKind::Directory => self.lock_files().target.make_dir(&self.manifest.wire_path(index), self.sync),
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
        // Directories come after their content, which would change their times.
        for (index, _) in
            entries().filter(|(_, e)| e.kind() == EntryKind::Directory).collect::<Vec<_>>().into_iter().rev()
        {
            if let Err(problem) = self.finish_dir(index) {
                report.fail(&self.manifest.path(index), Side::Client, problem);
            }
        }
        if report.is_success() {
            let removed = self.remove_mark().and_then(|()| self.base.remove_dir(&self.folder_name));
            // It would be back after a power cut.
            let removed = removed.and_then(|()| if self.sync { self.base.sync() } else { Ok(()) });
            if let Err(error) = removed {
                tracing::warn!(%error, folder = ?self.folder_name, "cannot remove the folder of unfinished files");
            }
            *stage = Stage::Over(report.clone());
        }
        Ok(report)
    }

    /// Notes the name of the destination if it does not exist yet. Once it is a directory, opening
    /// the store again would not look for the hidden folder beside it.
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

    /// Locks the files for one at a time, since peers read the others.
    fn finish_file(&self, index: u32) -> Result<(), Problem> {
        let failed = |e: io::Error| Problem::io(Cause::Write, &e);
        let (entry, wire) = (self.entry(index), self.manifest.wire_path(index));
        let mut files = self.lock_files();
        let (dir, name) = files.target.file(&wire, self.sync)?;
        if files.places[index as usize] == EntryLocation::Final {
            let file = self.open_file(&mut files, index).map_err(failed)?;
            let stat = file.metadata().map_err(failed)?;
            if !is_as_sent(entry, &stat) {
                return Err(Problem::new(Cause::Changed, "it was modified during the transfer"));
            }
            let mode = entry.meta.mode;
            if stat.permissions().mode() & 0o777 != mode {
                file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
            }
            // An earlier transfer may have left it in the system's cache.
            if self.sync {
                file.sync_all().and_then(|()| dir.sync()).map_err(failed)?;
            }
            return Ok(());
        }
        // Only a file may be replaced by a file. Symlinks are replaced, not followed.
        match dir.kind_of(&name).map_err(failed)? {
            None | Some(Kind::File | Kind::Symlink) => {}
            Some(kind) => return Err(Problem::new(Cause::Write, format!("there is {} of that name", kind.name()))),
        }
        let part = match files.places[index as usize] {
            // It is empty.
            EntryLocation::Nowhere => {
                let part = self.create_part(index).map_err(failed)?;
                files.places[index as usize] = EntryLocation::Part;
                files.open.insert(index, part)
            }
            _ => self.open_file(&mut files, index).map_err(failed)?,
        };
        // The file is closed for writing; otherwise it could not be executed.
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
        files.places[index as usize] = EntryLocation::Final;
        drop(files);
        if self.sync { dir.sync().map_err(failed) } else { Ok(()) }
    }

    fn finish_dir(&self, index: u32) -> Result<(), Problem> {
        let Some(dir) = self.lock_files().target.dir(&self.manifest.wire_path(index))? else { return Ok(()) };
        let apply = |file: File| {
            part::apply(&file, &self.entry(index).meta)?;
            if self.sync { file.sync_all() } else { Ok(()) }
        };
        dir.as_file().and_then(apply).map_err(|e| Problem::io(Cause::Write, &e))
    }
}
