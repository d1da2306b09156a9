//! Where received files go: by the rule of `rsync`, so that a repeated copy goes to the same place.
//!
//! A source goes into the destination, under its own name. A source that is written with a slash at
//! its end stands for its content, which goes into the destination. The destination is made if it
//! does not exist. Only a single file gets the destination's name, unless the destination is a
//! directory or is written with a slash at its end.

use crate::dir::{Dir, Kind};
use crate::names::{self, WirePath};
use crate::notes::Note;
use crate::part;
use crate::report::{Cause, Problem};
use crate::root::Root;
use crate::stat::Stat;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The destination of a copy. Nothing is written outside `root`.
#[derive(Debug)]
pub struct Target {
    root: Dir,
    /// The directory that receives the files, below the root.
    base: PathBuf,
    /// The name of the destination in `base`, if it is no directory yet: the new name of the only
    /// file, or the name of a directory that is made for the sources.
    rename: Option<OsString>,
    /// `rename` is the name of a directory.
    is_folder: bool,
    /// What the sender may send; `None` if it may send anything, as a client may to a server.
    expected: Option<Expected>,
    /// The directory that was written to last. Files arrive directory by directory.
    parent: Option<(PathBuf, Arc<Dir>)>,
    /// Says where the copy writes, if it is a server's.
    note: Option<Note>,
    /// Symbolic links below the destination are not followed.
    strict: bool,
    /// The name of `base` is on the disk.
    is_base_safe: bool,
}

/// The most names in a directory that are looked at for abandoned parts.
const MAX_SEARCHED_NAMES: usize = 16_384;

/// What the client asked for. Anything else that a server sends is refused.
#[derive(Debug)]
pub struct Expected {
    /// The sources' names; see [`WirePath::top`].
    pub tops: Vec<Option<OsString>>,
    /// Whether directories were asked for.
    pub recursive: bool,
}

/// How many sources there are, and how the destination was written.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// There is more than one source.
    pub several: bool,
    /// The destination ends in a slash.
    pub trailing_slash: bool,
}

impl Target {
    /// The destination `path` below `root`. `shown` is the path as its user wrote it.
    ///
    /// # Errors
    ///
    /// In words, why nothing can be copied there.
    pub fn below(root: Dir, path: &Path, shown: &Path, shape: Shape) -> Result<Target, String> {
        let shown = shown.display();
        let (base, rename) = match root.kind(path) {
            Ok(Kind::Directory) => (path, None),
            Ok(kind) if shape.several || shape.trailing_slash => {
                return Err(format!("{shown} is {}, not a directory", kind.name()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("{shown}: {}", Problem::io(Cause::Write, &error).reason));
            }
            _ => match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) if matches!(root.kind(parent), Ok(Kind::Directory)) => (parent, Some(name)),
                _ => return Err(format!("there is no directory to put {shown} in")),
            },
        };
        let (base, rename) = (base.to_owned(), rename.map(OsStr::to_owned));
        let is_folder = shape.several || shape.trailing_slash;
        Ok(Target { is_folder, ..Self::new(root, base, rename) })
    }

    fn new(root: Dir, base: PathBuf, rename: Option<OsString>) -> Target {
        Target {
            root,
            base,
            rename,
            is_folder: false,
            expected: None,
            parent: None,
            note: None,
            strict: false,
            is_base_safe: false,
        }
    }

    /// The destination that this host's user wrote as `path`. `expected` is `None` if that user is
    /// also the one who sends.
    ///
    /// # Errors
    ///
    /// In words, why nothing can be copied there.
    pub fn local(path: &Path, shape: Shape, expected: Option<Expected>) -> Result<Target, String> {
        let is_dir = std::fs::metadata(path).is_ok_and(|m| m.is_dir());
        let (root, below) = match path.file_name() {
            Some(name) if !is_dir => (path.parent().filter(|p| *p != Path::new("")), Path::new(name)),
            _ => (Some(path), Path::new("")),
        };
        let root = root.unwrap_or(Path::new("."));
        let root = Dir::open(root)
            .map_err(|error| format!("{}: {}", root.display(), Problem::io(Cause::Write, &error).reason))?;
        // A symbolic link as the destination is replaced and not followed.
        let is_link = matches!(root.kind_of(below.as_os_str()), Ok(Some(Kind::Symlink)));
        if is_link && !shape.several && !shape.trailing_slash {
            let rename = Some(below.as_os_str().to_owned());
            return Ok(Target { expected, ..Self::new(root, PathBuf::new(), rename) });
        }
        Ok(Target { expected, ..Self::below(root, below, path, shape)? })
    }

    /// The destination `path` below `root`, also where a directory has that name.
    pub fn named(root: Dir, path: &Path) -> Option<Target> {
        let (base, rename) = (path.parent()?.to_owned(), Some(path.file_name()?.to_owned()));
        Some(Self::new(root, base, rename))
    }

    /// Follows no symbolic link below the destination, because the copy makes such links.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Makes the destination a directory: a source is one. [`Target::make_dir`] does the same.
    pub fn use_as_folder(&mut self) {
        self.is_folder = true;
    }

    /// Makes the destination if it is a directory that does not exist.
    fn enter(&mut self, sync: bool) -> Result<(), Problem> {
        let Some(name) = self.rename.as_ref().filter(|_| self.is_folder) else {
            return if sync { self.sync_base_name() } else { Ok(()) };
        };
        let path = self.base.join(name);
        let entered = self.base().and_then(|base| {
            match base.make_own_dir(name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
            self.root.open_dir(&path)?;
            if sync { base.sync() } else { Ok(()) }
        });
        entered.map_err(|e| Problem::io(Cause::Write, &e))?;
        (self.base, self.rename, self.is_base_safe) = (path, None, sync);
        Ok(())
    }

    /// Writes the name of the directory that receives the files to disk. A copy that was stopped may have
    /// made it.
    fn sync_base_name(&mut self) -> Result<(), Problem> {
        if let Some(parent) = self.base.parent().filter(|_| !self.is_base_safe) {
            let synced = self.root.open_dir(parent).and_then(|parent| parent.sync());
            synced.map_err(|e| Problem::io(Cause::Write, &e))?;
        }
        self.is_base_safe = true;
        Ok(())
    }

    /// The directory and the name for the file with the path `wire`.
    ///
    /// # Errors
    ///
    /// If the path is refused, or if a directory on the way to it cannot be used.
    pub fn file(&mut self, wire: &[u8], sync: bool) -> Result<(Arc<Dir>, OsString), Problem> {
        self.expect(wire)?;
        self.enter(sync)?;
        let (path, name) = self.file_path(wire)?;
        let parent = self.open_parent(&path).map_err(|e| Problem::io(Cause::Write, &e))?;
        Ok((parent, name))
    }

    /// As [`Target::file`]; `None` if the directory does not exist yet.
    ///
    /// # Errors
    ///
    /// If the path is refused, or if a directory on the way to it cannot be used.
    pub fn file_if_any(&mut self, wire: &[u8]) -> Result<Option<(Arc<Dir>, OsString)>, Problem> {
        let (path, name) = self.file_path(wire)?;
        match self.open_parent(&path) {
            Ok(parent) => Ok(Some((parent, name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::io(Cause::Write, &error)),
        }
    }

    fn file_path(&self, wire: &[u8]) -> Result<(PathBuf, OsString), Problem> {
        let wire = self.expect(wire)?;
        let path = self.path(&wire);
        match path.file_name().filter(|_| wire != WirePath::content()) {
            Some(name) => Ok((path.clone(), name.to_owned())),
            None => Err(Problem::new(Cause::Refused, "it has no name")),
        }
    }

    /// Makes the directory with the path `wire`, unless it exists. With `sync` its name is on the disk
    /// when this returns. An existing one may come from a copy that was stopped before that.
    ///
    /// # Errors
    ///
    /// If the path is refused, if something other than a directory has the name, or if it cannot be
    /// made.
    pub fn make_dir(&mut self, wire: &[u8], sync: bool) -> Result<(), Problem> {
        let wire = self.expect(wire)?;
        if !self.expected.as_ref().is_none_or(|e| e.recursive) {
            return Err(Problem::new(Cause::Refused, "a directory was not asked for"));
        }
        if wire.below.as_os_str().is_empty() {
            self.is_folder = true;
        }
        self.enter(sync)?;
        let path = self.path(&wire);
        let Some(name) = path.file_name().filter(|_| wire != WirePath::content()) else { return Ok(()) };
        let made = self.open_parent(&path).and_then(|parent| {
            match parent.make_dir(name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if self.strict && parent.kind_of(name)? == Some(Kind::Symlink) {
                        return Err(io::Error::other("there is a symlink of that name"));
                    }
                    remove_abandoned(&self.open_below(&path)?);
                }
                made => made?,
            }
            if sync { parent.sync() } else { Ok(()) }
        });
        made.map_err(|e| Problem::io(Cause::Write, &e))
    }

    /// Begins to note where the copy writes below `root`, which is that of the target: [`crate::notes`].
    /// Without a note, a later copy removes what this one leaves if it is killed.
    pub fn begin_note(&mut self, root: &Root) {
        let note = Note::begin(root);
        self.note = note.inspect_err(|error| tracing::debug!(%error, "no note of a copy")).ok();
    }

    /// Takes the note of a copy that writes nothing more, and the folder for [`Note::finish`].
    pub fn end_note(&mut self) -> Option<(Note, PathBuf)> {
        Some((self.note.take()?, self.base.clone()))
    }

    /// Removes old abandoned parts from the directory that receives the files.
    /// [`Target::make_dir`] does the same for each directory that exists.
    pub fn clean_base(&self) {
        if let Ok(base) = self.base() {
            remove_abandoned(&base);
        }
    }

    /// Opens the directory with the path `wire` to set its properties; `None` for the destination
    /// itself, which keeps its own.
    ///
    /// # Errors
    ///
    /// If the path is refused, or if the directory cannot be opened.
    pub fn dir(&mut self, wire: &[u8]) -> Result<Option<Dir>, Problem> {
        let wire = self.expect(wire)?;
        if wire == WirePath::content() {
            return Ok(None);
        }
        self.open_below(&self.path(&wire)).map(Some).map_err(|e| Problem::io(Cause::Write, &e))
    }

    /// The directory that receives the files.
    ///
    /// # Errors
    ///
    /// If the folder cannot be opened.
    pub fn base(&self) -> io::Result<Dir> {
        self.root.open_dir(&self.base)
    }

    /// The name of the destination, if it is no directory yet.
    pub fn new_name(&self) -> Option<&OsStr> {
        self.rename.as_deref()
    }

    /// The path of `wire` for a user who wrote the destination as `destination`.
    pub fn shown(&self, destination: &Path, wire: &[u8]) -> PathBuf {
        let Ok(path) = WirePath::parse(wire) else { return destination.to_owned() };
        let mut shown = destination.to_owned();
        shown.extend(path.top.filter(|_| self.rename.is_none() || self.is_folder));
        shown.extend(&path.below);
        shown
    }

    /// The type of what has the path `wire`; `None` if nothing has.
    ///
    /// # Errors
    ///
    /// If the path is refused, or cannot be looked up.
    pub fn kind(&mut self, wire: &[u8]) -> Result<Option<Kind>, Problem> {
        let wire = self.expect(wire)?;
        match self.root.kind(&self.path(&wire)) {
            Ok(kind) => Ok(Some(kind)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::io(Cause::Write, &error)),
        }
    }

    /// The directory and the name of the entry with the path `wire`, and what the file system knows of
    /// it; `None` if there is none. A symbolic link is not followed.
    pub fn place(&mut self, wire: &[u8]) -> Result<Option<(Arc<Dir>, OsString, Stat)>, Problem> {
        let Some((dir, name)) = self.file_if_any(wire)? else { return Ok(None) };
        let stat = dir.stat_of(&name).map_err(|e| Problem::io(Cause::Write, &e))?;
        Ok(stat.map(|stat| (dir, name, stat)))
    }

    /// Expects the directory with the path `wire`, which is not made.
    pub fn expect_dir(&mut self, wire: &[u8]) {
        if WirePath::parse(wire).is_ok_and(|path| path.below.as_os_str().is_empty()) {
            self.is_folder = true;
        }
    }

    /// As [`Target::dir`], and the destination itself for its own path; `None` if it does not exist.
    pub fn dir_or_base(&mut self, wire: &[u8]) -> Result<Option<Dir>, Problem> {
        let wire = self.expect(wire)?;
        match self.open_below(&self.path(&wire)) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::io(Cause::Write, &error)),
        }
    }

    /// Makes `wire` a hard link of the file `to`, and returns whether it was none before. With `sync` its
    /// name is on the disk when this returns.
    pub fn link(&mut self, wire: &[u8], to: &[u8], sync: bool) -> Result<bool, Problem> {
        let (from_dir, from) = self.file(to, false)?;
        let (dir, name) = self.file(wire, false)?;
        let linked = || {
            let Some(stat) = from_dir.stat_of(&from)?.filter(|stat| stat.kind == Kind::File) else {
                return Err(io::Error::from(io::ErrorKind::NotFound));
            };
            match dir.stat_of(&name)? {
                Some(there) if there.inode == stat.inode => return Ok(false),
                Some(there) if !matches!(there.kind, Kind::File | Kind::Symlink) => {
                    return Err(io::Error::other(format!("there is {} of that name", there.kind.name())));
                }
                Some(_) => part::replace_by_link(&dir, &name, |part| from_dir.hard_link(&from, &dir, part))?,
                None => from_dir.hard_link(&from, &dir, &name)?,
            }
            Ok(true)
        };
        let linked = linked().and_then(|is_new| if sync { dir.sync().map(|()| is_new) } else { Ok(is_new) });
        linked.map_err(|e| Problem::io(Cause::Write, &e))
    }

    /// Opens a directory that begins with the destination.
    fn open_below(&self, path: &Path) -> io::Result<Dir> {
        match path.strip_prefix(&self.base) {
            Ok(below) if self.strict => self.root.open_dir(&self.base)?.open_dir_unlinked(below),
            _ => self.root.open_dir(path),
        }
    }

    fn expect(&self, wire: &[u8]) -> Result<WirePath, Problem> {
        let path = WirePath::parse(wire)?;
        let wanted = |e: &Expected| e.tops.contains(&path.top) && (e.recursive || path.below.as_os_str().is_empty());
        if !self.expected.as_ref().is_none_or(wanted) {
            return Err(Problem::new(Cause::Refused, "it was not asked for"));
        }
        Ok(path)
    }

    fn path(&self, wire: &WirePath) -> PathBuf {
        let mut path = self.base.clone();
        path.extend(&self.rename);
        path.extend(wire.top.as_ref().filter(|_| self.rename.is_none() || self.is_folder));
        if !wire.below.as_os_str().is_empty() {
            path.push(&wire.below);
        }
        path
    }

    fn open_parent(&mut self, path: &Path) -> io::Result<Arc<Dir>> {
        let parent = path.parent().unwrap_or(Path::new(""));
        match &self.parent {
            Some((known, dir)) if known == parent => Ok(dir.clone()),
            _ => {
                let dir = Arc::new(self.open_below(parent)?);
                // A full disk must not fail a copy that needs no room.
                if let Some(Err(error)) = self.note.as_ref().map(|note| note.set(parent)) {
                    tracing::debug!(%error, "cannot write the note of a copy");
                }
                self.parent = Some((parent.to_owned(), dir.clone()));
                Ok(dir)
            }
        }
    }
}

/// The destination that a client wrote as `destination`, below the served `root`.
///
/// # Errors
///
/// In words, why nothing can be copied there.
pub fn put_target(root: &Root, destination: &[u8], several: bool) -> Result<Target, String> {
    let shown = names::shown(destination);
    let plain = names::trim_end(destination);
    let path = names::check_path(plain).map_err(|p| format!("{}: {}", shown.display(), p.reason))?;
    let root = root.open().map_err(|e| format!("the served folder cannot be opened: {e}"))?;
    Target::below(root, &path, &shown, shape(&shown, several))
}

fn remove_abandoned(dir: &Dir) {
    if let Err(error) = part::remove_abandoned(dir, part::ABANDONED_AFTER, MAX_SEARCHED_NAMES) {
        tracing::debug!(%error, "cannot look for abandoned unfinished files");
    }
}

/// The [`Shape`] of a destination as it was written.
pub fn shape(destination: &Path, several: bool) -> Shape {
    Shape { several, trailing_slash: names::bytes(destination).ends_with(b"/") }
}
