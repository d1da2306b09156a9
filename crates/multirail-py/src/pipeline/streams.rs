//! The streams of a copy of a filter, for a function of Python.

use super::received::Received;
use crate::view::View;
use multirail::pipeline::{Failure, Io};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

pyo3::create_exception!(
    multirail._multirail,
    Stopped,
    pyo3::exceptions::PyBaseException,
    "The unit of work has ended early. It is no Exception, so that a filter does not take it for a mistake of its own."
);

/// A longer buffer is filled without the interpreter's lock.
const SMALL_BYTES: usize = 64 << 10;

/// The input and output streams of a copy, as long as the function runs that got them.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Streams {
    state: Mutex<State>,
    outputs: usize,
}

struct State {
    io: Option<OfCopy>,
    failure: Option<Failure>,
}

/// The streams of the function that calls Python.
struct OfCopy(NonNull<Io<'static>>);

// SAFETY: the streams of a copy can be used by any thread, one at a time: the state is locked meanwhile.
unsafe impl Send for OfCopy {}

/// Calls a function of Python with the streams of a copy. It returns None, or the text of what went wrong.
pub(crate) fn call(io: &mut Io<'_>, function: &Py<PyAny>) -> Result<(), Failure> {
    let outputs = io.info().outputs;
    // SAFETY: `end` removes the pointer before this function returns, so that the longer lifetime is never used.
    let io: NonNull<Io<'static>> = NonNull::from(io).cast();
    Python::attach(|py| {
        let state = State { io: Some(OfCopy(io)), failure: None };
        let streams = Bound::new(py, Streams { state: Mutex::new(state), outputs });
        let called = streams.and_then(|streams| {
            let called = function.call1(py, (&streams,));
            let state = streams.get();
            match py.detach(|| state.end()) {
                Some(failure) => Ok(Err(failure)),
                None => Ok(Ok(called?.extract::<Option<String>>(py)?)),
            }
        });
        match called {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(text))) => Err(text.into()),
            Ok(Err(failure)) => Err(failure),
            Err(exception) => Err(exception.to_string().into()),
        }
    })
}

impl Streams {
    /// Forgets the streams, and returns why they have failed.
    fn end(&self) -> Option<Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.io = None;
        state.failure.take()
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err("another thread uses the filter's streams")),
        }
    }
}

impl State {
    /// Uses the streams. Their failure is kept for the caller of the function.
    fn with<T>(&mut self, work: impl FnOnce(&mut Io<'_>) -> Result<T, Failure>) -> PyResult<T> {
        if self.failure.is_some() {
            return Err(Stopped::new_err("the unit of work has ended"));
        }
        let Some(OfCopy(io)) = &mut self.io else {
            return Err(PyRuntimeError::new_err("the filter's function has returned, and its streams are closed"));
        };
        // SAFETY: `call` waits for `end`, which removes the pointer, and the state is locked.
        work(unsafe { io.as_mut() }).map_err(|failure| {
            let text = failure.to_string();
            self.failure = Some(failure);
            Stopped::new_err(text)
        })
    }
}

#[pymethods]
impl Streams {
    /// The next buffer from any input with its tag; None when all inputs have ended.
    fn read(&self, py: Python<'_>) -> PyResult<Option<(u64, Py<Received>)>> {
        let mut locked = self.lock()?;
        let state = &mut *locked;
        let read = py.detach(|| state.with(|io| io.read()))?;
        drop(locked);
        read.map(|read| Ok((read.tag, Py::new(py, Received::new(read.body))?))).transpose()
    }

    /// Writes a buffer of a header and the bytes of an object to every output.
    fn write(&self, py: Python<'_>, tag: u64, header: &[u8], object: &Bound<'_, PyAny>) -> PyResult<()> {
        let view = View::read_only(object)?;
        let mut locked = self.lock()?;
        let state = &mut *locked;
        let outputs = self.outputs;
        let fill = |io: &mut Io<'_>| {
            let mut buffer = io.buffer(header.len() + view.bytes().len());
            buffer.extend_from_slice(header);
            buffer.extend_from_slice(view.bytes());
            buffer
        };
        if view.bytes().len() > SMALL_BYTES || outputs != 1 {
            return py.detach(|| {
                state.with(|io| {
                    (0..outputs).try_for_each(|output| {
                        let buffer = fill(io);
                        io.write(output, tag, buffer)
                    })
                })
            });
        }
        let buffer = state.with(|io| Ok(fill(io)))?;
        py.detach(|| state.with(|io| io.write(0, tag, buffer)))
    }
}
