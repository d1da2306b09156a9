//! What the disk has, and what a file takes of it.

use crate::files::dir::Dir;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A file system's room. What it does not tell or limit is `u64::MAX`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    pub free_bytes: u64,
    pub free_files: u64,
    /// Files take whole blocks.
    pub block_bytes: u64,
}

impl Space {
    /// That of the file system which `dir` is on, for this user.
    pub(super) fn of(dir: &Dir) -> io::Result<Space> {
        let file = dir.as_file()?;
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

/// Whether nothing was ever written to the `bytes` from `offset` on, so that they read as zeros. `false` also where the file
/// system does not tell.
pub(super) fn is_hole(file: &File, offset: u64, bytes: u64) -> bool {
    let Ok(from) = libc::off_t::try_from(offset) else { return false };
    // SAFETY: no memory is involved. The file's own position, which this moves, is used by nobody.
    let data = unsafe { libc::lseek(file.as_raw_fd(), from, libc::SEEK_DATA) };
    if data < 0 {
        return io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO);
    }
    data as u64 >= offset + bytes
}
