//! Paths on the wire: relative, plain, and checked by whoever receives them, because a peer can send anything.

use super::part;
use super::report::{Cause, Problem};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The kernel takes no longer ones (`PATH_MAX`).
pub(crate) const MAX_PATH_BYTES: usize = 4095;
/// The kernel takes no longer ones (`NAME_MAX`).
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// What stands for a source whose content is to be copied without a name of its own: `cp -r . DEST`.
pub(crate) const CONTENT_ONLY: &str = ".";

/// A relative path with none of the components that lead elsewhere. Empty: the root.
pub(crate) fn check_path(bytes: &[u8]) -> Result<PathBuf, Problem> {
    let refuse = |why: &str| Err(Problem::new(Cause::Refused, why));
    if bytes.is_empty() {
        return Ok(PathBuf::new());
    }
    if bytes.len() > MAX_PATH_BYTES {
        return refuse("the path is longer than 4095 bytes");
    }
    if bytes[0] == b'/' {
        return refuse("it is an absolute path; paths start at the folder that is served");
    }
    for name in bytes.split(|b| *b == b'/') {
        if let Err(why) = check_name(name) {
            return refuse(why);
        }
    }
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("a name in its path is empty"),
        b"." | b".." => Err("`.` and `..` are not allowed in its path"),
        _ if name.contains(&b'/') => Err("a slash in a name"),
        _ if name.contains(&0) => Err("a NUL byte in its path"),
        _ if name.len() > MAX_NAME_BYTES => Err("a name in its path is longer than 255 bytes"),
        _ if part::is_part_name(OsStr::from_bytes(name)) => {
            Err("names that end in .multirail-part are for unfinished transfers")
        }
        _ => Ok(()),
    }
}

/// A file's path as it travels: the name of its source, then what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WirePath {
    /// `None`: [`CONTENT_ONLY`].
    pub top: Option<OsString>,
    pub below: PathBuf,
}

impl WirePath {
    /// The path of a source without a name of its own.
    pub(crate) fn content() -> WirePath {
        WirePath { top: None, below: PathBuf::new() }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<WirePath, Problem> {
        let (top, below) = match bytes.iter().position(|b| *b == b'/') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &[][..]),
        };
        if below.is_empty() && bytes.ends_with(b"/") {
            return Err(Problem::new(Cause::Refused, "a name in its path is empty"));
        }
        let top = if top == CONTENT_ONLY.as_bytes() {
            None
        } else {
            check_name(top).map_err(|why| Problem::new(Cause::Refused, why))?;
            Some(OsString::from_vec(top.to_vec()))
        };
        if bytes.len() > MAX_PATH_BYTES {
            return Err(Problem::new(Cause::Refused, "the path is longer than 4095 bytes"));
        }
        Ok(WirePath { top, below: check_path(below)? })
    }
}

/// A path without the slashes and dots at its end, which say how it is meant and not what it names.
pub(crate) fn trim_end(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            b"." => return b"",
            // A lone slash stays: it is an absolute path.
            [head @ .., b'/'] | [head @ .., b'/', b'.'] if !head.is_empty() => head,
            _ => return path,
        }
    }
}

/// The path as bytes.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The path that bytes from the wire name, for people only.
pub(crate) fn shown(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_elsewhere_is_refused() {
        let long = "x".repeat(256);
        for bad in [
            "/etc/passwd",
            "..",
            "../x",
            "a/../b",
            "a//b",
            "a/",
            "a/.",
            "a\0b",
            "a/.x.0123456789abcdef.multirail-part",
            &long,
            &"a/".repeat(2100),
        ] {
            assert!(check_path(bad.as_bytes()).is_err(), "{bad:?}");
            assert!(WirePath::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(WirePath::parse(b"").is_err());
        assert!(check_path(".".as_bytes()).is_err());
    }

    #[test]
    fn what_is_plain_is_not() {
        for good in ["a", "a/b c/..d", ".hidden", &"x".repeat(255), "multirail-part"] {
            assert_eq!(check_path(good.as_bytes()), Ok(PathBuf::from(good)));
        }
        assert_eq!(check_path(b""), Ok(PathBuf::new()));
        let content = WirePath::parse(b"./a/b").unwrap();
        assert_eq!((content.top, content.below), (None, PathBuf::from("a/b")));
        assert_eq!(WirePath::parse(b".").unwrap(), WirePath { top: None, below: PathBuf::new() });
        assert_eq!(WirePath::parse(b"a").unwrap().top.as_deref(), Some(OsStr::new("a")));
    }
}
