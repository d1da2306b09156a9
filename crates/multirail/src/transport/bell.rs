//! What a thread sleeps by that waits for several connections at once, of this process and of others.
//!
//! A word in a page of shared memory counts the rings. The sleeper says beside it how it sleeps: on the word itself (a futex), or
//! in `poll` with sockets, where a ring must be an event's. Nobody makes a system call for a thread that is awake.
//! A peer process that writes nonsense into the page can wake its owner for nothing, or let it sleep for [`LONGEST_SLEEP`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// Nobody sleeps longer before looking for himself.
pub const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// How long a thread looks at the word before it sleeps. Longer than it takes two sleepers to wake each other: else two that only
/// wait for each other would never find out that neither needs to sleep.
const SPIN: Duration = Duration::from_micros(100);
/// After so many times that looking was in vain, it is tried only now and then.
const MAX_VAIN: u32 = 2;
/// Every so many waits, then.
const TRY_EVERY: u32 = 8;
/// Looks before it thinks of the time, and of others.
const LOOKS: u32 = 64;
const PAGE_BYTES: usize = 4096;
/// Nobody may make the page smaller: this process would be killed when it looks.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

const AWAKE: u32 = 0;
const ON_WORD: u32 = 1;
const IN_POLL: u32 = 2;

/// A bell. One thread sleeps by it; any number of threads and processes ring.
#[derive(Debug)]
pub struct Bell {
    page: NonNull<Page>,
    memory: OwnedFd,
    event: OwnedFd,
    /// How often in a row looking at the word did not spare the sleep.
    vain: AtomicU32,
}

#[repr(C)]
struct Page {
    rings: AtomicU32,
    sleeps: AtomicU32,
}

// SAFETY: the page is only used through atomics, and unmapped when the last owner is gone.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Bell {
    /// A new one.
    pub fn new() -> io::Result<Arc<Self>> {
        // SAFETY: a system call with a valid name.
        let memory = owned(unsafe {
            libc::memfd_create(c"multirail bell".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        })?;
        // SAFETY: system calls on a descriptor that is ours.
        check(unsafe { libc::ftruncate(memory.as_raw_fd(), PAGE_BYTES as libc::off_t) })?;
        // SAFETY: as above.
        check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        // SAFETY: a system call.
        let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Self::of(memory, event)
    }

    /// Another process's bell, for ringing it.
    pub fn of_peer(memory: OwnedFd, event: OwnedFd) -> io::Result<Arc<Self>> {
        // SAFETY: a system call on a descriptor that is ours.
        let seals = check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & libc::F_SEAL_SHRINK == 0 || file_bytes(&memory)? < PAGE_BYTES as u64 {
            return Err(io::Error::other("the peer's bell is not a sealed page"));
        }
        // Whoever rings writes to it: a full pipe, or a terminal, would hold him up.
        let kind = std::fs::read_link(format!("/proc/self/fd/{}", event.as_raw_fd()))?;
        if kind != Path::new("anon_inode:[eventfd]") {
            return Err(io::Error::other(format!("the event of the peer's bell is {}", kind.display())));
        }
        set_nonblocking(&event)?;
        Self::of(memory, event)
    }

    fn of(memory: OwnedFd, event: OwnedFd) -> io::Result<Arc<Self>> {
        let page = map(&memory, PAGE_BYTES)?.cast();
        Ok(Arc::new(Self { page, memory, event, vain: AtomicU32::new(0) }))
    }

    /// The two descriptors that another process needs for ringing.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.as_fd(), self.event.as_fd()]
    }

    /// Wakes the sleeper, or keeps it from falling asleep.
    pub fn ring(&self) {
        let page = self.page();
        page.rings.fetch_add(1, Ordering::SeqCst);
        match page.sleeps.load(Ordering::SeqCst) {
            AWAKE => {}
            ON_WORD => {
                let forever = std::ptr::null::<libc::timespec>();
                // SAFETY: the word is in a mapped page.
                unsafe { libc::syscall(libc::SYS_futex, page.rings.as_ptr(), libc::FUTEX_WAKE, 1, forever) };
            }
            _ => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: eight valid bytes. A full counter wakes as well.
                unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            }
        }
    }

    /// How often it has rung; for [`Bell::wait`], taken before looking at what it is rung for.
    pub fn seen(&self) -> u32 {
        self.page().rings.load(Ordering::SeqCst)
    }

    /// Sleeps until the bell has rung since `seen`, one of `fds` is ready, `until` has come, or [`LONGEST_SLEEP`] is over.
    pub fn wait(&self, seen: u32, fds: &mut Vec<libc::pollfd>, until: Option<Instant>) -> io::Result<()> {
        if fds.is_empty() && self.spin(seen, until) {
            return Ok(());
        }
        let longest = until.map_or(LONGEST_SLEEP, |u| u.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP));
        if fds.is_empty() {
            self.sleep(ON_WORD, seen, || sleep_on(&self.page().rings, seen, longest))
        } else {
            fds.push(libc::pollfd { fd: self.event.as_raw_fd(), events: libc::POLLIN, revents: 0 });
            self.sleep(IN_POLL, seen, || self.poll(fds, longest))
        }
    }

    /// Looks for a while; true if it rang. It yields, for whoever shall ring may need this processor.
    fn spin(&self, seen: u32, until: Option<Instant>) -> bool {
        let vain = self.vain.load(Ordering::Relaxed);
        if vain > MAX_VAIN && !vain.is_multiple_of(TRY_EVERY) {
            self.vain.store(vain.wrapping_add(1), Ordering::Relaxed);
            return self.page().rings.load(Ordering::Acquire) != seen;
        }
        let mut end = None;
        loop {
            for _ in 0..LOOKS {
                if self.page().rings.load(Ordering::Acquire) != seen {
                    self.vain.store(0, Ordering::Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            let end = *end.get_or_insert_with(|| until.map_or(now + SPIN, |u| u.min(now + SPIN)));
            if now >= end {
                self.vain.store(vain.wrapping_add(1), Ordering::Relaxed);
                return false;
            }
            std::thread::yield_now();
        }
    }

    fn sleep(&self, how: u32, seen: u32, sleep: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let page = self.page();
        page.sleeps.store(how, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let slept = if page.rings.load(Ordering::SeqCst) == seen { sleep() } else { Ok(()) };
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
        // SAFETY: mapped for as long as this lives, never shorter (sealed), and only used through atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, with this size.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Sleeps while `word` has the value `seen`.
fn sleep_on(word: &AtomicU32, seen: u32, longest: Duration) -> io::Result<()> {
    let longest = timespec(longest);
    // SAFETY: the word and the time are valid. Not private: the ringer may be another process.
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

/// Maps the beginning of a file, shared.
pub(super) fn map(file: &OwnedFd, bytes: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping anywhere.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

pub(super) fn file_bytes(file: &OwnedFd) -> io::Result<u64> {
    // SAFETY: a zeroed stat is valid, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    check(unsafe { libc::fstat(file.as_raw_fd(), &mut stat) })?;
    Ok(stat.st_size.max(0) as u64)
}

fn set_nonblocking(file: &OwnedFd) -> io::Result<()> {
    // SAFETY: a system call on a descriptor that is ours.
    let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a bell that only says that it sleeps in `poll`, with this for its event.
    fn taken_with(event: OwnedFd) -> io::Result<Arc<Bell>> {
        let bell = Bell::new().unwrap();
        bell.page().sleeps.store(IN_POLL, Ordering::SeqCst);
        Bell::of_peer(bell.memory.try_clone().unwrap(), event)
    }

    #[test]
    fn an_event_that_is_none_is_not_taken() {
        let (reader, writer) = io::pipe().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for other in [reader.into(), writer.into(), file.into(), Bell::new().unwrap().memory.try_clone().unwrap()] {
            let why = taken_with(other).expect_err("it is no event").to_string();
            assert!(why.contains("event of the peer's bell"), "{why}");
        }
        assert!(taken_with(Bell::new().unwrap().event.try_clone().unwrap()).is_ok());
    }

    #[test]
    fn an_event_that_is_full_holds_nobody_up() {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: a system call.
            let event = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }).unwrap();
            let most = (u64::MAX - 1).to_ne_bytes();
            // SAFETY: eight valid bytes.
            assert_eq!(unsafe { libc::write(event.as_raw_fd(), most.as_ptr().cast(), most.len()) }, 8);
            taken_with(event).unwrap().ring();
            tell.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(20)).expect("it blocks");
    }
}
