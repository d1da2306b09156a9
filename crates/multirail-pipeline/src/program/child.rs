//! The process of a program, its pipes, and its end.

use super::environment::Environment;
use super::frames::{Reading, Writing};
use super::process::{StartingProcess, kill_group, pidfd, prepare, set_up_pipe, socket_pair, watcher_pid};
use crate::edge::Buffer;
use crate::runtime::{CopyInfo, Failure, UnitOfWork};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// Bytes from the end of the program's stderr that an error can quote.
const STDERR_BYTES: usize = 4096;
/// Most lines of them that an error quotes.
const STDERR_LINES: usize = 5;

/// A running program. Dropping it kills all processes in the program's process group.
pub(super) struct Child {
    process: std::process::Child,
    /// Readable once the program has ended.
    pidfd: OwnedFd,
    /// The watcher kills the program when this is closed, see [`watch`](super::process).
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
    /// Starts a program in `folder`.
    pub(super) fn start(
        command: &[String],
        environment: &Environment,
        folder: &Path,
        info: &CopyInfo,
        unit: &UnitOfWork,
    ) -> Result<Self, Failure> {
        let failed = |e: io::Error| format!("cannot start {:?} in {}: {e}", command[0], folder.display());
        let (watched, alive) = socket_pair().map_err(failed)?;
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).current_dir(folder);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        environment.apply(&mut process, info, unit);
        let watched_fd = watched.as_raw_fd();
        // SAFETY: between fork and exec, `prepare` makes only system calls.
        unsafe { process.pre_exec(move || prepare(watched_fd)) };
        let mut process = process.spawn().map_err(failed)?;
        drop(watched);
        let (input, output, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let mut starting = StartingProcess(Some(process));
        let pidfd = pidfd(starting.id()).map_err(failed)?;
        let watcher = watcher_pid(&alive).map_err(failed)?;
        let (Some(input), Some(output), Some(stderr)) = (input, output, stderr) else {
            return Err("its program has no pipes".into());
        };
        for fd in [input.as_fd(), output.as_fd(), stderr.as_fd()] {
            set_up_pipe(fd).map_err(failed)?;
        }
        let Some(process) = starting.0.take() else { return Err("its program has ended".into()) };
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
            limit_bytes: info.limit_bytes,
            reaped: false,
        })
    }

    /// Queues a buffer for the program. There must be none that it has still to read.
    pub(super) fn offer(&mut self, body: Buffer) -> Result<(), Failure> {
        let bytes = body.len();
        let writing = Writing::new(body).ok_or_else(|| format!("a buffer of {bytes} bytes is too long for a program"));
        self.writing = Some(writing?);
        Ok(())
    }

    /// Writes what the pipe has room for. Returns whether anything was written.
    pub(super) fn give(&mut self) -> Result<bool, Failure> {
        let (Some(writing), Some(input)) = (&mut self.writing, &mut self.input) else { return Ok(false) };
        let before = writing.done();
        let all = match writing.go_on(input) {
            Ok(all) => all,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                // The program's exit code and stderr are a better reason than this error.
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

    /// The next buffer that the program has written.
    pub(super) fn take(&mut self, memory: impl FnOnce(usize) -> Buffer) -> Result<Option<Buffer>, Failure> {
        self.read_stderr();
        let next = self.reading.next(&mut self.output, self.limit_bytes, memory);
        next.map_err(|e| self.because(e.to_string()))
    }

    /// Bytes of the incomplete buffer that have arrived, to see whether the program writes.
    pub(super) fn has_written(&self) -> usize {
        self.reading.has()
    }

    /// A buffer waits for the program to read it.
    pub(super) fn has_to_read(&self) -> bool {
        self.writing.is_some()
    }

    /// Ends the program's input.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    pub(super) fn has_closed_input(&self) -> bool {
        self.closed_input
    }

    pub(super) fn has_closed_output(&self) -> bool {
        self.reading.is_over
    }

    /// The descriptors to sleep for, each with whether it is to be written to.
    pub(super) fn pipes(&self) -> Vec<(RawFd, bool)> {
        let mut pipes = vec![(self.pidfd.as_raw_fd(), false)];
        pipes.extend((!self.reading.is_over).then(|| (self.output.as_raw_fd(), false)));
        pipes.extend(self.stderr.as_ref().map(|s| (s.as_raw_fd(), false)));
        pipes.extend(self.input.as_ref().filter(|_| self.writing.is_some()).map(|i| (i.as_raw_fd(), true)));
        pipes
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&self) -> Result<bool, Failure> {
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) };
        Ok(ready > 0)
    }

    /// Takes the exit code, and kills what the program has left behind.
    pub(super) fn reap(&mut self) -> Result<ExitStatus, Failure> {
        self.kill();
        let status = self.process.wait();
        self.reap_watcher();
        self.reaped = true;
        Ok(status.map_err(|e| format!("waiting for its program: {e}"))?)
    }

    /// How many bytes of an incomplete buffer have arrived, and how many it has.
    pub(super) fn cut_off(&self) -> Option<(usize, usize)> {
        self.reading.part()
    }

    /// An error with the last lines of the program's stderr.
    pub(super) fn because(&mut self, why: String) -> Failure {
        self.read_stderr();
        let said = String::from_utf8_lossy(&self.last_lines);
        let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(STDERR_LINES)..].join("\n  ");
        if last.is_empty() { why.into() } else { format!("{why}; its stderr ends:\n  {last}").into() }
    }

    /// Reads the program's stderr and keeps the end of it.
    fn read_stderr(&mut self) {
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

    /// Reaps the watcher if it is a child of this process, as it is where this is process 1 of a
    /// container.
    fn reap_watcher(&self) {
        // SAFETY: no memory is involved. The watcher was killed with its group. The call fails if
        // the watcher is not a child of this process.
        unsafe { libc::waitpid(self.watcher, std::ptr::null_mut(), 0) };
    }

    /// Kills the program's process group, unless it was reaped: then the number may be reused.
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
