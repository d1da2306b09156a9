//! The memory of a channel: slots, which of them are free, and the queue of those that were sent.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Most slots of a channel. A power of two, so that counts may wrap.
pub(super) const MAX_SLOTS: u32 = 64;
/// Slots begin at a multiple of it, after a header of one page.
const PAGE_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"mrchan01");
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// What one side writes. It takes two cache lines, since processors fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Side {
    /// Slots that were sent, or freed, in total. The other side sleeps on it.
    pub(super) count: AtomicU32,
    /// This side sleeps on the other one's count.
    pub(super) waits: AtomicU32,
    pub(super) is_closed: AtomicU32,
    /// The process of this side; 0 as long as there is none.
    pub(super) process: AtomicU32,
}

/// A slot that was sent.
#[repr(C)]
pub(super) struct Entry {
    pub(super) slot: AtomicU32,
    pub(super) tag: AtomicU64,
    pub(super) length: AtomicU64,
}

/// The beginning of the memory. All of it is zero at first.
#[repr(C)]
pub(super) struct Header {
    magic: AtomicU64,
    /// Tells the memory from another one, to which its path may lead later.
    number: AtomicU64,
    slots: AtomicU32,
    slot_bytes: AtomicU64,
    pub(super) sender: Side,
    pub(super) receiver: Side,
    /// Slots that were received in total. Only the receiver uses it.
    pub(super) taken: AtomicU32,
    /// Which slots are in use.
    pub(super) used: [AtomicU32; MAX_SLOTS as usize],
    /// Sent slot number `n` is at `n % MAX_SLOTS`.
    pub(super) queue: [Entry; MAX_SLOTS as usize],
}

const _: () = assert!(size_of::<Header>() <= PAGE_BYTES);

/// The mapped memory.
pub(super) struct Memory {
    at: NonNull<u8>,
    bytes: usize,
    pub(super) slots: u32,
    pub(super) slot_bytes: usize,
    file: File,
}

// SAFETY: the header consists of atomics, and a slot has one owner at a time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory.
    pub(super) fn create(slots: u32, slot_bytes: usize, number: u64) -> io::Result<Self> {
        let bytes = total_bytes(slots, slot_bytes)?;
        // SAFETY: the name is valid, and the new descriptor has no other owner.
        let file = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            File::from_raw_fd(check(libc::memfd_create(c"multirail channel".as_ptr(), flags))?)
        };
        // The memory is allocated now: a lack of it is an error here, and would be a signal later.
        // SAFETY: system calls on a descriptor of this process.
        unsafe {
            check(libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t))?;
            check(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS))?;
        }
        let memory = Self { at: map(&file, bytes)?, bytes, slots, slot_bytes: rounded(slot_bytes), file };
        let header = memory.header();
        header.number.store(number, Ordering::Relaxed);
        header.slots.store(slots, Ordering::Relaxed);
        header.slot_bytes.store(slot_bytes as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// The memory that another process has made.
    pub(super) fn open(path: &str, number: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // SAFETY: a system call on a descriptor of this process.
        let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        let bytes = file.metadata()?.len() as usize;
        if seals & libc::F_SEAL_SHRINK == 0 || bytes < PAGE_BYTES {
            return Err(io::Error::other("it is no sealed memory"));
        }
        let mut memory = Self { at: map(&file, bytes)?, bytes, slots: 0, slot_bytes: 0, file };
        let header = memory.header();
        let is_channel = header.magic.load(Ordering::Acquire) == MAGIC;
        let (slots, slot_bytes) = (header.slots.load(Ordering::Relaxed), header.slot_bytes.load(Ordering::Relaxed));
        if is_channel && header.number.load(Ordering::Relaxed) != number {
            return Err(io::Error::other("the process that made the channel has dropped it"));
        }
        if !is_channel || total_bytes(slots, slot_bytes as usize)? != bytes {
            return Err(io::Error::other("it is no channel of this version of multirail"));
        }
        (memory.slots, memory.slot_bytes) = (slots, rounded(slot_bytes as usize));
        Ok(memory)
    }

    /// Where another process finds the memory while this one has it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header of atomics, and lives as long as this.
        unsafe { self.at.cast().as_ref() }
    }

    /// The beginning of a slot, of `slot_bytes` bytes.
    pub(super) fn slot(&self, slot: u32) -> *mut u8 {
        assert!(slot < self.slots, "a slot that does not exist");
        // SAFETY: within the mapping, whose length was checked.
        unsafe { self.at.add(PAGE_BYTES + slot as usize * self.slot_bytes) }.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, with this length.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

fn total_bytes(slots: u32, slot_bytes: usize) -> io::Result<usize> {
    let total = slot_bytes
        .checked_next_multiple_of(PAGE_BYTES)
        .and_then(|bytes| bytes.checked_mul(slots as usize))
        .and_then(|bytes| bytes.checked_add(PAGE_BYTES))
        .filter(|total| *total <= isize::MAX as usize && (1..=MAX_SLOTS).contains(&slots) && slot_bytes > 0);
    total.ok_or_else(|| io::Error::other(format!("{slots} slots of {slot_bytes} bytes; at most {MAX_SLOTS} slots")))
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn map(file: &File, bytes: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file of this length.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("memory at address 0"))
}

/// Sleeps while the word has a value, at most for a time.
pub(super) fn sleep(word: &AtomicU32, value: u32, longest: Duration) {
    let time =
        libc::timespec { tv_sec: longest.as_secs() as libc::time_t, tv_nsec: longest.subsec_nanos() as libc::c_long };
    // SAFETY: the word and the time exist during the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time) };
}

/// Wakes the process that sleeps on the word.
pub(super) fn wake(word: &AtomicU32) {
    // SAFETY: the word exists during the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Whether a process has ended.
pub(super) fn has_ended(process: u32) -> bool {
    // SAFETY: the signal 0 is not sent.
    let found = unsafe { libc::kill(process as libc::pid_t, 0) };
    process != 0 && found < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}
