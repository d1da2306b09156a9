//! The listener of a filter, in a runtime.

use super::guardian::Guardian;
use super::notification::{Answer, Notification, receive, send};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use tokio::io::unix::AsyncFd;

/// Where the kernel asks.
#[derive(Debug)]
pub(super) struct NotificationListener {
    listener: AsyncFd<OwnedFd>,
    guardian: Guardian,
}

impl NotificationListener {
    pub(super) fn new(listener: OwnedFd) -> io::Result<Self> {
        let guardian = Guardian::start(listener.as_fd())?;
        // SAFETY: the descriptor is owned and stays the same until it is dropped with the AsyncFd.
        let listener = unsafe { AsyncFd::register_with_interest(listener, tokio::io::Interest::READABLE)? };
        Ok(Self { listener, guardian })
    }

    fn descriptor(&self) -> RawFd {
        self.listener.get_ref().as_raw_fd()
    }

    /// The next question; `None` when no supervised process is left.
    pub(super) async fn next(&self) -> io::Result<Option<Notification>> {
        loop {
            let mut ready = self.listener.readable().await?;
            match self.poll_now()? {
                Polled::Question => {}
                Polled::Over => {
                    self.guardian.done();
                    return Ok(None);
                }
                Polled::Nothing => {
                    ready.clear_ready();
                    continue;
                }
            }
            match receive(self.descriptor()) {
                Ok(notification) => {
                    self.guardian.received(notification.id);
                    return Ok(Some(notification));
                }
                // The caller was killed meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What the kernel has to say now. Receiving would block if it had nothing.
    fn poll_now(&self) -> io::Result<Polled> {
        let mut polled = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
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
        let id = notification.id;
        // SAFETY: the kernel reads the number.
        unsafe { libc::ioctl(self.descriptor(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
    }

    /// Answers. A caller that was killed or interrupted meanwhile gets no answer.
    pub(super) fn answer(&self, notification: &Notification, answer: Answer) {
        if let Err(error) = send(self.descriptor(), notification.id, answer) {
            tracing::debug!(%error, "the answer to a call");
        }
        self.guardian.answered(notification.id);
    }
}

enum Polled {
    Question,
    Nothing,
    Over,
}
