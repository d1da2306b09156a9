//! The folder that a client of a server sees.

use crate::dir::Dir;
use std::io;
use std::path::{Path, PathBuf};

/// A folder below the one that a server serves, or that one itself.
#[derive(Debug, Clone)]
pub struct Root {
    served: PathBuf,
    below: PathBuf,
}

impl Root {
    /// The folder `below` of the `served` one. Empty: the served one.
    pub fn new(served: &Path, below: &Path) -> Self {
        Self { served: served.to_owned(), below: below.to_owned() }
    }

    /// The served folder.
    pub fn served(&self) -> &Path {
        &self.served
    }

    /// The way from the served folder to this one.
    pub fn below(&self) -> &Path {
        &self.below
    }

    /// Opens the served folder.
    ///
    /// # Errors
    ///
    /// If it does not exist, or cannot be opened.
    pub fn open_served(&self) -> io::Result<Dir> {
        Dir::open(&self.served)
    }

    /// Opens the folder. The way from the served folder to it has no symbolic links: a client that may
    /// write a part of that way would choose the folder otherwise.
    ///
    /// # Errors
    ///
    /// If one of the folders does not exist, or cannot be opened.
    pub fn open(&self) -> io::Result<Dir> {
        let served = self.open_served()?;
        if self.below.as_os_str().is_empty() { Ok(served) } else { served.open_dir_unlinked(&self.below) }
    }
}

impl From<&Path> for Root {
    fn from(served: &Path) -> Self {
        Self::new(served, Path::new(""))
    }
}
