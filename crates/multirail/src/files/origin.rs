//! Where sent files come from: this host as its user sees it, or what lies below a served root.

use super::dir::{Dir, Kind};
use super::names::{self, CONTENT_ONLY};
use super::report::{Cause, Problem};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How a source's path is resolved.
#[derive(Debug)]
pub(crate) enum Origin {
    /// By this host's rules, for its user.
    Local,
    /// Below this directory, for a client.
    Served(Dir),
}

/// One thing to copy.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// What it is called on the wire: its own name, or [`CONTENT_ONLY`].
    pub top: OsString,
    pub path: PathBuf,
}

/// A source that was opened.
pub(crate) enum Opened {
    File(File),
    Dir(Dir),
    Special,
}

impl Source {
    /// A source as it was written: with nothing, `.` or `..` at the end it stands for its content only.
    pub(crate) fn new(path: &Path) -> Source {
        let bytes = path.as_os_str().as_bytes();
        let dot = bytes == b"." || bytes.ends_with(b"/.") || bytes.ends_with(b"/./");
        let top = path.file_name().filter(|_| !dot).unwrap_or(OsStr::new(CONTENT_ONLY)).to_owned();
        Source { top, path: path.to_owned() }
    }

    /// Its name as [`super::names::WirePath`] has it.
    pub(crate) fn wire_top(&self) -> Option<OsString> {
        (self.top != CONTENT_ONLY).then(|| self.top.clone())
    }
}

impl Origin {
    pub(crate) fn open(&self, path: &Path) -> Result<Opened, Problem> {
        let opened = match self {
            Origin::Local => open_local(path),
            Origin::Served(root) => {
                let path = names::check_path(names::trim_end(names::bytes(path)))?;
                match root.kind(&path) {
                    Ok(Kind::Directory) => root.open_dir(&path).map(Opened::Dir),
                    Ok(Kind::File) => root.open_file(&path).map(Opened::File),
                    Ok(Kind::Symlink | Kind::Special) => Ok(Opened::Special),
                    Err(error) => Err(error),
                }
            }
        };
        opened.map_err(|e| Problem::io(Cause::Read, &e))
    }
}

fn open_local(path: &Path) -> io::Result<Opened> {
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Dir::open(path).map(Opened::Dir);
    }
    if !kind.is_file() {
        return Ok(Opened::Special);
    }
    // Should it have become a pipe meanwhile, opening does not wait for the other end.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map(Opened::File)
}
