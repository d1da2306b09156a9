//! The memory that the relay shares with other processes: a file in /run that all of them map. The
//! relay reads the parameters of each direction from it, and writes its counters to it.

use crate::plan::relay::LinkParams;
use crate::spec::wan::Queue;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The bit of a queue's limit that says that it counts packets instead of bytes.
const IN_PACKETS: u64 = 1 << 63;

/// The beginning of the file.
#[repr(C)]
pub(crate) struct SharedHeader {
    /// Nonzero if the lab stays up when the process that created it ends.
    pub(crate) is_kept: AtomicU32,
    directions: AtomicU32,
}

/// The parameters and counters of one direction.
#[repr(C)]
pub(crate) struct SharedDirection {
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

/// The counters of one direction of a relayed WAN since the lab was created. They count packets of
/// the wire, so each segment of a GSO packet counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WanCounters {
    /// The index of the rail.
    pub rail: usize,
    /// The host that sends. If `to_host` is true, the host that receives from the rail's switch.
    pub host: String,
    /// Whether this is the direction from the switch to the host. Only rails of more than two hosts
    /// have it.
    pub to_host: bool,
    /// Packets that arrived from the sender.
    pub arrived_packets: u64,
    /// Bytes of frames that arrived from the sender.
    pub arrived_bytes: u64,
    /// Packets that left at the other end.
    pub carried_packets: u64,
    /// Bytes of frames that left at the other end.
    pub carried_bytes: u64,
    /// Packets that the loss of the rail took.
    pub lost_packets: u64,
    /// Packets that found the queue, or the memory of the relay, full.
    pub dropped_packets: u64,
    /// The most packets that waited at any time.
    pub queue_peak_packets: u64,
}

impl SharedDirection {
    pub(crate) fn set(&self, params: &LinkParams) {
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

    pub(crate) fn params(&self) -> LinkParams {
        let queue = self.queue.load(Relaxed);
        LinkParams {
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

/// Adds to a counter. Only the relay writes counters, so it needs no atomic addition.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

/// The mapped file.
#[derive(Debug)]
pub(crate) struct RelayMemory {
    memory: NonNull<u8>,
    bytes: usize,
    directions: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all of its fields are atomic.
unsafe impl Send for RelayMemory {}
// SAFETY: all fields of the mapping are atomic.
unsafe impl Sync for RelayMemory {}

impl RelayMemory {
    pub(crate) fn create(path: &Path, directions: usize) -> io::Result<Self> {
        let _ = std::fs::remove_file(path);
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(file_bytes(directions) as u64)?;
        let shared = Self::map(&file, directions)?;
        shared.header().directions.store(directions as u32, Relaxed);
        Ok(shared)
    }

    pub(crate) fn open(path: &Path, directions: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != file_bytes(directions) as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "created by another version"));
        }
        Self::map(&file, directions)
    }

    fn map(file: &File, directions: usize) -> io::Result<Self> {
        let bytes = file_bytes(directions);
        // SAFETY: the address is null, so the kernel chooses a range that nothing else uses. The
        // file has this length.
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

    pub(crate) fn header(&self) -> &SharedHeader {
        // SAFETY: the file begins with the header, all bits are valid for it, and a mapping is
        // aligned to a page.
        unsafe { self.memory.cast::<SharedHeader>().as_ref() }
    }

    pub(crate) fn directions(&self) -> &[SharedDirection] {
        // SAFETY: this many directions follow the header, whose size is a multiple of their
        // alignment. All bits are valid for them.
        unsafe {
            let first = self.memory.add(size_of::<SharedHeader>()).cast::<SharedDirection>();
            std::slice::from_raw_parts(first.as_ptr(), self.directions)
        }
    }
}

impl Drop for RelayMemory {
    fn drop(&mut self) {
        // SAFETY: `map` mapped this range, and all references to it borrow this value.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

fn file_bytes(directions: usize) -> usize {
    size_of::<SharedHeader>() + directions * size_of::<SharedDirection>()
}
