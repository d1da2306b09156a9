//! System calls on descriptors and shared memory.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Forbids to shrink the memory: a process that accesses the missing part would be killed.
pub(super) const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Maps the beginning of a file as shared memory.
pub(super) fn map(file: &OwnedFd, bytes: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping anywhere.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// The size of a file in bytes.
pub(super) fn file_bytes(file: &OwnedFd) -> io::Result<u64> {
    // SAFETY: a zeroed stat is valid, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    check(unsafe { libc::fstat(file.as_raw_fd(), &mut stat) })?;
    Ok(stat.st_size.max(0) as u64)
}

/// Makes a descriptor non-blocking.
pub(super) fn set_nonblocking(file: &OwnedFd) -> io::Result<()> {
    // SAFETY: a system call on a descriptor of this process.
    let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// The descriptor that a system call has opened.
pub(super) fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: just opened, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The result of a system call.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
