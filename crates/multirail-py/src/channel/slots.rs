//! The two ends of a channel, for Python.

use super::memory::{MAX_SLOTS, Memory, Side, has_ended, sleep, wake};
use crate::config;
use crate::error::{self, Kind};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a waiting thread does not look for signals, or whether the other process lives.
const SLICE: Duration = Duration::from_millis(50);

/// Memory that a sending and a receiving process share.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Slots {
    memory: Arc<Memory>,
    /// The slot after the one that was taken last. Locked by the sending side.
    next: Mutex<u32>,
    receiving: Mutex<()>,
}

/// A slot, as writable memory by the buffer protocol. Dropping it frees the slot, unless it was sent.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Slot {
    memory: Arc<Memory>,
    slot: u32,
    length: usize,
    is_sent: AtomicBool,
    /// A fork copies this object, and not the right to the slot.
    process: u32,
}

#[derive(Clone, Copy)]
enum End {
    Sender,
    Receiver,
}

#[pymethods]
impl Slots {
    #[staticmethod]
    fn create(slots: u32, slot_bytes: usize, number: u64) -> PyResult<Self> {
        Ok(Self::of(Memory::create(slots, slot_bytes, number)?))
    }

    #[staticmethod]
    fn open(path: &str, number: u64) -> PyResult<Self> {
        Ok(Self::of(Memory::open(path, number)?))
    }

    /// Where other processes of this user find the memory, as long as this process has it.
    fn path(&self) -> String {
        self.memory.path()
    }

    /// The length of a slot.
    fn slot_bytes(&self) -> usize {
        self.memory.slot_bytes
    }

    /// A free slot to write to. It waits for one.
    fn take(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Slot> {
        let slot = self.wait(py, timeout, End::Sender, || self.try_take())?;
        Ok(self.slot(slot, self.memory.slot_bytes))
    }

    /// Sends the first bytes of a slot that was taken.
    fn send(&self, slot: &Slot, tag: u64, length: usize) -> PyResult<()> {
        let is_of_this = Arc::ptr_eq(&slot.memory, &self.memory) && length <= slot.length;
        if !is_of_this || slot.is_sent.swap(true, Ordering::Relaxed) {
            return Err(PyValueError::new_err("the slot was sent already, or is of another channel"));
        }
        let _sending = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (header, count) = (self.memory.header(), &self.memory.header().sender.count);
        let sent = count.load(Ordering::Relaxed);
        let entry = &header.queue[(sent % MAX_SLOTS) as usize];
        entry.slot.store(slot.slot, Ordering::Relaxed);
        entry.tag.store(tag, Ordering::Relaxed);
        entry.length.store(length as u64, Ordering::Relaxed);
        count.store(sent.wrapping_add(1), Ordering::Release);
        wake_if_waiting(count, &header.receiver.waits);
        Ok(())
    }

    /// The next slot that was sent, with its tag. It waits for one.
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(u64, Slot)> {
        let (slot, tag, length) = self.wait(py, timeout, End::Receiver, || self.try_receive())?;
        if slot >= self.memory.slots || length > self.memory.slot_bytes as u64 {
            let text = format!("the sender claims {length} bytes in slot {slot}");
            return Err(error::make(py, Kind::Lost, text, None));
        }
        Ok((tag, self.slot(slot, length as usize)))
    }

    /// Ends the channel. What was sent can still be received.
    fn close(&self) {
        let header = self.memory.header();
        for side in [&header.sender, &header.receiver] {
            side.is_closed.store(1, Ordering::SeqCst);
            wake(&side.count);
        }
    }
}

impl Slots {
    fn of(memory: Memory) -> Self {
        Self { memory: Arc::new(memory), next: Mutex::new(0), receiving: Mutex::new(()) }
    }

    fn slot(&self, slot: u32, length: usize) -> Slot {
        let process = std::process::id();
        Slot { memory: self.memory.clone(), slot, length, is_sent: AtomicBool::new(false), process }
    }

    fn try_take(&self) -> Option<u32> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let used = &self.memory.header().used;
        let slots = self.memory.slots;
        let free = (*next..*next + slots).map(|slot| slot % slots);
        let slot = free.into_iter().find(|slot| used[*slot as usize].load(Ordering::Acquire) == 0)?;
        used[slot as usize].store(1, Ordering::Relaxed);
        *next = (slot + 1) % slots;
        Some(slot)
    }

    fn try_receive(&self) -> Option<(u32, u64, u64)> {
        let _receiving = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let header = self.memory.header();
        let taken = header.taken.load(Ordering::Relaxed);
        if header.sender.count.load(Ordering::Acquire) == taken {
            return None;
        }
        let entry = &header.queue[(taken % MAX_SLOTS) as usize];
        header.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
        let (slot, tag) = (entry.slot.load(Ordering::Relaxed), entry.tag.load(Ordering::Relaxed));
        Some((slot, tag, entry.length.load(Ordering::Relaxed)))
    }

    /// Waits until `attempt` succeeds.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        side: End,
        attempt: impl Fn() -> Option<T> + Sync,
    ) -> PyResult<T> {
        let header = self.memory.header();
        let (mine, other): (&Side, &Side) = match side {
            End::Sender => (&header.sender, &header.receiver),
            End::Receiver => (&header.receiver, &header.sender),
        };
        // From the first call on, the other side can tell whether this process has ended.
        mine.process.store(std::process::id(), Ordering::Relaxed);
        let closed = || error::make(py, Kind::Closed, "the channel is closed".to_owned(), None);
        if matches!(side, End::Sender) && other.is_closed.load(Ordering::SeqCst) != 0 {
            return Err(closed());
        }
        if let Some(done) = attempt() {
            return Ok(done);
        }
        let until = config::seconds(timeout)?.map(|timeout| Instant::now() + timeout);
        loop {
            // Before the attempt: what the other side has done by then can still be used.
            let is_closed = other.is_closed.load(Ordering::SeqCst) != 0;
            let process = other.process.load(Ordering::Relaxed);
            let has_ended = has_ended(process);
            let done = py.detach(|| {
                let seen = other.count.load(Ordering::Acquire);
                mine.waits.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if let Some(done) = attempt() {
                    return Some(done);
                }
                if !is_closed && !has_ended {
                    sleep(&other.count, seen, SLICE);
                }
                attempt()
            });
            if let Some(done) = done {
                return Ok(done);
            }
            if is_closed {
                return Err(closed());
            }
            if has_ended {
                return Err(error::make(py, Kind::Lost, format!("process {process} of the channel has ended"), None));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(error::make(py, Kind::Timeout, "the time of the channel's call is over".to_owned(), None));
            }
            py.check_signals()?;
        }
    }
}

/// Wakes the other side, if it has said that it sleeps.
fn wake_if_waiting(count: &AtomicU32, waits: &AtomicU32) {
    fence(Ordering::SeqCst);
    if waits.load(Ordering::SeqCst) != 0 && waits.swap(0, Ordering::SeqCst) != 0 {
        wake(count);
    }
}

#[pymethods]
impl Slot {
    /// # Safety
    ///
    /// Python calls it with a structure to fill in.
    unsafe fn __getbuffer__(this: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill in"));
        }
        let (bytes, length) = (this.get().memory.slot(this.get().slot), this.get().length as ffi::Py_ssize_t);
        // SAFETY: the view is not null. It holds a reference to this object, which keeps the memory.
        match unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), bytes.cast(), length, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(this.py())),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if *self.is_sent.get_mut() || self.process != std::process::id() {
            return;
        }
        let header = self.memory.header();
        header.used[self.slot as usize].store(0, Ordering::Release);
        header.receiver.count.fetch_add(1, Ordering::Release);
        wake_if_waiting(&header.receiver.count, &header.sender.waits);
    }
}
