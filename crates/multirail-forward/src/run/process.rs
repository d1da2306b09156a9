//! The memory and the sockets of a supervised process.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Reads from the memory of a process; fewer bytes than asked for is an error.
pub(super) fn read_memory(thread: libc::pid_t, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the local part is a valid buffer, and the kernel checks the remote one.
    let read = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    complete(read, into.len())
}

/// Writes to the memory of a process.
pub(super) fn write_memory(thread: libc::pid_t, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the kernel reads the local part, and checks the remote one.
    let written = unsafe { libc::process_vm_writev(thread, &raw const local, 1, &raw const remote, 1, 0) };
    complete(written, bytes.len())
}

fn complete(done: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(count) if count == wanted => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// The socket that a thread calls `descriptor`: the same open socket, under a number of this process.
pub(super) fn socket_of(thread: libc::pid_t, descriptor: i32) -> io::Result<socket2::Socket> {
    let process = pidfd(process_of(thread)?)?;
    // SAFETY: both are numbers; the kernel opens a descriptor for this process.
    let socket =
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, std::os::fd::AsRawFd::as_raw_fd(&process), descriptor, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it.
    Ok(socket2::Socket::from(unsafe { OwnedFd::from_raw_fd(socket as i32) }))
}

/// A descriptor of a process.
fn pidfd(process: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: both are numbers; the kernel opens a descriptor for this process.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) })
}

/// The process of a thread.
fn process_of(thread: libc::pid_t) -> io::Result<libc::pid_t> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let process = line.and_then(|number| number.trim().parse().ok());
    process.ok_or_else(|| io::Error::other("a thread without a process"))
}

/// Whether a thread is in the network namespace of this process.
pub(super) fn shares_network(thread: libc::pid_t) -> bool {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let own = namespace("self");
    own.is_some() && namespace(&thread.to_string()) == own
}

/// The state of a socket that is neither connected nor connects.
pub(super) const TCP_CLOSE: u8 = 7;

/// The state of a TCP socket, as the kernel numbers it.
pub(super) fn tcp_state(socket: &socket2::Socket) -> Option<u8> {
    // The first field of `struct tcp_info`.
    let (mut state, mut length) = (0u8, 1 as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to the pointer, which is valid for one.
    let failed = unsafe {
        let socket = std::os::fd::AsRawFd::as_raw_fd(socket);
        libc::getsockopt(socket, libc::SOL_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length)
    };
    (failed == 0).then_some(state)
}
