//! Who is this network namespace's agent: whoever holds a lock on its file. The kernel tells by it which process that is, which no number
//! in a file can, and forgets it when the process ends, however it ends.

use super::state::Place;
use super::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The process that holds the lock.
pub(super) fn agent_pid(place: Place) -> Option<i32> {
    let file = File::options().read(true).write(true).open(place.agent_file()).ok()?;
    let mut lock = whole_file();
    // SAFETY: the struct outlives the call.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    (asked == 0 && lock.l_type != libc::F_UNLCK as libc::c_short && lock.l_pid > 0).then_some(lock.l_pid)
}

/// Makes this process the agent, for as long as the file is open; None if there is one already. The file is `up`'s: an agent that comes late
/// leaves none behind.
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

/// Ends the agent, if there is one, and waits until it has ended.
pub(super) fn end_agent(place: Place) -> Result<()> {
    /// It has nothing to do at its end that takes time.
    const PATIENCE: Duration = Duration::from_secs(2);
    let begun = Instant::now();
    while let Some(pid) = agent_pid(place) {
        let signal = if begun.elapsed() < PATIENCE { libc::SIGTERM } else { libc::SIGKILL };
        // SAFETY: no memory is passed. The process held the lock a moment ago.
        if unsafe { libc::kill(pid, signal) } < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ESRCH) {
                return Err(Error::io(format!("ending the agent (process {pid})"))(error));
            }
        }
        if begun.elapsed() > 2 * PATIENCE {
            return Err(Error::io(format!("ending the agent (process {pid})"))(io::Error::other("it does not end")));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn whole_file() -> libc::flock {
    // SAFETY: a struct of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
