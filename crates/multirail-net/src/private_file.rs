//! Files of secrets, which only their owner can read and write.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The permission bits by which users other than the owner can read or write a file.
const SHARED_MODE: u32 = 0o066;

/// Why a file is not private.
#[derive(Debug)]
pub(crate) enum FileError {
    /// Its mode lets other users read or write it.
    Shared { mode: u32 },
    /// It cannot be read or written.
    Io(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads the first `most_bytes` of a file, if other users can neither read nor write it.
pub(crate) fn read(path: &Path, most_bytes: usize) -> Result<Vec<u8>, FileError> {
    let file = File::open(path)?;
    check_mode(&file)?;
    let mut content = Vec::new();
    file.take(most_bytes as u64).read_to_end(&mut content)?;
    Ok(content)
}

/// Creates a file that only its owner can read and write. An existing file is never overwritten, no
/// file is left behind after an error, and no process sees a part of one.
pub(crate) fn create(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let mut part = path.to_owned().into_os_string();
    part.push(format!(".{}-{:?}.new", std::process::id(), std::thread::current().id()));
    let part = Path::new(&part);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    let mut write = || -> Result<(), FileError> {
        // The file system may have modes of its own.
        check_mode(&file)?;
        file.write_all(content)?;
        file.sync_all()?;
        // Unlike a rename, this replaces nothing.
        Ok(std::fs::hard_link(part, path)?)
    };
    let written = write();
    // The first error says more than one of removing the file.
    let _ = std::fs::remove_file(part);
    written
}

/// Takes an open file, so that the file cannot be exchanged afterwards.
fn check_mode(file: &File) -> Result<(), FileError> {
    match file.metadata()?.mode() & 0o7777 {
        mode if mode & SHARED_MODE != 0 => Err(FileError::Shared { mode }),
        _ => Ok(()),
    }
}
