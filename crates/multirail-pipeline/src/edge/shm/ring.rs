//! One direction of an edge: a ring of bytes in memory that two processes share.
//!
//! What the other process writes is checked: its position may only grow, and never beyond what the
//! ring allows. This side's own position is kept in its own memory. Bytes are copied out before
//! they are interpreted.

use crate::edge::system::{SEALS, check, file_bytes, map, owned};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Smallest size of a ring in bytes.
pub(super) const MIN_RING_BYTES: usize = 4 << 10;
/// Largest size of a ring in bytes.
pub(super) const MAX_RING_BYTES: usize = 64 << 20;
/// Bytes before the rings, for the positions of both directions.
const HEADER_BYTES: usize = 4096;

/// What one side writes and the other reads. It takes two cache lines, since processors fetch lines
/// in pairs.
#[repr(C, align(128))]
struct Line {
    /// Bytes that this side has written, or taken, in total.
    position: AtomicU64,
    /// This side wants to be notified when there is room.
    waits: AtomicU32,
    /// This side has closed the connection.
    closed: AtomicU32,
}

#[repr(C)]
struct Header {
    writer: Line,
    reader: Line,
}

/// Two rings, mapped.
#[derive(Debug)]
pub(super) struct Memory {
    at: NonNull<u8>,
    ring_bytes: usize,
}

// SAFETY: the memory is shared with another process anyway: positions are atomics, and bytes are
// only copied through raw pointers.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory for two rings, and its descriptor for the peer.
    pub(super) fn new(ring_bytes: usize) -> io::Result<(Arc<Self>, OwnedFd)> {
        // SAFETY: a system call with a valid name.
        let file = owned(unsafe {
            libc::memfd_create(c"multirail ring".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        })?;
        let bytes = Self::bytes(ring_bytes)?;
        // The memory is allocated now: a lack of it is an error here, and would be a signal later.
        // SAFETY: system calls on a descriptor of this process.
        check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) })?;
        // SAFETY: as above.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok((Self::map(&file, ring_bytes)?, file))
    }

    /// The memory that a peer made.
    pub(super) fn of_peer(file: &OwnedFd, ring_bytes: u64) -> io::Result<Arc<Self>> {
        let ring_bytes = usize::try_from(ring_bytes).unwrap_or(usize::MAX);
        let bytes = Self::bytes(ring_bytes)?;
        // SAFETY: a system call on a descriptor of this process.
        let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & libc::F_SEAL_SHRINK == 0 || file_bytes(file)? < bytes as u64 {
            return Err(io::Error::other("the peer's rings are not sealed memory of their size"));
        }
        Self::map(file, ring_bytes)
    }

    fn bytes(ring_bytes: usize) -> io::Result<usize> {
        if !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&ring_bytes) || !ring_bytes.is_power_of_two() {
            return Err(io::Error::other(format!("a ring of {ring_bytes} bytes")));
        }
        Ok(HEADER_BYTES + 2 * ring_bytes)
    }

    fn map(file: &OwnedFd, ring_bytes: usize) -> io::Result<Arc<Self>> {
        let at = map(file, Self::bytes(ring_bytes)?)?;
        Ok(Arc::new(Self { at, ring_bytes }))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, with this size.
        unsafe { libc::munmap(self.at.as_ptr().cast(), HEADER_BYTES + 2 * self.ring_bytes) };
    }
}

/// One of the two rings.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    memory: Arc<Memory>,
    second: bool,
}

impl Ring {
    /// The first or the second one.
    pub(super) fn of(memory: &Arc<Memory>, second: bool) -> Self {
        Self { memory: memory.clone(), second }
    }

    fn header(&self) -> &Header {
        let offset = usize::from(self.second) * size_of::<Header>();
        // SAFETY: within the first page, aligned, mapped as long as `memory` lives, and nothing but
        // atomics.
        unsafe { self.memory.at.add(offset).cast().as_ref() }
    }

    fn bytes(&self) -> usize {
        self.memory.ring_bytes
    }

    /// The address of `position`, and the bytes from there to the end of the ring.
    fn at(&self, position: u64) -> (*mut u8, usize) {
        let offset = position as usize & (self.bytes() - 1);
        let start = HEADER_BYTES + usize::from(self.second) * self.bytes() + offset;
        // SAFETY: within the mapping, since `offset` is below the ring's size.
        (unsafe { self.memory.at.add(start) }.as_ptr(), self.bytes() - offset)
    }
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    written: u64,
    published: u64,
    /// The reader's position as last seen.
    taken: u64,
}

impl Writer {
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, written: 0, published: 0, taken: 0 }
    }

    /// The room in the ring in bytes. The shared position is read only if less than `wanted` is
    /// known.
    pub(super) fn room(&mut self, wanted: usize) -> io::Result<usize> {
        let room = self.ring.bytes() - (self.written - self.taken) as usize;
        if room >= wanted {
            return Ok(room);
        }
        let taken = self.ring.header().reader.position.load(Ordering::Acquire);
        if taken.wrapping_sub(self.taken) > self.published - self.taken {
            return Err(nonsense("taken", taken));
        }
        self.taken = taken;
        Ok(self.ring.bytes() - (self.written - taken) as usize)
    }

    /// Puts bytes in, which there must be room for.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.ring.bytes() - (self.written - self.taken) as usize);
        let (at, until_end) = self.ring.at(self.written);
        let (first, second) = bytes.split_at(bytes.len().min(until_end));
        // SAFETY: both pieces are within the ring. A correct reader does not look there yet;
        // another one reads arbitrary bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), at, first.len());
            std::ptr::copy_nonoverlapping(second.as_ptr(), self.ring.at(0).0, second.len());
        }
        self.written += bytes.len() as u64;
    }

    /// Bytes that were put in and that the reader does not know of.
    pub(super) fn unpublished(&self) -> usize {
        (self.written - self.published) as usize
    }

    pub(super) fn publish(&mut self) {
        self.published = self.written;
        self.ring.header().writer.position.store(self.written, Ordering::Release);
    }

    /// Asks for a notification once a good part of the ring is free. Returns false if it is
    /// already.
    pub(super) fn wait_for_room(&mut self) -> io::Result<bool> {
        self.ring.header().writer.waits.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let worth = worth_waking(self.ring.bytes());
        Ok(self.room(worth)? < worth)
    }

    /// The other side has closed.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.header().reader.closed.load(Ordering::Acquire) != 0
    }

    pub(super) fn close(&mut self) {
        self.ring.header().writer.closed.store(1, Ordering::Release);
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Reader {
    ring: Ring,
    taken: u64,
    /// The part of `taken` that the writer knows of.
    released: u64,
    /// The writer's position as last seen.
    written: u64,
}

impl Reader {
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, taken: 0, released: 0, written: 0 }
    }

    /// Bytes that can be taken. The shared position is read only if fewer than `wanted` are known.
    pub(super) fn available(&mut self, wanted: usize) -> io::Result<usize> {
        let available = (self.written - self.taken) as usize;
        if available >= wanted {
            return Ok(available);
        }
        let written = self.ring.header().writer.position.load(Ordering::Acquire);
        if written.wrapping_sub(self.written) > (self.ring.bytes() - available) as u64 {
            return Err(nonsense("written", written));
        }
        // Checked positions only ever grow by what fits the ring: 2^64 bytes are never reached.
        self.written = written;
        Ok((written - self.taken) as usize)
    }

    /// Takes bytes that are available.
    pub(super) fn read(&mut self, into: &mut [u8]) {
        assert!(into.len() <= (self.written - self.taken) as usize);
        let (at, until_end) = self.ring.at(self.taken);
        let length = into.len();
        let (first, second) = into.split_at_mut(length.min(until_end));
        // SAFETY: both pieces are within the ring. A writer that breaks the rules changes what is
        // read, and nothing else.
        unsafe {
            std::ptr::copy_nonoverlapping(at, first.as_mut_ptr(), first.len());
            std::ptr::copy_nonoverlapping(self.ring.at(0).0, second.as_mut_ptr(), second.len());
        }
        self.taken += length as u64;
    }

    /// Bytes that were taken and that the writer does not know of.
    pub(super) fn unreleased(&self) -> usize {
        (self.taken - self.released) as usize
    }

    /// Returns room to the writer. Returns whether the writer wants a notification.
    pub(super) fn release(&mut self) -> bool {
        if self.taken != self.released {
            self.released = self.taken;
            self.ring.header().reader.position.store(self.taken, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        let waits = &self.ring.header().writer.waits;
        let free = self.ring.bytes() - (self.written - self.taken) as usize;
        free >= worth_waking(self.ring.bytes())
            && waits.load(Ordering::SeqCst) != 0
            && waits.swap(0, Ordering::SeqCst) != 0
    }

    /// The other side has closed. What it wrote before can still be read.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.header().writer.closed.load(Ordering::Acquire) != 0
    }

    pub(super) fn close(&mut self) {
        self.ring.header().reader.closed.store(1, Ordering::Release);
    }
}

/// For tests and fuzzing: overwrites the words of the other side.
impl Ring {
    pub(super) fn scribble(&self, word: u8, value: u64) {
        let header = self.header();
        match word % 6 {
            0 => header.writer.position.store(value, Ordering::SeqCst),
            1 => header.reader.position.store(value, Ordering::SeqCst),
            2 => header.writer.waits.store(value as u32, Ordering::SeqCst),
            3 => header.reader.waits.store(value as u32, Ordering::SeqCst),
            4 => header.writer.closed.store(value as u32, Ordering::SeqCst),
            _ => header.reader.closed.store(value as u32, Ordering::SeqCst),
        }
    }
}

/// Free bytes from which a waiting writer is notified.
fn worth_waking(ring_bytes: usize) -> usize {
    ring_bytes / 4
}

fn nonsense(which: &str, position: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer claims that {position} bytes were {which}"))
}
