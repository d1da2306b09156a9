//! What a relay and the processes that command it share: a file in /run that all of them map. The relay reads what each
//! direction should do, and counts what it did.

use crate::link::Params;
use crate::wan::Queue;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// In a queue's limit: packets, not bytes.
const IN_PACKETS: u64 = 1 << 63;

/// Begins the file.
#[repr(C)]
pub(crate) struct Head {
    /// Not zero: the lab stays when the process that made it ends.
    pub(crate) is_kept: AtomicU32,
    directions: AtomicU32,
}

/// One direction of a link: what it should do, and what it did.
#[repr(C)]
pub(crate) struct Direction {
    rate_bit_s: AtomicU64,
    delay_ns: AtomicU64,
    jitter_ns: AtomicU64,
    loss_ppm: AtomicU64,
    queue: AtomicU64,
    pub(crate) arrived_packets: AtomicU64,
    pub(crate) arrived_bytes: AtomicU64,
    pub(crate) carried_packets: AtomicU64,
    pub(crate) carried_bytes: AtomicU64,
    pub(crate) lost_packets: AtomicU64,
    pub(crate) dropped_packets: AtomicU64,
    pub(crate) queue_peak_packets: AtomicU64,
}

/// What one direction of a WAN has done since the lab was made. Packets are those of the wire: segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WanCounters {
    /// The rail.
    pub rail: usize,
    /// The host that sends, or, where `to_host`, that receives from the rail's switch.
    pub host: String,
    /// From the switch to the host. Only rails of more than two hosts have it.
    pub to_host: bool,
    /// What came.
    pub arrived_packets: u64,
    /// Bytes of frames that came.
    pub arrived_bytes: u64,
    /// What left at the other end.
    pub carried_packets: u64,
    /// Bytes of frames that left.
    pub carried_bytes: u64,
    /// What the rail's loss took.
    pub lost_packets: u64,
    /// What found the queue full, or the memory of the relay.
    pub dropped_packets: u64,
    /// The most that ever waited.
    pub queue_peak_packets: u64,
}

impl Direction {
    pub(crate) fn set(&self, params: &Params) {
        self.rate_bit_s.store(params.rate_bit_s, Relaxed);
        self.delay_ns.store(params.delay_ns, Relaxed);
        self.jitter_ns.store(params.jitter_ns, Relaxed);
        self.loss_ppm.store(params.loss_ppm.into(), Relaxed);
        let queue = match params.queue {
            Queue::Packets(packets) => packets | IN_PACKETS,
            Queue::Bytes(bytes) => bytes,
        };
        self.queue.store(queue, Relaxed);
    }

    pub(crate) fn params(&self) -> Params {
        let queue = self.queue.load(Relaxed);
        Params {
            rate_bit_s: self.rate_bit_s.load(Relaxed),
            delay_ns: self.delay_ns.load(Relaxed),
            jitter_ns: self.jitter_ns.load(Relaxed),
            loss_ppm: self.loss_ppm.load(Relaxed) as u32,
            queue: if queue & IN_PACKETS == 0 { Queue::Bytes(queue) } else { Queue::Packets(queue & !IN_PACKETS) },
        }
    }

    pub(crate) fn counters(&self, rail: usize, host: &str, to_host: bool) -> WanCounters {
        WanCounters {
            rail,
            host: host.to_owned(),
            to_host,
            arrived_packets: self.arrived_packets.load(Relaxed),
            arrived_bytes: self.arrived_bytes.load(Relaxed),
            carried_packets: self.carried_packets.load(Relaxed),
            carried_bytes: self.carried_bytes.load(Relaxed),
            lost_packets: self.lost_packets.load(Relaxed),
            dropped_packets: self.dropped_packets.load(Relaxed),
            queue_peak_packets: self.queue_peak_packets.load(Relaxed),
        }
    }
}

/// Only the relay counts, so no two add at once.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

/// The file, mapped.
#[derive(Debug)]
pub(crate) struct Shared {
    memory: NonNull<u8>,
    bytes: usize,
    directions: usize,
}

// SAFETY: all that is in the memory is atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn create(path: &Path, directions: usize) -> io::Result<Self> {
        let _ = std::fs::remove_file(path);
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(bytes(directions) as u64)?;
        let shared = Self::map(&file, directions)?;
        shared.head().directions.store(directions as u32, Relaxed);
        Ok(shared)
    }

    pub(crate) fn open(path: &Path, directions: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != bytes(directions) as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not of this version"));
        }
        Self::map(&file, directions)
    }

    fn map(file: &File, directions: usize) -> io::Result<Self> {
        let bytes = bytes(directions);
        // SAFETY: a new mapping, of a file that has this length.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, bytes, directions })
    }

    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the file begins with it, and a mapping is aligned to a page.
        unsafe { self.memory.cast::<Head>().as_ref() }
    }

    pub(crate) fn directions(&self) -> &[Direction] {
        // SAFETY: they follow the head, whose size is a multiple of their alignment.
        unsafe {
            let first = self.memory.add(size_of::<Head>()).cast::<Direction>();
            std::slice::from_raw_parts(first.as_ptr(), self.directions)
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nothing borrowed from it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

fn bytes(directions: usize) -> usize {
    size_of::<Head>() + directions * size_of::<Direction>()
}
