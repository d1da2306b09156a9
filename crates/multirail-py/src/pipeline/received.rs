//! Memory of a buffer that has arrived, for Python.

use multirail::pipeline::edge::Buffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

/// The bytes of a buffer that has arrived, by the buffer protocol. They are writable, and belong to the receiver alone.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Received {
    bytes: *mut u8,
    length: usize,
    /// Keeps the memory, whose address does not change.
    _buffer: Buffer,
}

// SAFETY: the memory belongs to the buffer, which can be sent.
unsafe impl Send for Received {}
// SAFETY: only views of Python use the memory, under the rules of Python.
unsafe impl Sync for Received {}

impl Received {
    pub(crate) fn new(mut buffer: Buffer) -> Self {
        Self { bytes: buffer.as_mut_ptr(), length: buffer.len(), _buffer: buffer }
    }
}

#[pymethods]
impl Received {
    fn __len__(&self) -> usize {
        self.length
    }

    /// # Safety
    ///
    /// Python calls it with a structure to fill in.
    unsafe fn __getbuffer__(this: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill in"));
        }
        let (bytes, length) = (this.get().bytes, this.get().length as ffi::Py_ssize_t);
        // SAFETY: the view is not null. It holds a reference to this object, which keeps the memory.
        match unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), bytes.cast(), length, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(this.py())),
        }
    }
}
