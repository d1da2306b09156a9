//! Files with one key on each line.

use crate::error::{Error, IdentityError, Result};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The permission bits by which users other than the owner can write a file.
const WRITABLE_MODE: u32 = 0o022;

/// A line with content.
pub(super) struct Line {
    /// From 1.
    pub(super) number: usize,
    pub(super) text: String,
}

impl Line {
    /// The error that this line has no key.
    pub(super) fn bad(&self, path: &Path) -> Error {
        Error::IdentityFile { path: path.to_owned(), why: IdentityError::Line { number: self.number } }
    }
}

/// Appends a line. A new file, and the directories that are made for it, belong to the owner alone.
pub(super) fn append(path: &Path, line: &str) -> Result<()> {
    let failed = |why| Error::IdentityFile { path: path.to_owned(), why };
    read(path)?;
    let append = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            file.read_exact_at(&mut last, length - 1)?;
        }
        let end = if last == *b"\n" { "" } else { "\n" };
        // One call, so that no process sees a part of the line.
        file.write_all(format!("{end}{line}\n").as_bytes())?;
        file.sync_all()
    };
    append().map_err(|error| failed(error.into()))
}

/// The lines of a file that have content; none if there is no file.
pub(super) fn read(path: &Path) -> Result<Vec<Line>> {
    let failed = |why| Error::IdentityFile { path: path.to_owned(), why };
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|e| failed(e.into()))?,
    };
    let mode = fs::metadata(path).map_err(|e| failed(e.into()))?.mode() & 0o7777;
    if mode & WRITABLE_MODE != 0 {
        return Err(failed(IdentityError::Writable { mode }));
    }
    let lines = text.lines().enumerate().map(|(index, text)| Line { number: index + 1, text: text.trim().to_owned() });
    Ok(lines.filter(|line| !line.text.is_empty() && !line.text.starts_with('#')).collect())
}
