//! A file that is not there yet: written beside its destination under a name of its own, given the final one at the end.
//!
//! Whoever looks at the final name sees the old file or the new one, never a part. Dropping a part removes it; one that is
//! left behind by a killed process is told by its suffix.

use super::dir::{Dir, Kind};
use super::wire::Meta;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What the name of every unfinished file ends in.
pub const PART_SUFFIX: &str = ".multirail-part";
/// Leaves room for the dots, the random part and the suffix within 255 bytes.
const MAX_STEM_BYTES: usize = 200;

/// Whether a name is that of an unfinished file, or of a folder of such files.
pub(crate) fn is_part_name(name: &OsStr) -> bool {
    name.as_bytes().ends_with(PART_SUFFIX.as_bytes())
}

/// An unfinished file.
#[derive(Debug)]
pub(crate) struct Part {
    dir: Arc<Dir>,
    part_name: OsString,
    name: OsString,
    file: File,
    committed: bool,
}

impl Part {
    /// Creates the part of what shall be `name` in `dir`.
    pub(crate) fn create(dir: Arc<Dir>, name: &OsStr) -> io::Result<Part> {
        // Whatever is no file must not be replaced by one, /dev/null least of all. Symlinks are replaced, not followed.
        match dir.kind_of(name)? {
            None | Some(Kind::File | Kind::Symlink) => {}
            Some(kind) => return Err(io::Error::other(format!("there is {} of that name", kind.name()))),
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let stem = &name.as_bytes()[..name.len().min(MAX_STEM_BYTES)];
        let tail = format!(".{:016x}{PART_SUFFIX}", u64::from_le_bytes(random));
        let part_name = OsString::from_vec([b".", stem, tail.as_bytes()].concat());
        let file = dir.create(&part_name)?;
        Ok(Part { dir, part_name, name: name.to_owned(), file, committed: false })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Takes the room that the file will need: [`reserve`].
    pub(crate) fn reserve(&self, bytes: u64) -> io::Result<()> {
        reserve(&self.file, bytes)
    }

    /// Gives the file its mode, its time and its name; with `sync`, not before its content is on the disk.
    pub(crate) fn commit(mut self, meta: &Meta, sync: bool) -> io::Result<()> {
        apply(&self.file, meta)?;
        if sync {
            self.file.sync_all()?;
        }
        self.dir.rename(&self.part_name, &self.name)?;
        self.committed = true;
        if sync {
            self.dir.as_file()?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.committed
            && let Err(error) = self.dir.remove_file(&self.part_name)
        {
            tracing::warn!(%error, part = ?self.part_name, "cannot remove an unfinished file");
        }
    }
}

/// Takes the room that the file will need, so that a full disk shows now. A file system that cannot will show it later.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid statfs, and the kernel writes one.
    let (known, system) = unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &mut system) == 0, system)
    };
    // Memory would be filled with zeros first, which takes as long as the file itself: asking must do. Limits of 0 are none.
    if known && system.f_type == libc::TMPFS_MAGIC {
        let full = system.f_blocks > 0 && bytes.div_ceil(system.f_bsize.max(1) as u64) > system.f_bavail;
        return if full { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) };
    }
    let Ok(bytes) = libc::off_t::try_from(bytes) else { return Err(io::ErrorKind::FileTooLarge.into()) };
    // SAFETY: the descriptor is open; no memory is involved.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

/// Gives a file or directory its mode and its modification time.
pub(crate) fn apply(file: &File, meta: &Meta) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(meta.mode & 0o777))?;
    let since = Duration::new(meta.mtime_s.unsigned_abs(), meta.mtime_ns.min(999_999_999));
    let at = if meta.mtime_s >= 0 {
        SystemTime::UNIX_EPOCH.checked_add(since)
    } else {
        let whole = Duration::from_secs(since.as_secs());
        SystemTime::UNIX_EPOCH.checked_sub(whole).and_then(|t| t.checked_add(since - whole))
    };
    let at = at.ok_or_else(|| io::Error::other("its modification time is out of range"))?;
    file.set_times(FileTimes::new().set_modified(at))
}
