//! A directory tree as a stream: one open directory a level is all that it keeps.

use super::dir::{Dir, Entries, Kind};
use super::part;
use super::report::{Cause, Problem};
use super::wire::Meta;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// Deeper directories are not copied: each level holds two descriptors.
pub(crate) const MAX_DEPTH: usize = 200;

/// What comes next in a tree; [`Walk::path`] says where.
pub(crate) enum Found {
    /// Its content follows.
    Directory,
    DirectoryEnd(Meta),
    File(io::Result<File>),
    /// Neither file nor directory; says what.
    Other(&'static str),
    Failed(Problem),
}

/// A walk through a tree: depth first, a directory before and after what is in it. Symlinks are not followed.
pub(crate) struct Walk {
    path: Vec<u8>,
    levels: Vec<Level>,
    /// Opened, and not yet told of.
    entering: Option<Dir>,
}

struct Level {
    dir: Dir,
    entries: Entries,
    /// Length of the path of this directory.
    path_bytes: usize,
}

impl Walk {
    /// A walk through `dir`, whose path is `top`.
    pub(crate) fn new(dir: Dir, top: &[u8]) -> Self {
        Self { path: top.to_vec(), levels: Vec::new(), entering: Some(dir) }
    }

    /// The path of what was found last.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(crate) fn next(&mut self) -> Option<Found> {
        if let Some(dir) = self.entering.take() {
            return Some(self.enter(dir));
        }
        let level = self.levels.last_mut()?;
        self.path.truncate(level.path_bytes);
        let name = match level.entries.next() {
            Some(Ok(name)) => name,
            Some(Err(error)) => {
                // The directory's end, too: what is broken gives the same error for ever.
                self.levels.pop();
                return Some(Found::Failed(Problem::io(Cause::Read, &error)));
            }
            None => {
                let level = self.levels.pop()?;
                return Some(match meta_of(&level.dir) {
                    Ok(meta) => Found::DirectoryEnd(meta),
                    Err(error) => Found::Failed(Problem::io(Cause::Read, &error)),
                });
            }
        };
        self.path.push(b'/');
        self.path.extend_from_slice(name.as_bytes());
        Some(self.look_at(&name))
    }

    fn enter(&mut self, dir: Dir) -> Found {
        match dir.entries() {
            Ok(entries) => {
                self.levels.push(Level { dir, entries, path_bytes: self.path.len() });
                Found::Directory
            }
            Err(error) => Found::Failed(Problem::io(Cause::Read, &error)),
        }
    }

    fn look_at(&mut self, name: &OsStr) -> Found {
        let Some(Level { dir, .. }) = self.levels.last() else { return Found::Other("nothing") };
        if part::is_part_name(name) {
            return Found::Other("an unfinished transfer's file");
        }
        if self.path.len() > super::names::MAX_PATH_BYTES {
            return Found::Failed(Problem::new(Cause::Read, "the path is longer than 4095 bytes"));
        }
        match dir.kind_of(name) {
            Ok(Some(Kind::File)) => Found::File(dir.child_file(name)),
            Ok(Some(Kind::Directory)) if self.levels.len() >= MAX_DEPTH => {
                Found::Failed(Problem::new(Cause::Read, format!("directories deeper than {MAX_DEPTH} are not copied")))
            }
            Ok(Some(Kind::Directory)) => match dir.child_dir(name) {
                Ok(child) => self.enter(child),
                Err(error) => Found::Failed(Problem::io(Cause::Read, &error)),
            },
            Ok(Some(other)) => Found::Other(other.name()),
            Ok(None) => Found::Failed(Problem::new(Cause::Read, "it vanished while the tree was read")),
            Err(error) => Found::Failed(Problem::io(Cause::Read, &error)),
        }
    }
}

pub(crate) fn meta_of(dir: &Dir) -> io::Result<Meta> {
    let stat = dir.as_file()?.metadata()?;
    Ok(Meta { mode: stat.mode() & 0o777, mtime_s: stat.mtime(), mtime_ns: stat.mtime_nsec() as u32 })
}
