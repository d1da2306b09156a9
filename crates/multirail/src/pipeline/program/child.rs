//! The process of a program, its pipes, and its end.

use super::frames::{Reading, Writing};
use super::{Failure, Place, Unit};
use crate::transport::Buffer;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// What is kept of the end of its stderr, for its obituary.
const STDERR_BYTES: usize = 4096;
const STDERR_LINES: usize = 5;
/// Room in its pipes, where the system allows it.
const PIPE_BYTES: libc::c_int = 1 << 20;

/// A running program. Dropping it kills it, and everything that it has started and that is still in its process group.
pub struct Child {
    process: std::process::Child,
    /// Readable when it has ended.
    pidfd: OwnedFd,
    /// Its watcher kills it when this is closed: see [`watch`].
    _alive: OwnedFd,
    watcher: libc::pid_t,
    input: Option<ChildStdin>,
    output: ChildStdout,
    stderr: Option<ChildStderr>,
    reading: Reading,
    writing: Option<Writing>,
    closed_input: bool,
    last_lines: Vec<u8>,
    limit_bytes: u64,
    reaped: bool,
}

impl Child {
    /// Starts it.
    pub fn start(command: &[String], folder: &Path, place: &Place, unit: &Unit) -> Result<Self, Failure> {
        let failed = |e: io::Error| format!("cannot start {:?} in {}: {e}", command[0], folder.display());
        let (watched, alive) = pair().map_err(failed)?;
        let mut starting = Command::new(&command[0]);
        starting.args(&command[1..]).current_dir(folder);
        starting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        starting
            .env("MULTIRAIL_FILTER", &place.filter)
            .env("MULTIRAIL_COPY", place.copy.to_string())
            .env("MULTIRAIL_COPIES", place.copies.to_string())
            .env("MULTIRAIL_CHUNK_BYTES", place.chunk_bytes.to_string())
            .env("MULTIRAIL_LIMIT_BYTES", place.limit_bytes.to_string())
            .env("MULTIRAIL_UNIT", unit.number.to_string());
        match std::str::from_utf8(&unit.query) {
            Ok(query) if !query.contains('\0') => starting.env("MULTIRAIL_QUERY", query),
            _ => starting.env_remove("MULTIRAIL_QUERY"),
        };
        let watched_fd = watched.as_raw_fd();
        // SAFETY: between fork and exec it makes system calls only.
        unsafe { starting.pre_exec(move || prepare(watched_fd)) };
        let mut process = starting.spawn().map_err(failed)?;
        drop(watched);
        let (input, output, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let mut unborn = Unborn(Some(process));
        let pidfd = pidfd(unborn.id()).map_err(failed)?;
        let watcher = watcher(&alive).map_err(failed)?;
        let (Some(input), Some(output), Some(stderr)) = (input, output, stderr) else {
            return Err("its program has no pipes".into());
        };
        for fd in [input.as_fd(), output.as_fd(), stderr.as_fd()] {
            unblock(fd).map_err(failed)?;
        }
        let Some(process) = unborn.0.take() else { return Err("its program is gone".into()) };
        Ok(Self {
            process,
            pidfd,
            _alive: alive,
            watcher,
            input: Some(input),
            output,
            stderr: Some(stderr),
            reading: Reading::default(),
            writing: None,
            closed_input: false,
            last_lines: Vec::new(),
            limit_bytes: place.limit_bytes,
            reaped: false,
        })
    }

    /// Gives it a buffer, which goes with the next [`Child::give`]. It must not have one to read.
    pub fn offer(&mut self, body: Buffer) -> Result<(), Failure> {
        let bytes = body.len();
        let writing = Writing::new(body).ok_or_else(|| format!("a buffer of {bytes} bytes is too long for a program"));
        self.writing = Some(writing?);
        Ok(())
    }

    /// Writes what its pipe takes; whether that is anything.
    pub fn give(&mut self) -> Result<bool, Failure> {
        let (Some(writing), Some(input)) = (&mut self.writing, &mut self.input) else { return Ok(false) };
        let before = writing.done();
        let all = match writing.go_on(input) {
            Ok(all) => all,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                // What it says when it ends is the better reason.
                self.closed_input = true;
                self.input = None;
                return Ok(true);
            }
            Err(error) => return Err(format!("writing to it: {error}").into()),
        };
        let moved = writing.done() > before;
        if all {
            self.writing = None;
        }
        Ok(moved)
    }

    /// The next buffer that it wrote.
    pub fn take(&mut self, memory: impl FnOnce(usize) -> Buffer) -> Result<Option<Buffer>, Failure> {
        self.hear();
        let next = self.reading.next(&mut self.output, self.limit_bytes, memory);
        next.map_err(|e| self.because(e.to_string()))
    }

    /// Bytes of the buffer that is coming: whether it writes.
    pub fn has_written(&self) -> usize {
        self.reading.has()
    }

    /// A buffer waits for it.
    pub fn has_to_read(&self) -> bool {
        self.writing.is_some()
    }

    /// Its input ends.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    pub fn has_closed_input(&self) -> bool {
        self.closed_input
    }

    pub fn has_closed_output(&self) -> bool {
        self.reading.is_over
    }

    /// What its owner sleeps for, with whether it is for writing.
    pub fn pipes(&self) -> Vec<(RawFd, bool)> {
        let mut pipes = vec![(self.pidfd.as_raw_fd(), false)];
        pipes.extend((!self.reading.is_over).then(|| (self.output.as_raw_fd(), false)));
        pipes.extend(self.stderr.as_ref().map(|s| (s.as_raw_fd(), false)));
        pipes.extend(self.input.as_ref().filter(|_| self.writing.is_some()).map(|i| (i.as_raw_fd(), true)));
        pipes
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> Result<bool, Failure> {
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) };
        Ok(ready > 0)
    }

    /// Takes its exit code, and ends what it has left behind.
    pub fn reap(&mut self) -> Result<ExitStatus, Failure> {
        self.kill();
        let status = self.process.wait();
        self.reap_watcher();
        self.reaped = true;
        Ok(status.map_err(|e| format!("waiting for its program: {e}"))?)
    }

    /// What has come of a buffer that is not whole, and of how much.
    pub fn cut_off(&self) -> Option<(usize, usize)> {
        self.reading.part()
    }

    /// A reason, with the last that it said.
    pub fn because(&mut self, why: String) -> Failure {
        self.hear();
        let said = String::from_utf8_lossy(&self.last_lines);
        let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(STDERR_LINES)..].join("\n  ");
        if last.is_empty() { why.into() } else { format!("{why}; its stderr ends:\n  {last}").into() }
    }

    /// Takes what it says on stderr, of which the end is kept.
    fn hear(&mut self) {
        let Some(stderr) = &mut self.stderr else { return };
        let mut some = [0; 4096];
        loop {
            match stderr.read(&mut some) {
                Ok(0) => break self.stderr = None,
                Ok(read) => {
                    tracing::info!(said = %String::from_utf8_lossy(&some[..read]).trim_end(), "a program");
                    self.last_lines.extend_from_slice(&some[..read]);
                    let surplus = self.last_lines.len().saturating_sub(STDERR_BYTES);
                    self.last_lines.drain(..surplus);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => break self.stderr = None,
            }
        }
    }

    /// Whose child the watcher is depends on the system: it is this process's where this is the first one, as in a container.
    fn reap_watcher(&self) {
        // SAFETY: no memory is involved. It was killed with its group, and the number is a child's of this process or nobody's here.
        unsafe { libc::waitpid(self.watcher, std::ptr::null_mut(), 0) };
    }

    /// Ends it and what it has started. Not after it was reaped: the number may be another's then.
    fn kill(&self) {
        if !self.reaped {
            kill_group(self.process.id());
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.process.wait();
            self.reap_watcher();
        }
    }
}

/// A process that is not a [`Child`] yet.
struct Unborn(Option<std::process::Child>);

impl Unborn {
    fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, std::process::Child::id)
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            kill_group(process.id());
            let _ = process.wait();
        }
    }
}

fn kill_group(leader: u32) {
    if let Ok(leader @ 1..) = libc::pid_t::try_from(leader) {
        // SAFETY: no memory is involved. The group is ours: its leader is not reaped.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// In the new process: a group of its own, that ends when this process does; and signals as programs expect them.
fn prepare(watched: RawFd) -> io::Result<()> {
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

/// The watcher: a process in the program's group, but no child of it, that kills the group when whoever started it is gone, however
/// that came: then `alive` is closed, and its other end can be read. `PR_SET_PDEATHSIG` alone would leave what the program has started.
/// In the group it also keeps the group's number from being given to others.
fn watch(alive: RawFd) -> ! {
    // SAFETY: system calls only. No descriptor but the one stays open: others wait for the ends of their pipes.
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

/// Without what the C library does around it, for it may be in the middle of anything on another thread.
fn fork() -> io::Result<libc::pid_t> {
    // SAFETY: as `fork`: no stack is given, nothing is shared.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as libc::pid_t) }
}

/// Two ends of a line between this process and the watcher.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors, which are nobody else's.
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The watcher's number, which was told before the program began.
fn watcher(alive: &OwnedFd) -> io::Result<libc::pid_t> {
    let mut told = [0u8; 4];
    // SAFETY: four valid bytes.
    let read = unsafe { libc::recv(alive.as_raw_fd(), told.as_mut_ptr().cast(), told.len(), libc::MSG_DONTWAIT) };
    if read == told.len() as isize {
        Ok(libc::pid_t::from_ne_bytes(told))
    } else {
        Err(ErrorKind::UnexpectedEof.into())
    }
}

fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new and nobody else's.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0u32);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as RawFd)) }
    }
}

fn unblock(fd: BorrowedFd<'_>) -> io::Result<()> {
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
