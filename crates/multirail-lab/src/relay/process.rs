//! Starts the relay as a process of its own, and ends it.

use crate::kernel::process::{ProcessIdentity, raise_priority};
use crate::relay::forwarder::Relay;
use nix::errno::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long a relay may take to end before it is killed. It only closes its ports, for which the
/// kernel needs a grace period or two.
const END_TIMEOUT: Duration = Duration::from_secs(3);
const END_POLL: Duration = Duration::from_millis(1);

/// A descriptor that becomes readable when this process ends.
pub(crate) fn watch_this_process() -> io::Result<OwnedFd> {
    pidfd_open(std::process::id())
}

/// Starts a relay, and returns the identity of its process.
///
/// A child process starts it and exits at once. The relay is thus not a child of the caller, which
/// need not wait for it.
pub(crate) fn start(mut relay: Relay) -> io::Result<ProcessIdentity> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (mut pid_reader, pid_writer) = pipe()?;
    let mut open = relay.descriptors();
    open.push(pid_writer.as_raw_fd());
    open.sort_unstable();
    // SAFETY: other threads of the caller may hold locks, which stay locked in the child. The child
    // therefore only makes system calls, and `ExitOnDrop` ends it without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let exit = ExitOnDrop;
        // SAFETY: as above.
        if unsafe { libc::fork() } == 0 {
            detach(null.as_raw_fd(), &open);
            let pid = std::process::id().to_ne_bytes();
            // SAFETY: the bytes outlive the write. Nothing uses the descriptor after it is closed,
            // because this process ends without running destructors.
            unsafe {
                libc::write(pid_writer.as_raw_fd(), pid.as_ptr().cast(), pid.len());
                libc::close(pid_writer.as_raw_fd());
            }
            relay.run();
        }
        drop(exit);
    }
    Errno::result(child)?;
    drop((relay, pid_writer));
    let mut pid = [0; 4];
    let received = pid_reader.read_exact(&mut pid);
    // SAFETY: a null status is valid. It is no error if another thread has reaped the child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    received?;
    Ok(ProcessIdentity::of(u32::from_ne_bytes(pid)))
}

/// Ends a relay, and waits until its process and ports are gone.
pub(crate) fn end(relay: &ProcessIdentity) {
    // The pidfd is opened before the identity is checked, so that it cannot refer to a later
    // process with the same PID.
    let Ok(process) = pidfd_open(relay.pid()) else { return };
    let start = Instant::now();
    let mut signal = libc::SIGTERM;
    while relay.is_alive() {
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo is valid.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, info, 0) };
        std::thread::sleep(END_POLL);
        if start.elapsed() > END_TIMEOUT {
            signal = libc::SIGKILL;
        }
        if start.elapsed() > 2 * END_TIMEOUT {
            return;
        }
    }
}

/// Ends the process when dropped, also by a panic. Destructors and exit handlers do not run,
/// because they could touch what the threads of the caller hold.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(0) }
    }
}

/// Detaches the process from the terminal, the files and the signal handlers of the caller. The
/// descriptors in `open`, which is sorted, stay open.
fn detach(null: RawFd, open: &[RawFd]) {
    // SAFETY: these calls get numbers, constant strings, and a signal set that outlives them.
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
    raise_priority();
}

fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: the process has no other thread, and uses none of these descriptors again.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open gets no pointers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors to the array.
    Errno::result(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just created the descriptors, and nothing else owns them.
    Ok(unsafe { (File::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
