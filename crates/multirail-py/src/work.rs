//! Work that a call of Python waits for: one future for the plain call and for its twin in asyncio.

use crate::runtime::{self, OfProcess};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How long a waiting thread does not look for signals. Ctrl-C must end a call within 0.2 s.
const SLICE: Duration = Duration::from_millis(50);

/// Makes the result of finished work, as an object or an exception.
pub(crate) type Finish = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Py<PyAny>> + Send>;
/// The work of a call. Threads of Python poll it, detached from the interpreter.
pub(crate) type Work = Pin<Box<dyn Future<Output = Finish> + Send>>;

/// Runs `work` in the calling thread until it is done, or a signal handler raises. Then the work is dropped.
pub(crate) fn wait(py: Python<'_>, work: Work) -> PyResult<Py<PyAny>> {
    wait_and_tell(py, work, |_| Ok(()))
}

/// As [`wait`], and calls `tell` about 20 times a second.
pub(crate) fn wait_and_tell(
    py: Python<'_>,
    mut work: Work,
    mut tell: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<Py<PyAny>> {
    let runtime = runtime::get(py)?;
    loop {
        let done = py.detach(|| runtime.block_on(async { tokio::time::timeout(SLICE, &mut work).await }));
        if let Ok(finish) = done {
            return finish(py);
        }
        py.check_signals()?;
        tell(py)?;
    }
}

/// Tells an event loop which operations can go on, through a file descriptor that the loop watches.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Wakeups {
    inner: Arc<Queue>,
}

struct Queue {
    event: OwnedFd,
    woken: Mutex<Vec<u64>>,
}

#[pymethods]
impl Wakeups {
    #[new]
    fn new() -> PyResult<Self> {
        // SAFETY: the call takes no pointers, and the new descriptor has no other owner.
        let event = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                -1 => return Err(std::io::Error::last_os_error().into()),
                event => OwnedFd::from_raw_fd(event),
            }
        };
        Ok(Self { inner: Arc::new(Queue { event, woken: Mutex::default() }) })
    }

    /// The descriptor, which is readable when an operation can go on.
    fn fileno(&self) -> i32 {
        self.inner.event.as_raw_fd()
    }

    /// The numbers of the operations that can go on. The descriptor is not readable afterwards.
    fn take(&self) -> Vec<u64> {
        let mut count = 0u64;
        // SAFETY: the pointer is to eight bytes. An empty counter is no failure.
        unsafe { libc::read(self.fileno(), (&raw mut count).cast(), size_of::<u64>()) };
        std::mem::take(&mut *self.inner.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct WakeLoop {
    queue: Arc<Queue>,
    number: u64,
}

impl Wake for WakeLoop {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.queue.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if woken.contains(&self.number) {
            return;
        }
        woken.push(self.number);
        let one = 1u64;
        // SAFETY: the pointer is to eight bytes. The counter cannot become full.
        unsafe { libc::write(self.queue.event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}

/// Work that an event loop continues.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Operation {
    work: OfProcess<Mutex<Option<Work>>>,
}

impl Operation {
    pub(crate) fn new(work: Work) -> Self {
        Self { work: OfProcess::new(Mutex::new(Some(work))) }
    }
}

#[pymethods]
impl Operation {
    /// Goes on with the work. Returns None while it is not done, then a tuple with its result. `wakeups` gets `number`
    /// when it is worth calling again.
    fn poll(&self, py: Python<'_>, wakeups: &Wakeups, number: u64) -> PyResult<Option<(Py<PyAny>,)>> {
        let runtime = runtime::get(py)?;
        let waker = Waker::from(Arc::new(WakeLoop { queue: wakeups.inner.clone(), number }));
        let polled = py.detach(|| {
            let _entered = runtime.enter();
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            let polled = work.as_mut().map(|work| work.as_mut().poll(&mut Context::from_waker(&waker)));
            if let Some(Poll::Ready(_)) = polled {
                *work = None;
            }
            polled
        });
        match polled {
            None => Err(PyRuntimeError::new_err("the operation is over")),
            Some(Poll::Pending) => Ok(None),
            Some(Poll::Ready(finish)) => finish(py).map(|result| Some((result,))),
        }
    }

    /// Drops the work.
    fn cancel(&self) {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
