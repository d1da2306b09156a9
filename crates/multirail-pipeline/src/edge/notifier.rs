//! A waker for one thread that waits for several connections, of this process and of others.
//!
//! A word in a page of shared memory counts notifications. A second word says how the owner sleeps:
//! on the first word (a futex), or in `poll` together with sockets, where a notification must be an
//! `eventfd`. A notification makes no system call while the owner is awake. A peer process that
//! writes nonsense into the page can wake the owner for nothing, or let it sleep for
//! the longest sleep.

use super::system::{SEALS, check, file_bytes, map, owned, set_nonblocking};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// Longest sleep of an owner before it looks at its connections again.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// How long an owner polls the word before it sleeps.
///
/// This is longer than two sleeping owners take to wake each other. Otherwise two owners that wait
/// only for each other would never find out that neither needs to sleep.
const SPIN_TIME: Duration = Duration::from_micros(100);
/// After this many useless spins in a row, an owner spins only now and then.
const MAX_USELESS_SPINS: u32 = 2;
/// An owner that spins only now and then does so once in this many waits.
const SPIN_EVERY: u32 = 8;
/// Polls between two looks at the clock, where the owner also yields the processor.
const POLLS: u32 = 64;
/// Size of the shared page in bytes.
const PAGE_BYTES: usize = 4096;

/// The owner does not sleep.
const AWAKE: u32 = 0;
/// The owner sleeps on the futex.
const ON_WORD: u32 = 1;
/// The owner sleeps in `poll`.
const IN_POLL: u32 = 2;

/// A cross-thread and cross-process waker. One thread, the owner, sleeps on it; any number of
/// threads and processes notify it.
#[derive(Debug)]
pub struct Notifier {
    page: NonNull<Page>,
    memory: OwnedFd,
    event: OwnedFd,
    /// Useless spins in a row.
    useless_spins: AtomicU32,
}

#[repr(C)]
struct Page {
    /// Number of notifications.
    notifications: AtomicU32,
    /// How the owner sleeps.
    sleeps: AtomicU32,
}

// SAFETY: the page is only accessed through atomics, and unmapped when the value is dropped.
unsafe impl Send for Notifier {}
// SAFETY: as above.
unsafe impl Sync for Notifier {}

impl Notifier {
    /// A new notifier, for the calling process.
    pub fn new() -> io::Result<Arc<Self>> {
        // SAFETY: a system call with a valid name.
        let memory = owned(unsafe {
            libc::memfd_create(c"multirail notifier".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        })?;
        // SAFETY: system calls on a descriptor of this process.
        check(unsafe { libc::ftruncate(memory.as_raw_fd(), PAGE_BYTES as libc::off_t) })?;
        // SAFETY: as above.
        check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        // SAFETY: a system call.
        let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Self::open(memory, event)
    }

    /// The notifier of another process, for notifying it.
    ///
    /// # Errors
    ///
    /// If the descriptors are not those of a notifier.
    pub(crate) fn of_peer(memory: OwnedFd, event: OwnedFd) -> io::Result<Arc<Self>> {
        // SAFETY: a system call on a descriptor of this process.
        let seals = check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & libc::F_SEAL_SHRINK == 0 || file_bytes(&memory)? < PAGE_BYTES as u64 {
            return Err(io::Error::other("the peer's notifier is not a sealed page"));
        }
        // A notification writes to the descriptor: a full pipe or a terminal would block it.
        let kind = std::fs::read_link(format!("/proc/self/fd/{}", event.as_raw_fd()))?;
        if kind != Path::new("anon_inode:[eventfd]") {
            return Err(io::Error::other(format!("the event of the peer's notifier is {}", kind.display())));
        }
        set_nonblocking(&event)?;
        Self::open(memory, event)
    }

    fn open(memory: OwnedFd, event: OwnedFd) -> io::Result<Arc<Self>> {
        let page = map(&memory, PAGE_BYTES)?.cast();
        Ok(Arc::new(Self { page, memory, event, useless_spins: AtomicU32::new(0) }))
    }

    /// The two descriptors that another process needs to notify this one.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.as_fd(), self.event.as_fd()]
    }

    /// Wakes the owner, or keeps it from falling asleep.
    pub fn notify(&self) {
        let page = self.page();
        page.notifications.fetch_add(1, Ordering::SeqCst);
        match page.sleeps.load(Ordering::SeqCst) {
            AWAKE => {}
            ON_WORD => {
                let forever = std::ptr::null::<libc::timespec>();
                // SAFETY: the word is in a mapped page.
                unsafe { libc::syscall(libc::SYS_futex, page.notifications.as_ptr(), libc::FUTEX_WAKE, 1, forever) };
            }
            _ => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: eight valid bytes. A full counter wakes as well.
                unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            }
        }
    }

    /// The number of notifications so far. The owner takes it before it looks at its connections,
    /// for [`Notifier::wait`].
    pub fn seen(&self) -> u32 {
        self.page().notifications.load(Ordering::SeqCst)
    }

    /// Sleeps until there is a notification since `seen`, one of `fds` is ready, `until` has come,
    /// or the longest sleep is over.
    pub fn wait(&self, seen: u32, fds: &mut Vec<libc::pollfd>, until: Option<Instant>) -> io::Result<()> {
        if fds.is_empty() && self.spin(seen, until) {
            return Ok(());
        }
        let longest = until.map_or(LONGEST_SLEEP, |u| u.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP));
        if fds.is_empty() {
            self.sleep(ON_WORD, seen, || sleep_on(&self.page().notifications, seen, longest))
        } else {
            fds.push(libc::pollfd { fd: self.event.as_raw_fd(), events: libc::POLLIN, revents: 0 });
            self.sleep(IN_POLL, seen, || self.poll(fds, longest))
        }
    }

    /// Polls for a while. Returns whether there was a notification. It yields, since the notifying
    /// thread may need this processor.
    fn spin(&self, seen: u32, until: Option<Instant>) -> bool {
        let useless = self.useless_spins.load(Ordering::Relaxed);
        if useless > MAX_USELESS_SPINS && !useless.is_multiple_of(SPIN_EVERY) {
            self.useless_spins.store(useless.wrapping_add(1), Ordering::Relaxed);
            return self.page().notifications.load(Ordering::Acquire) != seen;
        }
        let mut end = None;
        loop {
            for _ in 0..POLLS {
                if self.page().notifications.load(Ordering::Acquire) != seen {
                    self.useless_spins.store(0, Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            let end = *end.get_or_insert_with(|| until.map_or(now + SPIN_TIME, |u| u.min(now + SPIN_TIME)));
            if now >= end {
                self.useless_spins.store(useless.wrapping_add(1), Ordering::Relaxed);
                return false;
            }
            std::thread::yield_now();
        }
    }

    fn sleep(&self, how: u32, seen: u32, sleep: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let page = self.page();
        page.sleeps.store(how, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let slept = if page.notifications.load(Ordering::SeqCst) == seen { sleep() } else { Ok(()) };
        page.sleeps.store(AWAKE, Ordering::SeqCst);
        slept
    }

    fn poll(&self, fds: &mut [libc::pollfd], longest: Duration) -> io::Result<()> {
        let longest = timespec(longest);
        // SAFETY: the slice and the time are valid.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &longest, std::ptr::null()) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        if fds.last().is_some_and(|event| event.revents != 0) {
            let mut counter = [0u8; 8];
            // SAFETY: eight valid bytes; the descriptor does not block.
            unsafe { libc::read(self.event.as_raw_fd(), counter.as_mut_ptr().cast(), counter.len()) };
        }
        Ok(())
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped for as long as this lives, never shorter (sealed), and only used through
        // atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, with this size.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Sleeps while `word` has the value `seen`.
fn sleep_on(word: &AtomicU32, seen: u32, longest: Duration) -> io::Result<()> {
    let longest = timespec(longest);
    // SAFETY: the word and the time are valid. The futex is shared, since another
    // process may notify.
    let slept = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const longest) };
    if slept == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT) => Ok(()),
        _ => Err(error),
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec { tv_sec: duration.as_secs() as libc::time_t, tv_nsec: duration.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of opening a notifier with this event, whose owner seems to sleep in `poll`.
    fn open_with(event: OwnedFd) -> io::Result<Arc<Notifier>> {
        let notifier = Notifier::new().unwrap();
        notifier.page().sleeps.store(IN_POLL, Ordering::SeqCst);
        Notifier::of_peer(notifier.memory.try_clone().unwrap(), event)
    }

    #[test]
    fn a_descriptor_that_is_no_eventfd_is_refused() {
        let (reader, writer) = io::pipe().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for other in [reader.into(), writer.into(), file.into(), Notifier::new().unwrap().memory.try_clone().unwrap()] {
            let why = open_with(other).expect_err("not an eventfd").to_string();
            assert!(why.contains("event of the peer's notifier"), "{why}");
        }
        assert!(open_with(Notifier::new().unwrap().event.try_clone().unwrap()).is_ok());
    }

    #[test]
    fn a_full_eventfd_does_not_block() {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: a system call.
            let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }).unwrap();
            let most = (u64::MAX - 1).to_ne_bytes();
            // SAFETY: eight valid bytes.
            assert_eq!(unsafe { libc::write(event.as_raw_fd(), most.as_ptr().cast(), most.len()) }, 8);
            open_with(event).unwrap().notify();
            tell.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(20)).expect("it blocks");
    }
}
