//! The free space of a file system.
//!
//! The space for a whole file is compared and never reserved: a peer that announces a file and sends
//! nothing must not take the disk from others. Two files that fit only one by one are both begun, and
//! one of them fails when the disk is full.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The free space of a file system. Unknown or unlimited values are `u64::MAX`.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Free bytes for this user.
    pub free_bytes: u64,
    /// How many files can be made.
    pub free_files: u64,
    /// The length of a block. Files take whole blocks.
    pub block_bytes: u64,
}

impl Space {
    /// The free space of the file system of `file`, which may be a directory.
    ///
    /// # Errors
    ///
    /// If the file system cannot be asked.
    pub fn of(file: &File) -> io::Result<Space> {
        // SAFETY: all-zero bytes are a valid statvfs, and the kernel writes one.
        let (result, stat) = unsafe {
            let mut stat: libc::statvfs = std::mem::zeroed();
            (libc::fstatvfs(file.as_raw_fd(), &mut stat), stat)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let block_bytes = stat.f_frsize.max(1);
        let free_bytes = if stat.f_blocks == 0 { u64::MAX } else { stat.f_bavail.saturating_mul(block_bytes) };
        let free_files = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
        Ok(Space { free_bytes, free_files, block_bytes })
    }
}

/// Checks that `bytes` more fit on the file system of `file`, so that a full disk is reported
/// before data is sent. It reserves nothing.
///
/// # Errors
///
/// [`io::ErrorKind::StorageFull`]. A file system that does not report its space has room.
pub fn check_room(file: &File, bytes: u64) -> io::Result<()> {
    match Space::of(file) {
        Ok(space) if bytes > space.free_bytes => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        _ => Ok(()),
    }
}

/// Allocates `range` of `file`, which is about to be written. Without that, writing takes longer. An
/// error is ignored, since writing reports it.
pub fn allocate(file: &File, range: Range<u64>) {
    // SAFETY: all-zero bytes are a valid statfs, and the kernel writes one.
    let (known, system) = unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &mut system) == 0, system)
    };
    // tmpfs would fill the range with zeros, which takes as long as writing it.
    if known && system.f_type == libc::TMPFS_MAGIC {
        return;
    }
    let offset = libc::off_t::try_from(range.start);
    let length = libc::off_t::try_from(range.end.saturating_sub(range.start));
    if let (Ok(offset), Ok(length)) = (offset, length) {
        // SAFETY: the descriptor is open; no memory is involved.
        unsafe { libc::fallocate(file.as_raw_fd(), 0, offset, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_than_the_free_space_is_refused() {
        let dir = File::open(std::env::temp_dir()).unwrap();
        let free_bytes = Space::of(&dir).unwrap().free_bytes;
        check_room(&dir, 0).unwrap();
        // Other programs use the disk meanwhile.
        check_room(&dir, free_bytes / 2).unwrap();
        if free_bytes < u64::MAX / 2 {
            assert_eq!(check_room(&dir, free_bytes * 2).unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
    }
}
