//! Holes in files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Whether the `bytes` from `offset` on were never written, so that they read as zeros. `false` if
/// the file system does not report it.
pub(super) fn is_hole(file: &File, offset: u64, bytes: u64) -> bool {
    let Ok(from) = libc::off_t::try_from(offset) else { return false };
    // SAFETY: no memory is involved. The call moves the file's own position, which is unused.
    let data = unsafe { libc::lseek(file.as_raw_fd(), from, libc::SEEK_DATA) };
    if data < 0 {
        return io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO);
    }
    data as u64 >= offset + bytes
}
