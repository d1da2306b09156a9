//! The lock that makes a process the agent of its network namespace.
//!
//! A record lock identifies the process that holds it, and the kernel releases it when the process
//! ends. A process id in a file could belong to another process later.

use crate::netns::Netns;
use crate::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The process that holds the lock.
pub(crate) fn agent_pid(netns: Netns) -> Option<i32> {
    let file = File::options().read(true).write(true).open(netns.agent_file()).ok()?;
    let mut lock = whole_file();
    // SAFETY: the struct outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    (result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short && lock.l_pid > 0).then_some(lock.l_pid)
}

/// Makes this process the agent while the returned file is open; none if there is another agent.
/// The file must exist: `up` makes it, and an agent that starts after `down` must not.
pub(super) fn become_agent(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().read(true).write(true).open(path)?;
    let lock = whole_file();
    // SAFETY: the struct outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } == 0 {
        return Ok(Some(file));
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
        error => Err(error),
    }
}

/// Ends the agent, if there is one, and waits for its end.
pub(crate) fn end_agent(netns: Netns) -> Result<()> {
    /// The agent is killed if it has not ended after this time, and given up after twice as long.
    const TIMEOUT: Duration = Duration::from_secs(2);
    let started = Instant::now();
    while let Some(pid) = agent_pid(netns) {
        let signal = if started.elapsed() < TIMEOUT { libc::SIGTERM } else { libc::SIGKILL };
        // SAFETY: kill takes no pointers. The process held the lock a moment ago.
        if unsafe { libc::kill(pid, signal) } < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ESRCH) {
                return Err(Error::io(format!("ending the agent (process {pid})"))(error));
            }
        }
        if started.elapsed() > 2 * TIMEOUT {
            return Err(Error::io(format!("ending the agent (process {pid})"))(io::Error::other(
                "it does not end after SIGKILL",
            )));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn whole_file() -> libc::flock {
    // SAFETY: zeros are a valid value of this struct of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
