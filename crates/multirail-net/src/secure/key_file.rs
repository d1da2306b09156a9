//! Files with one key on each line.

use crate::error::{Error, IdentityError, Result};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
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
