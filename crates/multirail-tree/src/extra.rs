//! What belongs to an entry beside content, mode and time, and is copied only if asked for: owner,
//! extended attributes, access control lists.

use crate::stat::Stat;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::fchown;
use xattr::FileExt;

/// The length of the names and values of one entry's attributes together, in bytes. Those of an entry
/// with more are not copied.
pub const MAX_ATTRIBUTES_BYTES: usize = 24 << 10;
/// The names of access control lists.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// What users may set. Other namespaces give rights, such as those of `security.capability`.
const USER: &[u8] = b"user.";

/// What of it is copied.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// The numbers of user and group.
    pub owner: bool,
    /// Extended attributes of the namespace `user`.
    pub xattrs: bool,
    /// POSIX access control lists.
    pub acls: bool,
}

/// The values for one entry.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// Names and values of attributes and access control lists, in order of the names.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Extras {
    /// Whether anything of it is copied.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Whether the entry has to be opened to learn it.
    pub fn needs_file(self) -> bool {
        self.xattrs || self.acls
    }

    fn takes(self, name: &[u8]) -> bool {
        (self.acls && ACLS.contains(&name)) || (self.xattrs && name.starts_with(USER))
    }

    /// Reads what is copied of an entry. Without `file`, it has no attributes.
    ///
    /// # Errors
    ///
    /// If the attributes cannot be read, or are longer than [`MAX_ATTRIBUTES_BYTES`].
    pub fn read(self, stat: &Stat, file: Option<&File>) -> io::Result<Extra> {
        let mut extra = Extra { owner: self.owner.then_some(stat.owner), attributes: Vec::new() };
        let Some(file) = file.filter(|_| self.needs_file()) else { return Ok(extra) };
        let mut left_bytes = MAX_ATTRIBUTES_BYTES;
        for name in self.names(file)? {
            let Some(value) = file.get_xattr(&name)? else { continue };
            left_bytes = left_bytes.checked_sub(name.len() + value.len()).ok_or_else(|| {
                io::Error::other(format!("it has more than {MAX_ATTRIBUTES_BYTES} bytes of extended attributes"))
            })?;
            extra.attributes.push((name.into_vec(), value));
        }
        extra.attributes.sort_unstable();
        Ok(extra)
    }

    /// The names of the attributes of `file` that are copied.
    fn names(self, file: &File) -> io::Result<Vec<OsString>> {
        match file.list_xattr() {
            Ok(names) => Ok(names.filter(|name| self.takes(name.as_bytes())).collect()),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Gives `file` what a peer sent. Attributes that were not sent are removed, and what is not
    /// copied is left alone.
    ///
    /// # Errors
    ///
    /// If the system refuses, or the peer sent what is not copied.
    pub fn apply(self, extra: &Extra, file: &File) -> io::Result<()> {
        if let (true, Some((user, group))) = (self.owner, extra.owner) {
            fchown(file, Some(user), Some(group))?;
        }
        if !self.needs_file() {
            return Ok(());
        }
        for (name, value) in &extra.attributes {
            if !self.takes(name) {
                return Err(io::Error::other("an attribute that is not copied"));
            }
            file.set_xattr(OsStr::from_bytes(name), value)?;
        }
        for name in self.names(file)? {
            if !extra.attributes.iter().any(|(sent, _)| sent == name.as_bytes()) {
                file.remove_xattr(&name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Temp;

    #[test]
    fn attributes_become_those_of_the_source() {
        let temp = Temp::new();
        let dir = temp.dir();
        let [from, to] = ["from", "to"].map(|name| dir.create(OsStr::new(name)).unwrap());
        let extras = Extras { xattrs: true, ..Extras::default() };
        if let Err(error) = from.set_xattr("user.one", b"1") {
            return multirail_testing::skip(multirail_testing::Requirement::Xattrs, error);
        }
        from.set_xattr("user.two", b"\0\xff").unwrap();
        to.set_xattr("user.other", b"x").unwrap();
        to.set_xattr("user.two", b"old").unwrap();
        let stat = dir.stat_of(OsStr::new("from")).unwrap().unwrap();
        let extra = extras.read(&stat, Some(&from)).unwrap();
        assert_eq!(extra.attributes.len(), 2);
        extras.apply(&extra, &to).unwrap();
        assert_eq!(extras.read(&stat, Some(&to)).unwrap(), extra);
        assert_eq!(Extras::default().read(&stat, Some(&from)).unwrap(), Extra::default());
    }

    #[test]
    fn attributes_that_give_rights_are_refused() {
        let temp = Temp::new();
        let file = temp.dir().create(OsStr::new("file")).unwrap();
        for name in ["security.capability", "trusted.x", "system.posix_acl_access"] {
            let extra = Extra { owner: None, attributes: vec![(name.as_bytes().to_vec(), vec![1])] };
            let extras = Extras { xattrs: true, ..Extras::default() };
            assert!(extras.apply(&extra, &file).unwrap_err().to_string().contains("not copied"), "{name}");
        }
    }
}
