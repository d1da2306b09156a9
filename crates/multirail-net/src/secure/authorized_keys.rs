//! The clients that a server accepts by their keys: a file of lines `KEY [NAME]`.

use super::key_file;
use super::public_key::PublicKey;
use crate::error::Result;
use crate::sync::lock;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Keys and the names of their owners. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct AuthorizedKeys(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    file: Option<PathBuf>,
    keys: Mutex<HashMap<PublicKey, Client>>,
}

/// What a server knows of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Client {
    /// What follows the key on its line.
    pub name: String,
}

impl AuthorizedKeys {
    /// Reads a file. Empty lines and lines that begin with `#` mean nothing. A file that does not
    /// exist is empty.
    ///
    /// # Errors
    ///
    /// [`Error::IdentityFile`](crate::Error::IdentityFile) if the file cannot be read or has another
    /// line, or if other users can write it.
    pub fn from_file(path: &Path) -> Result<Self> {
        let this = Self(Arc::new(Inner { file: Some(path.to_owned()), keys: Mutex::default() }));
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
        let lines = key_file::read(file)?;
        let keys = lines.into_iter().map(|line| parse(&line.text).ok_or_else(|| line.bad(file)));
        *lock(&self.0.keys) = keys.collect::<Result<_>>()?;
        Ok(())
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

    /// What is known of the key's owner.
    pub fn client(&self, key: PublicKey) -> Option<Client> {
        lock(&self.0.keys).get(&key).cloned()
    }
}

fn parse(line: &str) -> Option<(PublicKey, Client)> {
    let mut words = line.split_whitespace();
    let key = words.next()?.parse().ok()?;
    Some((key, Client { name: words.collect::<Vec<_>>().join(" ") }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, IdentityError};
    use crate::secure::identity::Identity;
    use std::fs::{self, Permissions};
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
        fs::set_permissions(&file.0, Permissions::from_mode(0o644)).unwrap();
        keys.clone().reload().unwrap();
        assert_eq!(keys.client(one).unwrap().name, "alice at work");
        for (text, line) in [(format!("{one}\nsomething {two}\n"), 2), (format!("ro {two}\n"), 1)] {
            fs::write(&file.0, text).unwrap();
            let error = keys.reload().unwrap_err();
            let is_line =
                matches!(&error, Error::IdentityFile { why: IdentityError::Line { number }, .. } if *number == line);
            assert!(is_line, "{error}");
            assert!(keys.contains(one) && !keys.contains(two));
        }
        fs::set_permissions(&file.0, Permissions::from_mode(0o664)).unwrap();
        let error = keys.reload().unwrap_err().to_string();
        assert!(error.contains("its mode is 0664") && error.contains("other users can write it"), "{error}");
        fs::set_permissions(&file.0, Permissions::from_mode(0o600)).unwrap();
        fs::write(&file.0, two.to_string()).unwrap();
        keys.reload().unwrap();
        assert!(keys.contains(two) && !keys.contains(one));
    }
}
