//! An unfinished file. It is written beside its destination under a name of its own and renamed at
//! the end.
//!
//! A reader of the final name sees the old file or the new one, never a part. Dropping a part
//! removes it, unless it has a journal ([`crate::journal`]) and a later copy may continue it.
//!
//! A killed process leaves its part behind. A process holds a lock (`flock`) on each of its parts,
//! which the kernel releases with the process, so a part without a lock is abandoned. It is continued
//! or removed when a file of the same name is written again, since the names of a file's parts follow
//! from its own. It is removed
//!
//! - when a copy writes to its folder, if it is older than [`ABANDONED_AFTER`];
//! - when a server starts, if the killed server was writing to the folder ([`crate::notes`]). A part
//!   with a journal stays until it is older than [`ABANDONED_AFTER`].

mod ages;
mod replace;

pub use ages::Ages;
pub use replace::replace_by_link;

use crate::dir::{Dir, Kind};
use crate::journal::{Identity, Journal};
use crate::meta::Meta;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// The suffix of the name of every unfinished file.
pub const PART_SUFFIX: &str = ".multirail-part";
/// A part of another file is removed when it has no lock and is this old. On file systems that do
/// not show the locks of other hosts, a copy on another host may still write to a younger one.
pub const ABANDONED_AFTER: Duration = Duration::from_hours(24);
/// How much of the final name is used, in bytes. The dots, the digits and the suffix fit into the
/// rest of 255 bytes.
const MAX_STEM_BYTES: usize = 200;
/// The hexadecimal digits in the name of a part.
const DIGITS: usize = 16;
/// The most parts of one name at a time, each by another copy.
const MAX_PARTS_OF_A_NAME: u64 = 64;
/// How many of them are looked at for one to continue.
const MAX_RESUMED: u64 = 4;

/// Whether `name` is the name of an unfinished file, or of a folder of such files.
pub(crate) fn is_part_name(name: &OsStr) -> bool {
    name.as_bytes().ends_with(PART_SUFFIX.as_bytes())
}

/// The name of part `number` of the file `name`: `.NAME.0123456789abcdef.multirail-part`. The digits
/// are the 64-bit FNV-1a hash of the number and the name.
fn part_name(name: &OsStr, number: u64) -> OsString {
    let bytes = name.as_bytes();
    let hashed = number.to_le_bytes().into_iter().chain(bytes.iter().copied());
    let digits =
        hashed.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let tail = format!(".{digits:0DIGITS$x}{PART_SUFFIX}");
    OsString::from_vec([b".", &bytes[..bytes.len().min(MAX_STEM_BYTES)], tail.as_bytes()].concat())
}

/// Whether `name` has the form of the names that [`Part::create`] gives. Users may have files with
/// the suffix.
fn has_form_of_part(name: &OsStr) -> bool {
    let stem = name.as_bytes().strip_prefix(b".").and_then(|rest| rest.strip_suffix(PART_SUFFIX.as_bytes()));
    let Some((stem, digits)) = stem.and_then(|stem| stem.split_last_chunk::<DIGITS>()) else { return false };
    stem.len() > 1 && stem.ends_with(b".") && digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Removes the parts in `dir` that no process holds, and that were not written to for `age`. A part
/// that can be continued stays for [`ABANDONED_AFTER`]. It reads at most `limit` names. Parts that
/// cannot be removed stay.
///
/// Returns whether a part stayed that can be continued.
///
/// # Errors
///
/// If the folder cannot be read.
pub fn remove_abandoned(dir: &Dir, age: Duration, limit: usize) -> io::Result<bool> {
    let mut ages = ages(dir);
    let mut stays = false;
    for name in dir.entries()?.take(limit) {
        let name = name?;
        if !has_form_of_part(&name) {
            continue;
        }
        // A symbolic link can neither be opened nor locked.
        if let Ok(Some(stat)) = dir.stat_of(&name)
            && stat.kind == Kind::Symlink
        {
            if ages.is_old(stat.changed.0, age) && dir.remove_file(&name).is_ok() {
                tracing::info!(part = ?name, "removed an abandoned symlink");
            }
            continue;
        }
        // The modification time may be that of the source already.
        let mut is_old = |file: &File, stat: &Metadata| {
            let resumable = Journal::is_in(file).unwrap_or(false);
            let age = if resumable { age.max(ABANDONED_AFTER) } else { age };
            let is_old = ages.is_old(stat.ctime(), age);
            stays |= resumable && !is_old;
            is_old
        };
        if remove_if_abandoned(dir, &name, &mut is_old) {
            tracing::info!(part = ?name, "removed an abandoned unfinished file");
        }
    }
    Ok(stays)
}

/// The ages of files in `dir`, as of now.
pub fn ages(dir: &Dir) -> Ages<'_> {
    Ages::of(dir, create_clock)
}

/// Removes the file `name` unless a process holds it or `is_old` is false, and returns whether it
/// was removed.
pub(crate) fn remove_if_abandoned(dir: &Dir, name: &OsStr, mut is_old: impl FnMut(&File, &Metadata) -> bool) -> bool {
    // Some network file systems lock only what is open for writing. A part that was about to get
    // its name may be open to readers only.
    let Ok(file) = dir.child_file_writable(name).or_else(|_| dir.child_file(name)) else { return false };
    let Ok(stat) = file.metadata() else { return false };
    if !stat.is_file() || !is_old(&file, &stat) || file.try_lock().is_err() {
        return false;
    }
    is_named(dir, name, &stat) && dir.remove_file(name).is_ok()
}

/// Whether `name` is still the file of `stat`. Another process may have removed it before it was
/// locked, and made one of the same name.
fn is_named(dir: &Dir, name: &OsStr, stat: &Metadata) -> bool {
    dir.stat_of(name).is_ok_and(|other| other.is_some_and(|other| other.inode == (stat.dev(), stat.ino())))
}

/// Opens and locks the part `name` if no process holds it and if it has the journal of `identity`.
fn open_abandoned(dir: &Dir, name: &OsStr, identity: &Identity) -> Option<(File, Journal)> {
    let file = dir.child_file_writable(name).ok()?;
    let stat = file.metadata().ok()?;
    let journal = Journal::open(&file, identity).ok()??;
    (file.try_lock().is_ok() && is_named(dir, name, &stat)).then_some((file, journal))
}

/// Creates the file `name` and locks it; `None` if another process holds a file of that name.
pub(crate) fn create_locked(dir: &Dir, name: &OsStr) -> io::Result<Option<File>> {
    let file = match dir.create(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !remove_if_abandoned(dir, name, |_, _| true) {
                return Ok(None);
            }
            match dir.create(name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
                created => created?,
            }
        }
        created => created?,
    };
    match file.try_lock() {
        // Another process took the file for an abandoned one before it was locked.
        Err(TryLockError::WouldBlock) => Ok(None),
        Ok(()) if file.metadata()?.nlink() == 0 => Ok(None),
        // Where files cannot be locked, nothing is taken for abandoned.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
    }
}

/// Makes a file in `dir` for its change time, and removes its name at once. A killed process leaves
/// it as a part, which is removed as such. No file's part has one of these numbers.
fn create_clock(dir: &Dir) -> io::Result<File> {
    for number in MAX_PARTS_OF_A_NAME..2 * MAX_PARTS_OF_A_NAME {
        let name = part_name(OsStr::new("clock"), number);
        if let Some(file) = create_locked(dir, &name)? {
            dir.remove_file(&name)?;
            return Ok(file);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// An unfinished file.
#[derive(Debug)]
pub struct Part {
    dir: Arc<Dir>,
    part_name: OsString,
    name: OsString,
    file: File,
    /// The length of the content. Behind it is the journal.
    total_bytes: Option<u64>,
    /// Dropping the part leaves the file.
    stays: Arc<AtomicBool>,
}

impl Part {
    /// Creates the unfinished file that becomes `name` in `dir`. It replaces what a killed copy
    /// left of the same file.
    ///
    /// # Errors
    ///
    /// If something other than a file or a symbolic link has the name, or if the file cannot be
    /// created.
    pub fn create(dir: Arc<Dir>, name: &OsStr) -> io::Result<Part> {
        check_replaceable(&dir, name)?;
        for number in 0..MAX_PARTS_OF_A_NAME {
            let part_name = part_name(name, number);
            if let Some(file) = create_locked(&dir, &part_name)? {
                return Ok(Part {
                    dir,
                    part_name,
                    name: name.to_owned(),
                    file,
                    total_bytes: None,
                    stays: Arc::default(),
                });
            }
        }
        Err(io::Error::other(format!("{MAX_PARTS_OF_A_NAME} unfinished files of that name exist already")))
    }

    /// Continues the unfinished file that becomes `name` in `dir`, or creates it. The journal says
    /// which blocks of it are there.
    ///
    /// # Errors
    ///
    /// Those of [`Part::create`].
    pub fn resume(dir: Arc<Dir>, name: &OsStr, identity: &Identity) -> io::Result<(Part, Journal)> {
        check_replaceable(&dir, name)?;
        for number in 0..MAX_RESUMED {
            let part_name = part_name(name, number);
            if let Some((file, journal)) = open_abandoned(&dir, &part_name, identity) {
                let name = name.to_owned();
                let total_bytes = Some(identity.total_bytes);
                return Ok((Part { dir, part_name, name, file, total_bytes, stays: Arc::default() }, journal));
            }
        }
        let mut part = Self::create(dir, name)?;
        let journal = Journal::begin(&part.file, identity)?;
        part.total_bytes = Some(identity.total_bytes);
        Ok((part, journal))
    }

    /// The inode of the part of `name` that another process or copy holds, and that
    /// [`Part::resume`] would continue otherwise.
    pub fn held(dir: &Dir, name: &OsStr, identity: &Identity) -> Option<(u64, u64)> {
        let file = dir.child_file_writable(&part_name(name, 0)).ok()?;
        let stat = file.metadata().ok()?;
        Journal::open(&file, identity).ok()??;
        matches!(file.try_lock(), Err(TryLockError::WouldBlock)).then_some((stat.dev(), stat.ino()))
    }

    /// Whether dropping the part leaves its file, so that a later copy continues it. The writer sets it
    /// when there is something to continue with.
    pub fn stays(&self) -> &Arc<AtomicBool> {
        &self.stays
    }

    /// The open file, for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Sets the file's mode and time and gives it its name. With `sync` its content is on the disk
    /// before it gets the name, and the name before this returns.
    ///
    /// # Errors
    ///
    /// If the mode or the time cannot be set, if something that is no file has taken the name, or
    /// if the disk reports an error. The part is removed then.
    pub fn commit(self, meta: &Meta, sync: bool) -> io::Result<()> {
        if let Some(total_bytes) = self.total_bytes {
            self.file.set_len(total_bytes)?;
        }
        apply(&self.file, meta)?;
        if sync {
            self.file.sync_all()?;
        }
        self.dir.rename(&self.part_name, &self.name)?;
        self.stays.store(true, Ordering::Relaxed);
        // Copies of the same file that were killed at the same time left one part each.
        if self.total_bytes.is_some() {
            for number in 0..MAX_RESUMED {
                remove_if_abandoned(&self.dir, &part_name(&self.name, number), |_, _| true);
            }
        }
        if sync {
            self.dir.sync()?;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.stays.load(Ordering::Relaxed)
            && let Err(error) = self.dir.remove_file(&self.part_name)
        {
            tracing::warn!(%error, part = ?self.part_name, "cannot remove an unfinished file");
        }
    }
}

/// A rename would replace a device such as /dev/null. A symbolic link is replaced, not followed.
fn check_replaceable(dir: &Dir, name: &OsStr) -> io::Result<()> {
    match dir.kind_of(name)? {
        None | Some(Kind::File | Kind::Symlink) => Ok(()),
        Some(kind) => Err(io::Error::other(format!("there is {} of that name", kind.name()))),
    }
}

/// The room that unfinished files of `name` take on the disk, which [`Part::resume`] uses, in bytes.
pub fn taken_bytes(dir: &Dir, name: &OsStr) -> u64 {
    let stats = (0..MAX_RESUMED).map(|number| dir.stat_of(&part_name(name, number)));
    stats.flat_map(Result::ok).flatten().map(|stat| stat.disk_bytes).sum()
}

/// Sets the mode and the modification time of a file or directory.
///
/// # Errors
///
/// If the system refuses the mode or the time, or cannot represent the time.
pub fn apply(file: &File, meta: &Meta) -> io::Result<()> {
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

#[cfg(test)]
mod tests;
