//! The kernel's questions about calls of the program, and the answers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::unix::AsyncFd;

/// Where the kernel asks.
#[derive(Debug)]
pub(super) struct NotificationListener(AsyncFd<OwnedFd>);

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notification {
    id: u64,
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

impl NotificationListener {
    pub(super) fn new(listener: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is owned and stays the same until it is dropped with the AsyncFd.
        Ok(Self(unsafe { AsyncFd::register_with_interest(listener, tokio::io::Interest::READABLE)? }))
    }

    /// The next question; `None` when no supervised process is left.
    pub(super) async fn next(&self) -> io::Result<Option<Notification>> {
        loop {
            let mut ready = self.0.readable().await?;
            match self.poll_now()? {
                Polled::Question => {}
                Polled::Over => return Ok(None),
                Polled::Nothing => {
                    ready.clear_ready();
                    continue;
                }
            }
            // SAFETY: the kernel demands zeros, which are a valid value, and fills the structure.
            let (received, asked) = unsafe {
                let mut asked: libc::seccomp_notif = std::mem::zeroed();
                let received =
                    libc::ioctl(self.0.get_ref().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked);
                (received, asked)
            };
            if received == 0 {
                let libc::seccomp_notif { id, pid, data, .. } = asked;
                let thread = pid as libc::pid_t;
                return Ok(Some(Notification { id, thread, call: data.nr.into(), arguments: data.args }));
            }
            match io::Error::last_os_error() {
                // The caller was killed meanwhile.
                error if error.raw_os_error() == Some(libc::ENOENT) => {}
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            }
        }
    }

    /// What the kernel has to say now. Receiving would block if it had nothing.
    fn poll_now(&self) -> io::Result<Polled> {
        let mut polled = libc::pollfd { fd: self.0.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        if unsafe { libc::poll(&raw mut polled, 1, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(match polled.revents {
            events if events & libc::POLLIN != 0 => Polled::Question,
            events if events & libc::POLLHUP != 0 => Polled::Over,
            _ => Polled::Nothing,
        })
    }

    /// Whether the call still waits. What was learned of its process before is valid then.
    pub(super) fn is_valid(&self, notification: &Notification) -> bool {
        // SAFETY: the kernel reads the number.
        unsafe {
            libc::ioctl(self.0.get_ref().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const notification.id)
                == 0
        }
    }

    /// Answers. A caller that was killed meanwhile needs no answer.
    pub(super) fn answer(&self, notification: &Notification, answer: Answer) {
        let (error, flags) = match answer {
            Answer::Unchanged => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Success => (0, 0),
            Answer::Error(errno) => (-errno, 0),
        };
        let response = libc::seccomp_notif_resp { id: notification.id, val: 0, error, flags };
        // SAFETY: the kernel reads the structure.
        let sent =
            unsafe { libc::ioctl(self.0.get_ref().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
        if sent != 0 {
            tracing::debug!(error = %io::Error::last_os_error(), "the answer to a call");
        }
    }
}

enum Polled {
    Question,
    Nothing,
    Over,
}
