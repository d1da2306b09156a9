//! The clients that a server accepts by their keys: a file of lines `[OPTIONS] KEY [NAME]`.

use super::key_file;
use super::public_key::PublicKey;
use crate::error::{Error, IdentityError, Result};
use crate::permissions::{Permissions, split_options};
use crate::quota::Quota;
use crate::sync::lock;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Keys and the names of their owners. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct AuthorizedKeys(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    file: Option<PathBuf>,
    keys: Mutex<HashMap<PublicKey, Client>>,
    /// What sessions of keys with a quota have used, also of those that were in the file before.
    used: Mutex<HashMap<PublicKey, Quota>>,
    /// What tells the file that was read from a changed one.
    stamp: Mutex<Stamp>,
}

/// Inode, length and time of a file; `None` if there is none.
type Stamp = Option<(u64, u64, i64, i64)>;

/// What a server knows of a client.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Client {
    /// What follows the key on its line.
    pub name: String,
    /// What it may do.
    pub permissions: Permissions,
}

impl AuthorizedKeys {
    /// Reads a file. A line has options, as [`Permissions`] reads them, or none, then a key, then the
    /// name of its owner. Empty lines and lines that begin with `#` mean nothing. A file that does not
    /// exist is empty.
    ///
    /// # Errors
    ///
    /// [`Error::IdentityFile`](crate::Error::IdentityFile) if the file cannot be read or has another
    /// line, or if other users can write it.
    pub fn from_file(path: &Path) -> Result<Self> {
        let this = Self(Arc::new(Inner { file: Some(path.to_owned()), ..Inner::default() }));
        this.reload()?;
        Ok(this)
    }

    /// Reads the file again. Sessions that are open go on.
    ///
    /// # Errors
    ///
    /// Those of [`AuthorizedKeys::from_file`]; the list is then unchanged.
    pub fn reload(&self) -> Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        *lock(&self.0.stamp) = stamp(file);
        let lines = key_file::read(file)?;
        let mut keys = HashMap::new();
        for line in lines {
            let options = |why| {
                let why = IdentityError::Options { number: line.number, why };
                Error::IdentityFile { path: file.clone(), why }
            };
            let (key, client) = parse(&line.text).ok_or_else(|| line.bad(file))?;
            let client = client.map_err(options)?;
            if keys.insert(key, client).is_some() {
                return Err(options("its key is in a line above, too; one line says what a key may do".to_owned()));
            }
        }
        let mut used = lock(&self.0.used);
        for (key, client) in &mut keys {
            if let Some(quota) = client.permissions.quota().cloned() {
                let old = used.entry(*key).or_insert(quota);
                client.permissions = std::mem::take(&mut client.permissions).counting_with(old);
            }
        }
        drop(used);
        *lock(&self.0.keys) = keys;
        Ok(())
    }

    /// Adds a line to the file, and reads it again.
    ///
    /// # Errors
    ///
    /// [`Error::IdentityFile`] if the line is not valid, or if the file cannot be written or read.
    pub fn add_line(&self, line: &str) -> Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        let failed = |why| Error::IdentityFile { path: file.clone(), why };
        let (_, client) = parse(line).ok_or_else(|| failed(IdentityError::Line { number: 1 }))?;
        client.map_err(|why| failed(IdentityError::Options { number: 1, why }))?;
        key_file::append(file, line)?;
        self.reload()
    }

    /// Adds a key for the life of this value.
    #[must_use]
    pub fn with(self, key: PublicKey, client: Client) -> Self {
        lock(&self.0.keys).insert(key, client);
        self
    }

    /// Whether the key is in the list.
    pub fn contains(&self, key: PublicKey) -> bool {
        lock(&self.0.keys).contains_key(&key)
    }

    /// As [`AuthorizedKeys::client`], for a client that has come. If it is unknown and the file has changed,
    /// the file is read again: somebody may have added the key.
    pub(crate) fn client_or_reload(&self, key: PublicKey) -> Option<Client> {
        let known = self.client(key);
        let Some(file) = self.0.file.as_ref().filter(|_| known.is_none()) else { return known };
        if stamp(file) == *lock(&self.0.stamp) {
            return None;
        }
        match self.reload() {
            Ok(()) => tracing::info!("the authorized keys have changed, and were read again"),
            Err(error) => tracing::error!(%error, "the authorized keys have changed, and cannot be read"),
        }
        self.client(key)
    }

    /// What is known of the key's owner.
    pub fn client(&self, key: PublicKey) -> Option<Client> {
        lock(&self.0.keys).get(&key).cloned()
    }
}

fn stamp(file: &Path) -> Stamp {
    let stat = std::fs::metadata(file).ok()?;
    Some((stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec()))
}

/// The key of a line, and its owner, unless the options are wrong; `None` if there is no key.
fn parse(line: &str) -> Option<(PublicKey, Result<Client, String>)> {
    let (first, rest) = split_options(line);
    let (key, name, permissions) = match first.parse() {
        Ok(key) => (key, rest, Ok(Permissions::default())),
        Err(_) => {
            let (key, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (key.parse().ok()?, name, first.parse())
        }
    };
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    Some((key, permissions.map(|permissions| Client { name, permissions })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::Right;
    use crate::secure::identity::Identity;
    use std::fs::{self, Permissions as Mode};
    use std::os::unix::fs::PermissionsExt;

    /// A temporary file that is removed when this is dropped.
    struct Temp(PathBuf);

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_list_is_read_again_and_a_bad_one_changes_nothing() {
        let file = Temp(std::env::temp_dir().join(format!("multirail-authorized-{}", std::process::id())));
        let [one, two] = [(); 2].map(|()| Identity::generate().public_key());
        let keys = AuthorizedKeys::from_file(&file.0).unwrap();
        assert!(!keys.contains(one), "there is no file");
        fs::write(&file.0, format!("# those of the lab\n\n{one} alice at work\n")).unwrap();
        fs::set_permissions(&file.0, Mode::from_mode(0o644)).unwrap();
        keys.clone().reload().unwrap();
        assert_eq!(keys.client(one).unwrap().name, "alice at work");
        for (text, why) in [
            (format!("{one}\nsomething\n"), "line 2 has no key"),
            (format!("{one}\nro something\n"), "line 2 has no key"),
            (format!("rw {two}\n"), "line 1: `rw` is no option; the options are root=DIR"),
            (format!("{one}\n\nro {one}\n"), "line 3: its key is in a line above"),
        ] {
            fs::write(&file.0, text).unwrap();
            let error = keys.reload().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&*file.0.to_string_lossy()), "{error}");
            assert!(keys.contains(one) && !keys.contains(two));
        }
        fs::set_permissions(&file.0, Mode::from_mode(0o664)).unwrap();
        let error = keys.reload().unwrap_err().to_string();
        assert!(error.contains("its mode is 0664") && error.contains("other users can write it"), "{error}");
        fs::set_permissions(&file.0, Mode::from_mode(0o600)).unwrap();
        fs::write(&file.0, two.to_string()).unwrap();
        keys.reload().unwrap();
        assert!(keys.contains(two) && !keys.contains(one));
    }

    #[test]
    fn a_quota_counts_on_when_its_line_changes() {
        let file = Temp(std::env::temp_dir().join(format!("multirail-authorized-quota-{}", std::process::id())));
        let key = Identity::generate().public_key();
        let write = |line: String| {
            fs::write(&file.0, line).unwrap();
            fs::set_permissions(&file.0, Mode::from_mode(0o600)).unwrap();
        };
        write(format!("root=\"in box\",wo,quota=1k {key} a sensor\n"));
        let keys = AuthorizedKeys::from_file(&file.0).unwrap();
        let client = keys.client(key).unwrap();
        assert_eq!((client.name.as_str(), client.permissions.below()), ("a sensor", Path::new("in box")));
        assert!(!client.permissions.has(Right::Read));
        client.permissions.reserve(1000).unwrap().keep();
        write(String::new());
        keys.reload().unwrap();
        assert!(client.permissions.reserve(1000).is_err(), "a session that is open goes on as it was");
        write(format!("quota=2k {key}\n"));
        keys.reload().unwrap();
        let again = keys.client(key).unwrap().permissions;
        assert_eq!(again.quota().unwrap().used_bytes(), 1000);
        again.reserve(1000).unwrap().keep();
        assert!(again.reserve(1000).is_err());
    }
}
