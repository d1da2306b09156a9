//! The packets of one direction that are in flight, oldest first, in memory that is reserved in
//! advance.

use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;

/// The most bytes of packets that wait or are in flight: 10 Gbit/s for 200 ms.
const RING_MAX_BYTES: usize = 256 << 20;
/// How much of the memory a ring uses at first. Unused memory costs nothing.
const RING_MIN_BYTES: usize = 8 << 20;
/// The most pieces in flight: full packets at 10 Gbit/s for 300 ms.
const PIECES_MAX: usize = 1 << 18;

/// A piece of a packet: a range of its segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingPiece {
    pub(crate) departs_ns: u64,
    /// The position of the packet in the ring.
    pub(crate) at: u32,
    /// The size of the packet.
    pub(crate) bytes: u32,
    /// The first segment of the piece.
    pub(crate) first: u32,
    /// The number of segments of the piece.
    pub(crate) count: u32,
    /// Whether the piece has all segments. The packet then leaves as it arrived.
    pub(crate) is_whole: bool,
}

/// A ring of packets, each contiguous in memory, and the queue of their pieces.
///
/// The mapping has [`RING_MAX_BYTES`]. The packets with a queued piece lie within the first
/// `ring_bytes` of it, from the packet of the oldest piece to `tail`, possibly around the end.
#[derive(Debug)]
pub(crate) struct PacketRing {
    memory: NonNull<u8>,
    /// How much of the memory the ring uses.
    ring_bytes: usize,
    /// Where the next packet goes.
    tail: usize,
    pieces: VecDeque<RingPiece>,
}

impl PacketRing {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the address is null, so the kernel chooses a range that nothing else uses.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), RING_MAX_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, ring_bytes: RING_MIN_BYTES, tail: 0, pieces: VecDeque::with_capacity(PIECES_MAX) })
    }

    /// Space for a packet of up to `bytes`. Returns `None` if the ring is full.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let Some(oldest) = self.pieces.front().map(|piece| piece.at as usize) else {
            self.tail = 0;
            self.ring_bytes = RING_MIN_BYTES;
            return Some(self.slice_mut(0, bytes));
        };
        if self.tail > oldest {
            while self.tail + bytes > self.ring_bytes {
                // While the ring can grow, it wraps around only if much is free at its start.
                let may_grow = self.ring_bytes < RING_MAX_BYTES;
                if (may_grow && oldest > self.ring_bytes / 4 * 3) || (!may_grow && oldest > bytes) {
                    self.tail = 0;
                    break;
                }
                if !may_grow {
                    return None;
                }
                self.ring_bytes *= 2;
            }
        } else if self.tail + bytes > oldest {
            return None;
        }
        Some(self.slice_mut(self.tail, bytes))
    }

    /// Keeps a packet that was just written to [`PacketRing::room`], and returns its position. Its
    /// pieces must be pushed next.
    pub(crate) fn keep(&mut self, bytes: usize) -> u32 {
        let at = self.tail;
        self.tail += bytes;
        at as u32
    }

    /// Frees the last packet, of which no piece was pushed.
    pub(crate) fn discard(&mut self, at: u32) {
        self.tail = at as usize;
    }

    /// Adds a piece. Returns false if there are too many.
    pub(crate) fn push(&mut self, piece: RingPiece) -> bool {
        let fits = self.pieces.len() < PIECES_MAX;
        if fits {
            self.pieces.push_back(piece);
        }
        fits
    }

    /// When the oldest piece departs.
    pub(crate) fn departs_ns(&self) -> Option<u64> {
        self.pieces.front().map(|piece| piece.departs_ns)
    }

    /// The oldest piece, if it is due, and its packet.
    pub(crate) fn due(&self, now_ns: u64) -> Option<(RingPiece, &[u8])> {
        let piece = *self.pieces.front().filter(|piece| piece.departs_ns <= now_ns)?;
        Some((piece, self.packet(piece.at, piece.bytes as usize)))
    }

    /// Removes the oldest piece.
    pub(crate) fn pop(&mut self) {
        self.pieces.pop_front();
    }

    /// The packet at a position that [`PacketRing::keep`] returned.
    pub(crate) fn packet(&self, at: u32, bytes: usize) -> &[u8] {
        // SAFETY: `keep` was called for this range, so it lies in the mapping. `room` does not
        // return it before the last piece of the packet is popped.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(at as usize), bytes) }
    }

    fn slice_mut(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        // SAFETY: `room` only passes ranges within the mapping that hold no packet with a queued
        // piece. The exclusive borrow of the ring excludes other slices.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(at), bytes) }
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this range, and all slices of it borrow the ring.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), RING_MAX_BYTES) };
    }
}

#[cfg(test)]
mod tests;
