//! What the kernel knows of a TCP connection.

use std::os::fd::AsRawFd;

/// The kernel's `TCP_INFO`; `None` if the socket is no TCP connection.
pub(crate) fn tcp_info(socket: &impl AsRawFd) -> Option<libc::tcp_info> {
    // SAFETY: all-zero bytes are a valid tcp_info, and the kernel writes at most `length` bytes of it.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let fd = socket.as_raw_fd();
        let done = libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut length);
        (done == 0).then_some(info)
    }
}
