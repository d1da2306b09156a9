//! Sessions: messages over all rails.

use crate::config::{self, Token};
use crate::error::{self, Kind};
use crate::runtime::{self, OfProcess};
use crate::status::{Rail, Stats};
use crate::view::View;
use crate::work::{Finish, Operation, Work, wait};
use multirail::rails::{Pair, only_interface};
use multirail::session::{Receiver, Sender, Watch};
use multirail::{Error, Session as Rust};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};

/// A message of up to this length is received into memory of the session, and then copied.
const SMALL_BYTES: usize = 64 << 10;
/// The longest message that `recv` makes an object for, unless another limit is given.
const DEFAULT_MAX_BYTES: u64 = 1 << 30;

const MAX_REASON_CHARACTERS: usize = 500;

/// All connections with another host, and the messages over them.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Session {
    parts: OfProcess<Arc<Parts>>,
}

/// The halves are locked apart from each other, so that a thread can send while another one receives.
pub(crate) struct Parts {
    pub(crate) host: String,
    /// The interface of this host over which all connections go, if it is one and known.
    only_rail: Option<String>,
    pub(crate) sender: Mutex<Option<Sender>>,
    pub(crate) receiver: Mutex<Option<Receiving>>,
    watch: Watch,
    pub(crate) closing: Closing,
}

pub(crate) struct Receiving {
    pub(crate) receiver: Receiver,
    small: Vec<u8>,
}

/// Ends the calls that wait, when something is closed.
#[derive(Default)]
pub(crate) struct Closing {
    closed: AtomicBool,
    notify: Notify,
}

impl Closing {
    pub(crate) fn begin(&self) {
        self.closed.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// Waits for what `work` returns, at most until this begins.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut begun = std::pin::pin!(self.notify.notified());
        begun.as_mut().enable();
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        tokio::select! {
            biased;
            done = work => done,
            () = begun => Err(Error::Closed),
        }
    }
}

/// What a call returns at its end: `convert` makes an object of what the work returned.
pub(crate) fn finish<T: Send + 'static>(
    result: Result<T, Error>,
    host: String,
    convert: impl for<'py> FnOnce(Python<'py>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> Finish {
    Box::new(move |py| match result {
        Ok(value) => convert(py, value),
        Err(error) => Err(error::of(py, &error, Some(&host))),
    })
}

/// For [`finish`]: the work returns nothing.
pub(crate) fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

/// For [`finish`]: a session.
pub(crate) fn object(py: Python<'_>, session: Session) -> PyResult<Py<PyAny>> {
    Ok(Bound::new(py, session)?.into_any().unbind())
}

/// Connects to a host within a time.
pub(crate) fn connecting(
    host: &str,
    token: &Token,
    rails: &str,
    timeout: Option<f64>,
    give_up_after: Option<f64>,
) -> PyResult<Work> {
    let config = config::sessions(token, rails, give_up_after)?;
    let limit = config::seconds(timeout)?;
    let host = config::host(host);
    Ok(Box::pin(async move {
        let connected = within(limit, Rust::connect_and_tell(&host, config)).await;
        connected_within(connected, limit, host)
    }))
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

fn connected_within(
    connected: Option<Result<(Rust, Vec<Pair>), Error>>,
    limit: Option<Duration>,
    host: String,
) -> Finish {
    match connected {
        Some(connected) => {
            let session = connected
                .map(|(session, pairs)| Session::new(session, host.clone(), only_interface(&pairs).map(str::to_owned)));
            finish(session, host, object)
        }
        None => Box::new(move |py| {
            let message = format!("no session with {host} within {:?}", limit.unwrap_or_default());
            Err(error::make(py, Kind::Timeout, message, Some(&host)))
        }),
    }
}

impl Parts {
    /// The exception for an error of the session.
    pub(crate) fn exception(&self, py: Python<'_>, error: &Error) -> PyErr {
        let exception = error::of(py, error, Some(&self.host));
        match (error, &self.only_rail) {
            (Error::AllRailsLost(_), Some(rail)) => error::with_rail(py, exception, rail),
            _ => exception,
        }
    }

    /// As [`finish`], for a call of the session.
    fn finish<T: Send + 'static>(
        self: Arc<Self>,
        result: Result<T, Error>,
        convert: impl for<'py> FnOnce(Python<'py>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Finish {
        Box::new(move |py| match result {
            Ok(value) => convert(py, value),
            Err(error) => Err(self.exception(py, &error)),
        })
    }
}

impl Session {
    pub(crate) fn new(session: Rust, host: String, only_rail: Option<String>) -> Self {
        let watch = session.watch();
        let (sender, receiver) = session.into_split();
        let parts = Parts {
            host,
            only_rail,
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(Some(Receiving { receiver, small: Vec::new() })),
            watch,
            closing: Closing::default(),
        };
        Self { parts: OfProcess::new(Arc::new(parts)) }
    }

    /// The parts, in the process that made the session.
    pub(crate) fn parts(&self, py: Python<'_>) -> PyResult<Arc<Parts>> {
        runtime::get(py)?;
        Ok((*self.parts).clone())
    }

    fn sending(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<Work> {
        let parts = self.parts(py)?;
        let view = View::read_only(message)?;
        Ok(Box::pin(async move {
            let sent = async {
                let mut sender = parts.sender.lock().await;
                sender.as_mut().ok_or(Error::Closed)?.send(view.bytes()).await
            };
            let sent = sent.await;
            parts.finish(sent, none)
        }))
    }

    fn receiving(&self, py: Python<'_>, limit_bytes: u64) -> PyResult<Work> {
        let parts = self.parts(py)?;
        Ok(Box::pin(async move {
            let received = parts.closing.or(receive(&parts, limit_bytes)).await;
            parts.finish(received, |_, message| message.map(Py::into_any))
        }))
    }

    fn receiving_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Work> {
        let parts = self.parts(py)?;
        let mut view = View::writable(buffer)?;
        Ok(Box::pin(async move {
            let received = parts.closing.or(async {
                let mut receiving = parts.receiver.lock().await;
                receiving.as_mut().ok_or(Error::Closed)?.receiver.recv(view.bytes_mut()).await
            });
            let received = received.await;
            parts.finish(received, |py, length| Ok(length.into_pyobject(py)?.into_any().unbind()))
        }))
    }

    fn closing(&self, py: Python<'_>) -> PyResult<Work> {
        let parts = self.parts(py)?;
        Ok(Box::pin(async move {
            parts.closing.begin();
            let finished = match parts.sender.lock().await.take() {
                Some(mut sender) => sender.finish().await,
                None => Ok(()),
            };
            // What has not been received is not wanted any longer.
            drop(parts.receiver.lock().await.take());
            parts.finish(finished, none)
        }))
    }
}

/// Receives a message of at most `limit_bytes` into a new object.
///
/// The length of a message is known before memory for it is taken: one that is too long for a small buffer stays where
/// it is. Python allocates the object, and this is polled in a thread of Python.
async fn receive(parts: &Parts, limit_bytes: u64) -> Result<PyResult<Py<PyBytes>>, Error> {
    let mut receiving = parts.receiver.lock().await;
    let Receiving { receiver, small } = receiving.as_mut().ok_or(Error::Closed)?;
    small.resize(SMALL_BYTES, 0);
    let small_bytes = SMALL_BYTES.min(usize::try_from(limit_bytes).unwrap_or(SMALL_BYTES));
    let length = match receiver.recv(&mut small[..small_bytes]).await {
        Ok(length) => return Ok(Python::attach(|py| Ok(PyBytes::new(py, &small[..length]).unbind()))),
        Err(Error::MessageTooLarge { message_bytes, .. }) if message_bytes <= limit_bytes => message_bytes as usize,
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            return Err(Error::MessageTooLarge { message_bytes, buffer_bytes: limit_bytes });
        }
        Err(error) => return Err(error),
    };
    let made = Python::attach(|py| {
        let message = PyBytes::new_with(py, length, |_| Ok(()))?;
        Ok((message.as_bytes().as_ptr() as usize, message.unbind()))
    });
    let (start, message) = match made {
        Ok(made) => made,
        Err(no_memory) => return Ok(Err(no_memory)),
    };
    // SAFETY: the object has `length` bytes and outlives the slice, and nothing else knows it yet.
    let room = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, length) };
    receiver.recv(room).await?;
    Ok(Ok(message))
}

#[pymethods]
impl Session {
    /// The host as it was given to connect, or the address of the peer that was accepted.
    #[getter]
    fn host(&self) -> &str {
        &self.parts.host
    }

    /// Send the bytes of an object as one message, without a copy.
    ///
    /// A message of up to 64 KiB is handed to the system, and one call in flight does not wait for the peer. A longer one
    /// is sent from the memory of the object, and the call returns when the peer's program has received it.
    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        wait(py, self.sending(py, message)?)
    }

    /// Receive the next message as bytes.
    ///
    /// A message of more than max_bytes raises TooLong and stays where it is.
    #[pyo3(signature = (max_bytes = DEFAULT_MAX_BYTES))]
    fn recv(&self, py: Python<'_>, max_bytes: u64) -> PyResult<Py<PyAny>> {
        wait(py, self.receiving(py, max_bytes)?)
    }

    /// Receive the next message into the memory of an object, and return its length in bytes.
    ///
    /// A message that does not fit raises TooLong and stays where it is: receive it into a larger object.
    fn recv_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        wait(py, self.receiving_into(py, buffer)?)
    }

    /// The state of each rail.
    fn rails(&self, py: Python<'_>) -> PyResult<Vec<Rail>> {
        let parts = self.parts(py)?;
        // A call that moves bytes in another thread may hold the lock for as long as a system call takes.
        Ok(py.detach(|| parts.watch.rails()).into_iter().map(Rail::from).collect())
    }

    /// What the session has moved so far.
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        let parts = self.parts(py)?;
        Ok(py.detach(|| parts.watch.stats()).into())
    }

    /// Wait until the peer has received everything, at most 30 s, then end the session. Calls that receive in other
    /// threads raise Closed.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        wait(py, self.closing(py)?)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Closes the session. After an exception, it ends at once, and the peer is not waited for.
    #[pyo3(signature = (kind, _error, _trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() { self.close(py).map(drop) } else { self.abandon(py, "the program has failed") }
    }

    /// End the session at once. The peer's calls raise Lost with the reason, of which 500 characters are sent.
    #[pyo3(signature = (reason = "the program has ended the session"))]
    fn abandon(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let parts = self.parts(py)?;
        let reason: String = reason.chars().take(MAX_REASON_CHARACTERS).collect();
        parts.closing.begin();
        // The watch keeps the session, so that dropping the halves does not end it.
        py.detach(|| parts.watch.end(reason));
        // A call of another thread that holds a half drops it.
        let halves = (
            parts.sender.try_lock().map(|mut half| half.take()),
            parts.receiver.try_lock().map(|mut half| half.take()),
        );
        py.detach(|| drop(halves));
        Ok(())
    }

    fn start_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<Operation> {
        Ok(Operation::new(self.sending(py, message)?))
    }

    #[pyo3(signature = (max_bytes = DEFAULT_MAX_BYTES))]
    fn start_recv(&self, py: Python<'_>, max_bytes: u64) -> PyResult<Operation> {
        Ok(Operation::new(self.receiving(py, max_bytes)?))
    }

    fn start_recv_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Operation> {
        Ok(Operation::new(self.receiving_into(py, buffer)?))
    }

    fn start_close(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new(self.closing(py)?))
    }

    fn __repr__(&self) -> String {
        format!("<multirail.Session with {}>", self.parts.host)
    }
}

/// Connect to a host that listens, over all rails.
///
/// host is a name or an address, with a port unless it is 7717. rails selects local interfaces, addresses or networks; a
/// leading ! excludes one. After timeout seconds, Timeout is raised. The session is lost when no rail has come back for
/// give_up_after seconds, 30 unless given.
#[pyfunction]
#[pyo3(signature = (host, *, token, rails = "", timeout = None, give_up_after = None))]
pub(crate) fn connect(
    py: Python<'_>,
    host: &str,
    token: &Token,
    rails: &str,
    timeout: Option<f64>,
    give_up_after: Option<f64>,
) -> PyResult<Py<PyAny>> {
    wait(py, connecting(host, token, rails, timeout, give_up_after)?)
}

#[pyfunction]
#[pyo3(signature = (host, *, token, rails = "", timeout = None))]
pub(crate) fn start_connect(host: &str, token: &Token, rails: &str, timeout: Option<f64>) -> PyResult<Operation> {
    Ok(Operation::new(connecting(host, token, rails, timeout, None)?))
}
