//! The memory of Python's objects, for reading and writing without a copy.

use crate::dlpack;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// The bytes of an object, which keeps its memory where it is as long as this exists.
pub(crate) struct View {
    start: *mut u8,
    length: usize,
    is_read_only: bool,
    _owner: Owner,
}

#[expect(dead_code, reason = "they are held, and not read")]
enum Owner {
    Buffer(PyUntypedBuffer),
    Tensor(Py<PyAny>),
}

// SAFETY: the owner can be sent, and the memory belongs to it.
unsafe impl Send for View {}
// SAFETY: shared views only read, and the owner is not touched before the drop.
unsafe impl Sync for View {}

impl View {
    /// For reading.
    pub(crate) fn read_only(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let buffer = match PyUntypedBuffer::get(object) {
            Ok(buffer) => buffer,
            Err(_) if object.hasattr("__dlpack__")? => {
                let dlpack::Memory { start, length, is_read_only, owner } = dlpack::memory(object)?;
                return Ok(View { start, length, is_read_only, _owner: Owner::Tensor(owner) });
            }
            Err(error) => return Err(no_buffer(object, &error)),
        };
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(format!(
                "the array of shape {:?} has strides {:?}, so its bytes are not one after another; pass a copy, as \
                 numpy.ascontiguousarray makes",
                buffer.shape(),
                buffer.strides()
            )));
        }
        let (start, length) = (buffer.buf_ptr().cast(), buffer.len_bytes());
        Ok(View { start, length, is_read_only: buffer.readonly(), _owner: Owner::Buffer(buffer) })
    }

    /// For writing.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let view = View::read_only(object)?;
        if view.is_read_only {
            let kind = object.get_type().name()?;
            return Err(PyBufferError::new_err(format!("the memory of this {kind} is read-only; pass a writable one")));
        }
        Ok(view)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self.length {
            0 => &[],
            // SAFETY: the memory is contiguous, and the owner keeps it where it is. A program that writes to it in another
            // thread meanwhile sends a mixture, as with the sockets of Python.
            length => unsafe { std::slice::from_raw_parts(self.start, length) },
        }
    }

    /// Of a view that is [`View::writable`].
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.is_read_only, "the view is for reading");
        match self.length {
            0 => &mut [],
            // SAFETY: as in `bytes`, and the memory is writable.
            length => unsafe { std::slice::from_raw_parts_mut(self.start, length) },
        }
    }
}

fn no_buffer(object: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!(
        "the memory of this {kind} cannot be used ({error}); pass bytes or an array of numbers"
    ))
}
