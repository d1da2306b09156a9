//! A process that answers the kernel when the supervisor has ended before its program.
//!
//! Without it, the kernel would let every further `connect` of the program fail with `ENOSYS`, since the
//! listener of the filter is gone. The guardian holds the listener as well. If the supervisor ends while
//! supervised processes are left, it lets all calls go on unchanged, also those that the supervisor has
//! not answered: their numbers are in memory that both share.

use super::notification::{Answer, receive, send};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the shared memory: a page.
const SHARED_BYTES: usize = 4096;
/// The most calls that are remembered at the same time.
const MAX_CALLS: usize = SHARED_BYTES / size_of::<AtomicU64>();
/// What the supervisor says when no supervised process is left.
const DONE: u8 = 1;

/// The numbers of calls that wait for an answer; 0 is none.
#[derive(Debug)]
struct Calls(*const [AtomicU64; MAX_CALLS]);

// SAFETY: the memory stays mapped until the end of the process, and has atomic numbers only.
unsafe impl Send for Calls {}
// SAFETY: as above.
unsafe impl Sync for Calls {}

/// The supervisor's side of the guardian.
#[derive(Debug)]
pub(super) struct Guardian {
    /// The guardian reads the other end. It is closed when this process ends, however it ends.
    pipe: OwnedFd,
    calls: Calls,
}

impl Calls {
    fn map() -> io::Result<Self> {
        // SAFETY: a new mapping of zeros, which are valid atomic numbers. It is never unmapped.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), SHARED_BYTES, access, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(memory.cast()))
    }

    fn slots(&self) -> &[AtomicU64; MAX_CALLS] {
        // SAFETY: see `Calls::map`.
        unsafe { &*self.0 }
    }

    fn replace(&self, old: u64, new: u64) {
        let swap = |slot: &AtomicU64| slot.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // With more calls than there is room for, some are not remembered.
        self.slots().iter().any(swap);
    }
}

impl Guardian {
    /// Starts the guardian of a filter.
    ///
    /// # Errors
    ///
    /// Those of the system's calls.
    pub(super) fn start(listener: BorrowedFd<'_>) -> io::Result<Self> {
        let calls = Calls::map()?;
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors, which belong to this process then.
        let (theirs, ours) = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // SAFETY: the child makes system calls only, uses no lock and allocates nothing, and ends by _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => guard(theirs.as_raw_fd(), listener.as_raw_fd(), &calls),
            _ => Ok(Self { pipe: ours, calls }),
        }
    }

    /// The supervisor has received the question about a call.
    pub(super) fn received(&self, call: u64) {
        self.calls.replace(0, call);
    }

    /// The supervisor has answered it.
    pub(super) fn answered(&self, call: u64) {
        self.calls.replace(call, 0);
    }

    /// No supervised process is left: the guardian ends.
    pub(super) fn done(&self) {
        // SAFETY: one byte of valid memory.
        unsafe { libc::write(self.pipe.as_raw_fd(), [DONE].as_ptr().cast(), 1) };
    }
}

/// The guardian's process.
fn guard(pipe: i32, listener: i32, calls: &Calls) -> ! {
    // SAFETY: system calls with numbers, and with valid memory of one byte.
    unsafe {
        // It gets no signals of the terminal, and keeps no connection of the supervisor open.
        libc::setsid();
        // Handlers of the supervisor's runtime would swallow a signal that is meant to end it.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let (low, high) = (pipe.min(listener) as u32, pipe.max(listener) as u32);
        // A range that is empty is an error, which changes nothing.
        libc::syscall(libc::SYS_close_range, 0, low.saturating_sub(1), 0);
        libc::syscall(libc::SYS_close_range, low + 1, high - 1, 0);
        libc::syscall(libc::SYS_close_range, high + 1, u32::MAX, 0);
        let mut said = 0u8;
        if libc::read(pipe, (&raw mut said).cast(), 1) == 1 {
            libc::_exit(0);
        }
    }
    for slot in calls.slots() {
        match slot.load(Ordering::Acquire) {
            0 => {}
            call => drop(send(listener, call, Answer::Unchanged)),
        }
    }
    loop {
        let mut polled = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut polled, 1, -1) };
        if ready > 0 && polled.revents & libc::POLLIN != 0 {
            if let Ok(question) = receive(listener) {
                drop(send(listener, question.id, Answer::Unchanged));
            }
        } else if ready > 0 {
            // SAFETY: it does not return.
            unsafe { libc::_exit(0) };
        }
    }
}
