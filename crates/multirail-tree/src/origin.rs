//! The source of sent files: this host's file system as its user sees it, or a served root.

use crate::dir::{Dir, Kind};
use crate::names::{self, CONTENT_ONLY};
use crate::report::{Cause, Problem};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The most that the names of a copy's sources may take, in bytes, because one request carries them
/// all.
const MAX_SOURCES_BYTES: usize = 60 << 10;

/// How a source's path is resolved.
#[derive(Debug)]
pub enum Origin {
    /// As this host's user writes it. Symbolic links are followed.
    Local,
    /// Below this directory, for a client. A path that leads out of it is refused.
    Served(Dir),
    /// Nowhere: the client may not read, for this reason.
    Refused(String),
}

/// One thing to copy.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name on the wire: its own name, or [`CONTENT_ONLY`].
    pub top: OsString,
    /// Its given path.
    pub path: PathBuf,
}

/// An open source.
pub enum Opened {
    /// A regular file, open for reading.
    File(File),
    /// A directory.
    Dir(Dir),
    /// Something that cannot be copied.
    Special,
}

impl Source {
    /// The source at `path`. A path that ends in a slash, in `/.` or in `..`, or that is `.`, stands
    /// for the content only.
    pub fn new(path: &Path) -> Source {
        let bytes = path.as_os_str().as_bytes();
        let content = bytes == b"." || bytes.ends_with(b"/.") || bytes.ends_with(b"/");
        let top = path.file_name().filter(|_| !content).unwrap_or(OsStr::new(CONTENT_ONLY)).to_owned();
        Source { top, path: path.to_owned() }
    }

    /// Its name as in [`crate::names::WirePath`].
    pub fn wire_top(&self) -> Option<OsString> {
        (self.top != CONTENT_ONLY).then(|| self.top.clone())
    }
}

impl Origin {
    /// Opens the source at `path`.
    ///
    /// # Errors
    ///
    /// [`Cause::Read`], or [`Cause::Refused`] for a path that leads out of a served root.
    pub fn open(&self, path: &Path) -> Result<Opened, Problem> {
        let opened = match self {
            Origin::Refused(why) => return Err(Problem::new(Cause::Refused, why.as_str())),
            Origin::Local => open_local(path),
            Origin::Served(root) => {
                let written_as_dir = path.as_os_str().as_bytes().ends_with(b"/");
                let path = names::check_path(names::trim_end(names::bytes(path)))?;
                match root.kind(&path) {
                    Ok(kind) if written_as_dir && kind != Kind::Directory => {
                        Err(io::Error::from_raw_os_error(libc::ENOTDIR))
                    }
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
    // If a pipe has replaced the file meanwhile, opening it must not block.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map(Opened::File)
}

/// The sources with their names on the wire.
///
/// # Errors
///
/// In words, if there are no sources, if two of them have one name, or if their names are too long
/// for one request.
pub fn named_sources(paths: &[PathBuf]) -> Result<Vec<Source>, String> {
    if paths.is_empty() {
        return Err("nothing to copy".to_owned());
    }
    if paths.iter().map(|p| p.as_os_str().len() + 4).sum::<usize>() > MAX_SOURCES_BYTES {
        return Err("too many sources for one copy; copy their directory, or fewer at once".to_owned());
    }
    let sources: Vec<Source> = paths.iter().map(|p| Source::new(p)).collect();
    let mut tops: Vec<_> = sources.iter().map(|s| &s.top).collect();
    tops.sort_unstable();
    if let Some(pair) = tops.windows(2).find(|pair| pair[0] == pair[1]) {
        let name = pair[0].display();
        if pair[0] == CONTENT_ONLY {
            return Err("the content of two sources would be mixed; copy one after the other".to_owned());
        }
        return Err(format!("two sources are called {name}; one would replace the other"));
    }
    Ok(sources)
}
