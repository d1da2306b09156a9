//! Sleeping for several connections at once.

use super::connection::{Connection, Message, Wake};
use super::notifier::Notifier;
use multirail_net::error::{Error, Result};
use std::time::Instant;

/// Sleeps until one of the connections may have something to do, the notifier was notified since
/// `seen`, or `until` has come. It can also return for no reason.
///
/// `seen` is the value of [`Notifier::seen`] from before the connections were looked at.
///
/// # Errors
///
/// If a connection is lost, or the system cannot wait.
pub fn wait<'a>(
    notifier: &Notifier,
    seen: u32,
    connections: impl Iterator<Item = &'a mut Box<dyn Connection>>,
    until: Option<Instant>,
) -> Result<()> {
    wait_with_fds(notifier, seen, connections, Vec::new(), until)
}

/// The next message of a connection, for an owner that waits for nothing else. Meanwhile it sends
/// what is queued. `None` means that `until` has come.
///
/// # Errors
///
/// As for [`Connection::pull`].
pub fn next(
    notifier: &Notifier,
    connection: &mut Box<dyn Connection>,
    until: Option<Instant>,
) -> Result<Option<Message>> {
    loop {
        let seen = notifier.seen();
        connection.flush()?;
        if let Some(message) = connection.pull()? {
            return Ok(Some(message));
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Ok(None);
        }
        wait(notifier, seen, std::iter::once(&mut *connection), until)?;
    }
}

/// As [`wait`], but also for other descriptors.
pub(crate) fn wait_with_fds<'a>(
    notifier: &Notifier,
    seen: u32,
    connections: impl Iterator<Item = &'a mut Box<dyn Connection>>,
    mut fds: Vec<libc::pollfd>,
    until: Option<Instant>,
) -> Result<()> {
    for connection in connections {
        match connection.sleep()? {
            Wake::Now => return Ok(()),
            Wake::Notifier => {}
            Wake::Fd { fd, writable } => {
                let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
                fds.push(libc::pollfd { fd, events, revents: 0 });
            }
        }
    }
    notifier.wait(seen, &mut fds, until).map_err(Error::io("waiting for a filter's streams"))
}
