//! The kernel's questions about calls of the program, and the answers.

use std::io;
use std::os::fd::RawFd;

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notification {
    pub(super) id: u64,
    /// The thread that calls.
    pub(super) thread: libc::pid_t,
    /// The number of the call.
    pub(super) call: i64,
    pub(super) arguments: [u64; 6],
}

/// How a call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// As without a supervisor.
    Unchanged,
    /// It returns 0.
    Success,
    /// It fails.
    Error(i32),
}

/// Receives a question. Blocks without one. Makes system calls only.
pub(super) fn receive(listener: RawFd) -> io::Result<Notification> {
    // SAFETY: the kernel demands zeros, which are a valid value, and fills the structure.
    let (received, asked) = unsafe {
        let mut asked: libc::seccomp_notif = std::mem::zeroed();
        (libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked), asked)
    };
    if received != 0 {
        return Err(io::Error::last_os_error());
    }
    let libc::seccomp_notif { id, pid, data, .. } = asked;
    Ok(Notification { id, thread: pid as libc::pid_t, call: data.nr.into(), arguments: data.args })
}

/// Answers a question. Makes system calls only.
pub(super) fn send(listener: RawFd, id: u64, answer: Answer) -> io::Result<()> {
    let (error, flags) = match answer {
        Answer::Unchanged => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Success => (0, 0),
        Answer::Error(errno) => (-errno, 0),
    };
    let response = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
