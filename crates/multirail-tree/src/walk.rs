//! Reads a directory tree entry by entry. It keeps one open directory for each level.

use crate::dir::{Dir, Entries, Kind};
use crate::filter::Filter;
use crate::meta::Meta;
use crate::part;
use crate::report::{Cause, Problem};
use crate::stat::Stat;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The deepest level that is read. Each level holds two descriptors.
pub(crate) const MAX_DEPTH: usize = 200;

/// The next entry of a tree; [`Walk::path`] is its path.
pub enum Found {
    /// A directory begins. Its entries follow.
    Directory,
    /// All entries of a directory have been found.
    DirectoryEnd(Meta),
    /// A file. [`Walk::open`] opens it.
    File(Stat),
    /// A symbolic link. [`Walk::read_link`] reads it.
    Symlink(Stat),
    /// Another type of entry, in words.
    Other(&'static str),
    /// The entry cannot be read.
    Failed(Problem),
}

/// A walk through a tree, depth first. A directory is reported before and after its entries.
/// Symbolic links are not followed.
pub struct Walk {
    path: Vec<u8>,
    levels: Vec<Level>,
    /// A directory that is open and not yet reported.
    entering: Option<Dir>,
    /// The name of the entry that was found last.
    name: OsString,
    /// Says what is left out.
    filter: Option<Arc<Filter>>,
    ended: Option<Dir>,
}

struct Level {
    dir: Dir,
    entries: Entries,
    /// The length of this directory's path, in bytes.
    path_bytes: usize,
}

impl Walk {
    /// Starts a walk through `dir`, whose path on the wire is `top`.
    pub fn new(dir: Dir, top: &[u8]) -> Self {
        Self {
            path: top.to_vec(),
            levels: Vec::new(),
            entering: Some(dir),
            name: OsString::new(),
            filter: None,
            ended: None,
        }
    }

    /// Leaves out what `filter` excludes, and does not report it.
    #[must_use]
    pub fn filtered(mut self, filter: Option<Arc<Filter>>) -> Self {
        self.filter = filter;
        self
    }

    /// The path of the entry that was found last.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Opens the file that was found last, for reading.
    pub fn open(&self) -> io::Result<File> {
        self.dir()?.child_file(&self.name)
    }

    /// Reads the symbolic link that was found last.
    pub fn read_link(&self) -> io::Result<Vec<u8>> {
        self.dir()?.read_link(&self.name)
    }

    /// The names in the directory that was found last.
    pub fn names(&self) -> io::Result<Entries> {
        self.dir()?.entries()
    }

    /// The directory whose end was found last.
    pub fn ended(&self) -> Option<&Dir> {
        self.ended.as_ref()
    }

    /// The directory of the entry that was found last.
    fn dir(&self) -> io::Result<&Dir> {
        self.levels.last().map(|level| &level.dir).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The next entry, or `None` at the end of the tree.
    pub fn find_next(&mut self) -> Option<Found> {
        if let Some(dir) = self.entering.take() {
            return Some(self.enter(dir));
        }
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_bytes);
            self.name = match level.entries.next() {
                Some(Ok(name)) => name,
                Some(Err(error)) => {
                    // This ends the directory, because a broken one repeats its error without end.
                    self.levels.pop();
                    return Some(Found::Failed(Problem::io(Cause::Read, &error)));
                }
                None => {
                    let level = self.levels.pop()?;
                    let meta = meta_of(&level.dir);
                    self.ended = Some(level.dir);
                    return Some(match meta {
                        Ok(meta) => Found::DirectoryEnd(meta),
                        Err(error) => Found::Failed(Problem::io(Cause::Read, &error)),
                    });
                }
            };
            self.path.push(b'/');
            self.path.extend_from_slice(self.name.as_bytes());
            if let Some(found) = self.look() {
                return Some(found);
            }
        }
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

    /// Looks at the entry that was found last; `None` if it is excluded.
    fn look(&mut self) -> Option<Found> {
        let stat = self.dir().and_then(|dir| dir.stat_of(&self.name));
        let is_dir = matches!(&stat, Ok(Some(stat)) if stat.kind == Kind::Directory);
        if self.filter.as_ref().is_some_and(|filter| filter.excludes(&self.path, is_dir)) {
            return None;
        }
        Some(self.found(stat))
    }

    fn found(&mut self, stat: io::Result<Option<Stat>>) -> Found {
        if part::is_part_name(&self.name) {
            return Found::Other("an unfinished transfer's file");
        }
        if self.path.len() > crate::names::MAX_PATH_BYTES {
            return Found::Failed(Problem::new(Cause::Read, "the path is longer than 4095 bytes"));
        }
        let stat = match stat {
            Ok(Some(stat)) => stat,
            Ok(None) => {
                return Found::Failed(Problem::new(Cause::Read, "it was removed while the tree was read"));
            }
            Err(error) => return Found::Failed(Problem::io(Cause::Read, &error)),
        };
        match stat.kind {
            Kind::File => Found::File(stat),
            Kind::Directory if self.levels.len() >= MAX_DEPTH => {
                Found::Failed(Problem::new(Cause::Read, format!("directories deeper than {MAX_DEPTH} are not copied")))
            }
            Kind::Directory => match self.dir().and_then(|dir| dir.child_dir(&self.name)) {
                Ok(child) => self.enter(child),
                Err(error) => Found::Failed(Problem::io(Cause::Read, &error)),
            },
            Kind::Symlink => Found::Symlink(stat),
            Kind::Special => Found::Other(stat.kind.name()),
        }
    }
}

/// The properties of an open directory.
///
/// # Errors
///
/// If the directory cannot be asked.
pub fn meta_of(dir: &Dir) -> io::Result<Meta> {
    Ok(Stat::from(&dir.as_file()?.metadata()?).meta)
}
