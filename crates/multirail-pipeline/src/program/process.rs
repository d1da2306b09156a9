//! System calls around the start and the end of a program.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Size of a pipe, where the system allows it.
const PIPE_BYTES: libc::c_int = 1 << 20;

/// A process that was started and is not set up yet. Dropping it kills the process.
pub(super) struct StartingProcess(pub Option<std::process::Child>);

impl StartingProcess {
    /// The process's number; 0 once it was taken out.
    pub(super) fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, std::process::Child::id)
    }
}

impl Drop for StartingProcess {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            kill_group(process.id());
            let _ = process.wait();
        }
    }
}

/// Kills a process group by the number of its leader, which must not be reaped.
pub(super) fn kill_group(leader: u32) {
    if let Ok(leader @ 1..) = libc::pid_t::try_from(leader) {
        // SAFETY: no memory is involved. The group is ours: its leader is not reaped.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Sets up the new process between fork and exec: a process group of its own that ends with this
/// process, and default signals.
pub(super) fn prepare(watched: RawFd) -> io::Result<()> {
    // SAFETY: system calls only, on this process's own.
    unsafe {
        check(libc::setpgid(0, 0))?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()))?;
        match fork()? {
            0 => match fork() {
                Ok(0) => watch(watched),
                Ok(watcher) => {
                    let told = watcher.to_ne_bytes();
                    let written = libc::write(watched, told.as_ptr().cast(), told.len());
                    libc::_exit(libc::c_int::from(written != told.len() as isize))
                }
                Err(_) => libc::_exit(1),
            },
            between => {
                let mut status = 0;
                while libc::waitpid(between, &mut status, 0) < 0 {
                    if io::Error::last_os_error().kind() != ErrorKind::Interrupted {
                        return Err(io::Error::last_os_error());
                    }
                }
                if status == 0 { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
            }
        }
    }
}

/// The watcher: a process in the program's group that kills the group when this process ends.
///
/// However this process ends, its end of the socket pair is closed then, and `alive` becomes
/// readable. `PR_SET_PDEATHSIG` alone would not reach processes that the program has started. As a
/// member of the group, the watcher also keeps the group's number from being reused.
fn watch(alive: RawFd) -> ! {
    // SAFETY: system calls only. All other descriptors are closed, since other processes wait for
    // the ends of their pipes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::dup2(alive, 0);
        libc::syscall(libc::SYS_close_range, 1u32, u32::MAX, 0u32);
        let mut byte = 0u8;
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 {
            if *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
        libc::kill(0, libc::SIGKILL);
        libc::_exit(0)
    }
}

/// Forks without the handlers of the C library, whose locks another thread may hold.
fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: like `fork`: no stack is given, and nothing is shared.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as libc::pid_t) }
}

/// A socket pair between this process and the watcher.
pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors, which nothing else owns.
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The watcher's number, which was sent before the program began.
pub(super) fn watcher_pid(alive: &OwnedFd) -> io::Result<libc::pid_t> {
    let mut told = [0u8; 4];
    // SAFETY: four valid bytes.
    let read = unsafe { libc::recv(alive.as_raw_fd(), told.as_mut_ptr().cast(), told.len(), libc::MSG_DONTWAIT) };
    if read == told.len() as isize {
        Ok(libc::pid_t::from_ne_bytes(told))
    } else {
        Err(ErrorKind::UnexpectedEof.into())
    }
}

/// A descriptor of a process, which is readable once the process has ended.
pub(super) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, and nothing else owns it.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0u32);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as RawFd)) }
    }
}

/// Makes a pipe non-blocking, and larger where the system allows it.
pub(super) fn set_up_pipe(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: system calls on an open descriptor; a pipe that cannot be made larger stays as it is.
    unsafe {
        libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        check(flags)?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
