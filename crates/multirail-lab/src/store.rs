//! The packets of one direction that are on their way, oldest first, in memory that was reserved before.

use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;

/// So much may be queued and on the way: 10 Gbit/s for 200 ms.
pub(crate) const STORE_MAX_BYTES: usize = 256 << 20;
/// What is used of it as long as that is enough; memory that is not used costs nothing.
const STORE_MIN_BYTES: usize = 8 << 20;
/// So many pieces may be on the way: full packets of 10 Gbit/s for 300 ms.
const PIECES_MAX: usize = 1 << 18;

/// A piece of a packet: from one segment to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) departs_ns: u64,
    /// Where the packet is.
    pub(crate) at: u32,
    pub(crate) bytes: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// All of its segments: it leaves as it came.
    pub(crate) is_whole: bool,
}

/// A ring of packets, each in one piece of memory.
#[derive(Debug)]
pub(crate) struct Store {
    memory: NonNull<u8>,
    /// What is used of the memory.
    ring_bytes: usize,
    /// Where the next packet goes.
    tail: usize,
    pieces: VecDeque<Stored>,
}

impl Store {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, that is nobody's else.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), STORE_MAX_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, ring_bytes: STORE_MIN_BYTES, tail: 0, pieces: VecDeque::with_capacity(PIECES_MAX) })
    }

    /// Room for a packet of up to `bytes`. None: the store is full.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let Some(oldest) = self.pieces.front().map(|piece| piece.at as usize) else {
            self.tail = 0;
            self.ring_bytes = STORE_MIN_BYTES;
            return Some(self.slice(0, bytes));
        };
        if self.tail > oldest {
            while self.tail + bytes > self.ring_bytes {
                // Back to the start only where much is free there: the packets on the way may become more.
                let may_grow = self.ring_bytes < STORE_MAX_BYTES;
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
        Some(self.slice(self.tail, bytes))
    }

    /// Keeps what was just written to [`Store::room`], of which pieces will be pushed now.
    pub(crate) fn keep(&mut self, bytes: usize) -> u32 {
        let at = self.tail;
        self.tail += bytes;
        at as u32
    }

    /// The last packet was kept in vain: no piece of it was pushed.
    pub(crate) fn forget(&mut self, at: u32) {
        self.tail = at as usize;
    }

    /// False: there are too many.
    pub(crate) fn push(&mut self, piece: Stored) -> bool {
        let fits = self.pieces.len() < PIECES_MAX;
        if fits {
            self.pieces.push_back(piece);
        }
        fits
    }

    pub(crate) fn departs_ns(&self) -> Option<u64> {
        self.pieces.front().map(|piece| piece.departs_ns)
    }

    /// The oldest piece, once it departs, with the packet that it is of.
    pub(crate) fn due(&self, now_ns: u64) -> Option<(Stored, &[u8])> {
        let piece = *self.pieces.front().filter(|piece| piece.departs_ns <= now_ns)?;
        Some((piece, self.kept(piece.at, piece.bytes as usize)))
    }

    pub(crate) fn pop(&mut self) {
        self.pieces.pop_front();
    }

    /// What was kept there.
    pub(crate) fn kept(&self, at: u32, bytes: usize) -> &[u8] {
        // SAFETY: it was written there, and is not written to before its last piece is popped.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(at as usize), bytes) }
    }

    fn slice(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        // SAFETY: within the ring, which is within the memory; no packet that is kept is there.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(at), bytes) }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nothing borrowed from it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), STORE_MAX_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of all lengths come and go, and each is found as it was kept.
    #[test]
    fn packets_come_out_as_they_went_in() {
        let mut store = Store::new().unwrap();
        let mut state = 1u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % end
        };
        let (mut pushed, mut popped) = (0u64, 0u64);
        for round in 0..60 {
            // The store fills to some MiB, is emptied by part or whole, and must grow now and then.
            for _ in 0..below(800) {
                let bytes = 16 + below(66_000 - 16) as usize;
                let room = store.room(66_000).expect("never full here");
                room[..8].copy_from_slice(&pushed.to_ne_bytes());
                room[bytes - 8..bytes].copy_from_slice(&pushed.to_ne_bytes());
                let at = store.keep(bytes);
                let piece = Stored { departs_ns: pushed, at, bytes: bytes as u32, first: 0, count: 1, is_whole: true };
                assert!(store.push(piece));
                pushed += 1;
            }
            let stay = if round % 7 == 6 { 0 } else { below(pushed - popped + 1) };
            while pushed - popped > stay {
                let (piece, packet) = store.due(u64::MAX).unwrap();
                assert_eq!(packet[..8], popped.to_ne_bytes());
                assert_eq!(packet[packet.len() - 8..], popped.to_ne_bytes());
                assert_eq!(piece.departs_ns, popped);
                assert!(store.due(popped.wrapping_sub(1)).is_none() || popped == 0);
                store.pop();
                popped += 1;
            }
        }
        assert!(pushed > 10_000);
    }

    #[test]
    fn a_full_store_has_no_room_until_something_leaves() {
        let mut store = Store::new().unwrap();
        let mut count = 0;
        while store.room(66_000).is_some() {
            let at = store.keep(66_000);
            store.push(Stored { departs_ns: 0, at, bytes: 66_000, first: 0, count: 1, is_whole: true });
            count += 1;
        }
        assert_eq!(count, STORE_MAX_BYTES / 66_000);
        store.pop();
        assert!(store.room(66_000).is_none(), "one byte must stay free, to tell full from empty");
        store.pop();
        assert!(store.room(66_000).is_some());
    }

    #[test]
    fn too_many_pieces_are_refused() {
        let mut store = Store::new().unwrap();
        store.room(100).unwrap();
        let at = store.keep(100);
        let piece = Stored { departs_ns: 0, at, bytes: 100, first: 0, count: 1, is_whole: true };
        assert_eq!((0..PIECES_MAX + 5).filter(|_| store.push(piece)).count(), PIECES_MAX);
    }
}
