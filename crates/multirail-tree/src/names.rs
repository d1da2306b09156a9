//! Paths on the wire. They are relative and contain no `.` or `..`. The receiver checks them,
//! because a peer can send any bytes.

use crate::part;
use crate::report::{Cause, Problem};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest path that the kernel accepts (`PATH_MAX`), in bytes.
pub const MAX_PATH_BYTES: usize = 4095;
/// The longest name that the kernel accepts (`NAME_MAX`), in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// The name on the wire of a source whose content is copied without a name of its own, as with
/// `cp -r SRC/ DEST`.
pub const CONTENT_ONLY: &str = ".";

/// Checks a relative path from the network. No bytes mean the root.
///
/// # Errors
///
/// [`Cause::Refused`] for an absolute path, for a name that [`check_name`] refuses, and for a path
/// longer than [`MAX_PATH_BYTES`].
pub fn check_path(bytes: &[u8]) -> Result<PathBuf, Problem> {
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

/// Checks one name of a path, and returns why it is not allowed.
///
/// # Errors
///
/// Why the name is refused.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
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

/// Whether `name` is that of an unfinished file, or of a folder of such files.
pub fn is_unfinished(name: &OsStr) -> bool {
    part::is_part_name(name)
}

/// A file's path on the wire: the name of its source, then the path below the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WirePath {
    /// The name of the source; `None` for [`CONTENT_ONLY`].
    pub top: Option<OsString>,
    /// The path below the source; empty for the source itself.
    pub below: PathBuf,
}

impl WirePath {
    /// The path of a source without a name of its own.
    pub fn content() -> WirePath {
        WirePath { top: None, below: PathBuf::new() }
    }

    /// Checks a path from the network.
    ///
    /// # Errors
    ///
    /// Those of [`check_path`].
    pub fn parse(bytes: &[u8]) -> Result<WirePath, Problem> {
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

/// The path without the slashes and dots at its end.
pub fn trim_end(mut path: &[u8]) -> &[u8] {
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
pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The bytes from the wire as a path, for messages only.
pub fn shown(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_of_the_root_are_refused() {
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
    fn plain_paths_are_accepted() {
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
