//! The servers whose keys are known: a file of lines `HOST KEY`, as OpenSSH has it.

use super::key_file;
use super::public_key::PublicKey;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Servers and their keys.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    file: PathBuf,
    hosts: Vec<Host>,
}

#[derive(Debug)]
struct Host {
    name: String,
    key: PublicKey,
    line: usize,
}

impl KnownHosts {
    /// Reads a file. A line has the name of a host, as it is given to [`Session::connect`], with or
    /// without its port, and a key. Empty lines and lines that begin with `#` mean nothing. A file
    /// that does not exist is empty.
    ///
    /// # Errors
    ///
    /// [`Error::IdentityFile`] if the file cannot be read or has another line, or if other users can
    /// write it.
    ///
    /// [`Session::connect`]: crate::Session::connect
    pub fn from_file(path: &Path) -> Result<Self> {
        let lines = key_file::read(path)?;
        let hosts = lines.into_iter().map(|line| {
            let (name, rest) = line.text.split_once(char::is_whitespace).ok_or_else(|| line.bad(path))?;
            let key = rest.split_whitespace().next().and_then(|key| key.parse().ok()).ok_or_else(|| line.bad(path))?;
            Ok(Host { name: name.to_owned(), key, line: line.number })
        });
        Ok(Self(Arc::new(Inner { file: path.to_owned(), hosts: hosts.collect::<Result<_>>()? })))
    }

    /// Adds a line to the file. This value stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::IdentityFile`] if the file cannot be written, or if other users can write it.
    pub fn add_line(&self, line: &str) -> Result<()> {
        key_file::append(&self.0.file, line)
    }

    /// Adds the key of a server for the life of this value.
    #[must_use]
    pub fn with(self, host: &str, key: PublicKey) -> Self {
        let mut hosts: Vec<Host> =
            self.0.hosts.iter().map(|h| Host { name: h.name.clone(), key: h.key, line: h.line }).collect();
        hosts.insert(0, Host { name: host.to_owned(), key, line: 0 });
        Self(Arc::new(Inner { file: self.0.file.clone(), hosts }))
    }

    /// Fails unless `key` is a key of `host`. An entry with the port counts before one without.
    ///
    /// # Errors
    ///
    /// [`Error::HostUnknown`] or [`Error::HostChanged`].
    pub fn check(&self, host: &str, key: PublicKey) -> Result<()> {
        let known = |name: &str| self.0.hosts.iter().filter(|h| h.name == name).collect::<Vec<_>>();
        let mut entries = known(host);
        if entries.is_empty() {
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            entries = known(name.trim_start_matches('[').trim_end_matches(']'));
        }
        match entries.first() {
            _ if entries.iter().any(|h| h.key == key) => Ok(()),
            None => Err(Error::HostUnknown { host: host.to_owned(), key }),
            Some(other) => {
                Err(Error::HostChanged { host: host.to_owned(), key, file: self.0.file.clone(), line: other.line })
            }
        }
    }
}
