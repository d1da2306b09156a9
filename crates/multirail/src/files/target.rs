//! Where received files go: what `cp` does with its last argument.

use super::dir::{Dir, Kind};
use super::names::WirePath;
use super::report::{Cause, Problem};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The place that a copy goes to. Nothing is ever written outside `root`.
#[derive(Debug)]
pub(crate) struct Target {
    root: Dir,
    /// Below the root: the directory that everything goes into.
    base: PathBuf,
    /// The name that the one source gets; without, each keeps its own.
    rename: Option<OsString>,
    /// The destination was given with a slash at its end, so that only a directory can get its name.
    directory_only: bool,
    /// What the sender may send. `None`: anything, as a client may write what it likes below the root.
    expected: Option<Expected>,
    /// The directory last written to: files come directory by directory.
    parent: Option<(PathBuf, Arc<Dir>)>,
}

/// What was asked for; a server that sends something else is up to no good.
#[derive(Debug)]
pub(crate) struct Expected {
    pub tops: Vec<Option<OsString>>,
    pub recursive: bool,
}

/// How many sources, and how the destination was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub several: bool,
    pub trailing_slash: bool,
}

impl Target {
    /// The place `path` below `root`, or why nothing can be copied there. `shown` is what the user calls the path.
    pub(crate) fn below(root: Dir, path: &Path, shown: &Path, shape: Shape) -> Result<Target, String> {
        let shown = shown.display();
        let (base, rename) = match root.kind(path) {
            Ok(Kind::Directory) => (path, None),
            Ok(kind) if shape.several || shape.trailing_slash => {
                return Err(format!("{shown} is {}, not a directory", kind.name()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("{shown}: {}", Problem::io(Cause::Write, &error).reason));
            }
            Err(_) if shape.several => return Err(format!("there is no directory {shown}")),
            _ => match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) if matches!(root.kind(parent), Ok(Kind::Directory)) => (parent, Some(name)),
                _ => return Err(format!("there is no directory to put {shown} in")),
            },
        };
        let (base, rename) = (base.to_owned(), rename.map(OsStr::to_owned));
        let directory_only = shape.trailing_slash && rename.is_some();
        Ok(Target { root, base, rename, directory_only, expected: None, parent: None })
    }

    /// The place that this host's user calls `path`.
    pub(crate) fn local(path: &Path, shape: Shape, expected: Expected) -> Result<Target, String> {
        let is_dir = std::fs::metadata(path).is_ok_and(|m| m.is_dir());
        let (root, below) = match path.file_name() {
            Some(name) if !is_dir => (path.parent().filter(|p| *p != Path::new("")), Path::new(name)),
            _ => (Some(path), Path::new("")),
        };
        let root = root.unwrap_or(Path::new("."));
        let root = Dir::open(root)
            .map_err(|error| format!("{}: {}", root.display(), Problem::io(Cause::Write, &error).reason))?;
        // A destination that is itself a symlink to somewhere else is the user's choice, and is replaced as such.
        let is_link = matches!(root.kind_of(below.as_os_str()), Ok(Some(Kind::Symlink)));
        if is_link && !shape.several && !shape.trailing_slash {
            let rename = Some(below.as_os_str().to_owned());
            let base = PathBuf::new();
            return Ok(Target { root, base, rename, directory_only: false, expected: Some(expected), parent: None });
        }
        Ok(Target { expected: Some(expected), ..Self::below(root, below, path, shape)? })
    }

    /// The place that is called `path` below `root`, also where there is a directory of that name already.
    pub(crate) fn named(root: Dir, path: &Path) -> Option<Target> {
        let (base, rename) = (path.parent()?.to_owned(), Some(path.file_name()?.to_owned()));
        Some(Target { root, base, rename, directory_only: false, expected: None, parent: None })
    }

    /// The directory and the name in it for the file at `wire`.
    pub(crate) fn file(&mut self, wire: &[u8]) -> Result<(Arc<Dir>, OsString), Problem> {
        let (path, name) = self.file_path(wire)?;
        let parent = self.open_parent(&path).map_err(|e| Problem::io(Cause::Write, &e))?;
        Ok((parent, name))
    }

    /// The same as long as directories may still be missing: then `None`.
    pub(crate) fn file_if_any(&mut self, wire: &[u8]) -> Result<Option<(Arc<Dir>, OsString)>, Problem> {
        let (path, name) = self.file_path(wire)?;
        match self.open_parent(&path) {
            Ok(parent) => Ok(Some((parent, name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::io(Cause::Write, &error)),
        }
    }

    fn file_path(&self, wire: &[u8]) -> Result<(PathBuf, OsString), Problem> {
        let wire = self.expect(wire)?;
        let refuse = |why: &str| Problem::new(Cause::Refused, why);
        if self.directory_only && wire.below.as_os_str().is_empty() {
            return Err(refuse("the destination is written as a directory and is none"));
        }
        let path = self.path(&wire);
        match path.file_name().filter(|_| self.rename.is_some() || wire != WirePath::content()) {
            Some(name) => Ok((path.clone(), name.to_owned())),
            None => Err(refuse("it has no name")),
        }
    }

    /// Makes the directory at `wire`, unless it is there.
    pub(crate) fn make_dir(&mut self, wire: &[u8]) -> Result<(), Problem> {
        let wire = self.expect(wire)?;
        if !self.expected.as_ref().is_none_or(|e| e.recursive) {
            return Err(Problem::new(Cause::Refused, "a directory was not asked for"));
        }
        let path = self.path(&wire);
        let Some(name) = path.file_name().filter(|_| self.rename.is_some() || wire != WirePath::content()) else {
            return Ok(());
        };
        let made = self.open_parent(&path).and_then(|parent| match parent.make_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.root.open_dir(&path).map(drop),
            made => made,
        });
        made.map_err(|e| Problem::io(Cause::Write, &e))
    }

    /// Opens the directory at `wire`, to give it its properties; `None` where they are not the source's to give.
    pub(crate) fn dir(&mut self, wire: &[u8]) -> Result<Option<Dir>, Problem> {
        let wire = self.expect(wire)?;
        if self.rename.is_none() && wire == WirePath::content() {
            return Ok(None);
        }
        self.root.open_dir(&self.path(&wire)).map(Some).map_err(|e| Problem::io(Cause::Write, &e))
    }

    /// The directory that everything goes into.
    pub(crate) fn base(&self) -> io::Result<Dir> {
        self.root.open_dir(&self.base)
    }

    /// The name that the one source gets; `None`: the destination is the folder that it goes into.
    pub(crate) fn new_name(&self) -> Option<&OsStr> {
        self.rename.as_deref()
    }

    /// What the user calls the place of `wire`, who calls the destination `destination`.
    pub(crate) fn shown(&self, destination: &Path, wire: &[u8]) -> PathBuf {
        let Ok(path) = WirePath::parse(wire) else { return destination.to_owned() };
        let mut shown = destination.to_owned();
        shown.extend(path.top.filter(|_| self.rename.is_none()));
        shown.extend(&path.below);
        shown
    }

    /// What is where the directory at `wire` is to be; `None`: nothing.
    pub(crate) fn kind(&mut self, wire: &[u8]) -> Result<Option<Kind>, Problem> {
        let wire = self.expect(wire)?;
        match self.root.kind(&self.path(&wire)) {
            Ok(kind) => Ok(Some(kind)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::io(Cause::Write, &error)),
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
        if let Some(name) = self.rename.as_ref().or(wire.top.as_ref()) {
            path.push(name);
        }
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
                let dir = Arc::new(self.root.open_dir(parent)?);
                self.parent = Some((parent.to_owned(), dir.clone()));
                Ok(dir)
            }
        }
    }
}
