//! A relay becomes a process of its own, and ends.

use crate::relay::Relay;
use crate::state::Process;
use nix::errno::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A relay only closes its ports, which takes the kernel a grace period or two.
const END_TIMEOUT: Duration = Duration::from_secs(3);
const END_POLL: Duration = Duration::from_millis(1);

/// Readable once this process has ended.
pub(crate) fn watch_this() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) })?;
    // SAFETY: the kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Starts a relay. It is nobody's child, so nobody has to bury it.
///
/// The caller may have many threads, whose locks stay as they are in a copy of the process: there, only system calls are
/// made.
pub(crate) fn start(mut relay: Relay) -> io::Result<Process> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (mut hears, says) = pipe()?;
    let mut open = relay.descriptors();
    open.push(says.as_raw_fd());
    open.sort_unstable();
    // SAFETY: the child makes system calls, and ends by one, whatever happens.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ends = Ends;
        // SAFETY: as above.
        if unsafe { libc::fork() } == 0 {
            detach(null.as_raw_fd(), &open);
            let pid = std::process::id().to_ne_bytes();
            // SAFETY: the bytes outlive the calls.
            unsafe {
                libc::write(says.as_raw_fd(), pid.as_ptr().cast(), pid.len());
                libc::close(says.as_raw_fd());
            }
            relay.run();
        }
        drop(_ends);
    }
    Errno::result(child)?;
    drop((relay, says));
    let mut pid = [0; 4];
    let heard = hears.read_exact(&mut pid);
    // SAFETY: the status is not asked for. Somebody else may have buried the child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    heard?;
    Ok(Process::of(u32::from_ne_bytes(pid)))
}

/// Ends a relay, and waits until it has gone and its ports with it.
pub(crate) fn end(relay: &Process) {
    // Held before it is looked at, so that the number cannot become another's in between.
    // SAFETY: no memory is passed.
    let Ok(fd) = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, relay.pid(), 0) }) else { return };
    // SAFETY: the kernel has just made it.
    let process = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    let start = Instant::now();
    let mut signal = libc::SIGTERM;
    while relay.is_alive() {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: no memory is passed.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, none, 0) };
        std::thread::sleep(END_POLL);
        if start.elapsed() > END_TIMEOUT {
            signal = libc::SIGKILL;
        }
        if start.elapsed() > 2 * END_TIMEOUT {
            return;
        }
    }
}

/// Also where something panics: what the caller's threads hold must not be touched.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        // SAFETY: nothing is left to do.
        unsafe { libc::_exit(0) }
    }
}

/// Leaves the terminal, the files and the signals of who started it. `open`, in order, stays open.
fn detach(null: RawFd, open: &[RawFd]) {
    // SAFETY: no memory is passed but names that are constant.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGPIPE, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
        let mut first = 3;
        for &fd in open {
            close_range(first, fd - 1);
            first = fd + 1;
        }
        close_range(first, RawFd::MAX);
        libc::prctl(libc::PR_SET_NAME, c"mrlab-relay".as_ptr());
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
    be_on_time();
}

/// Runs the calling thread, and what it starts from now on, before all that is not real-time: with the lowest real-time
/// priority, or where that is not permitted with the highest other. For what must happen at its time on a machine whose
/// hosts need all of it, and is soon done.
pub fn be_on_time() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel only reads it.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) < 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}

fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: nobody in this process uses them any more.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written.
    Errno::result(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just made them.
    Ok(unsafe { (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
