//! Listeners, which accept sessions.

use crate::config::{self, Token};
use crate::error::{self, Kind};
use crate::runtime::{self, OfProcess};
use crate::session::{Closing, Session, finish, none, object};
use crate::work::{Finish, Operation, Work, wait};
use multirail::Error;
use multirail::session::{Accepted, ListenConfig, Listener as Rust};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Accepts sessions.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Listener {
    parts: OfProcess<Arc<Parts>>,
}

struct Parts {
    address: String,
    listener: Mutex<Option<Rust>>,
    closing: Closing,
}

impl Listener {
    fn accepting(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Work> {
        runtime::get(py)?;
        let limit = config::seconds(timeout)?;
        let parts = (*self.parts).clone();
        Ok(Box::pin(async move {
            let accept = parts.closing.or(accept(&parts));
            let accepted = match limit {
                Some(limit) => tokio::time::timeout(limit, accept).await.ok(),
                None => Some(accept.await),
            };
            let address = parts.address.clone();
            match accepted {
                Some(session) => finish(session, address, object),
                None => Box::new(move |py: Python<'_>| {
                    let message = format!("no host has connected to {address} within {:?}", limit.unwrap_or_default());
                    Err(error::make(py, Kind::Timeout, message, None))
                }) as Finish,
            }
        }))
    }

    fn closing(&self, py: Python<'_>) -> PyResult<Work> {
        runtime::get(py)?;
        let parts = (*self.parts).clone();
        Ok(Box::pin(async move {
            parts.closing.begin();
            drop(parts.listener.lock().await.take());
            finish(Ok(()), parts.address.clone(), none)
        }))
    }
}

async fn accept(parts: &Parts) -> Result<Session, Error> {
    let mut listener = parts.listener.lock().await;
    let listener = listener.as_mut().ok_or(Error::Closed)?;
    loop {
        if let Accepted::Session(new) = listener.accept().await? {
            let peer = new.peer().to_string();
            return Ok(Session::new(new.start(), peer, None));
        }
    }
}

#[pymethods]
impl Listener {
    /// The address with the actual port.
    #[getter]
    fn address(&self) -> &str {
        &self.parts.address
    }

    /// The next session of a host that knows the token. After timeout seconds, Timeout is raised.
    #[pyo3(signature = (*, timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        wait(py, self.accepting(py, timeout)?)
    }

    /// Stop listening. Calls of accept in other threads raise Closed; sessions that were accepted go on.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        wait(py, self.closing(py)?)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py).map(drop)
    }

    #[pyo3(signature = (*, timeout = None))]
    fn start_accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Operation> {
        Ok(Operation::new(self.accepting(py, timeout)?))
    }

    fn start_close(&self, py: Python<'_>) -> PyResult<Operation> {
        Ok(Operation::new(self.closing(py)?))
    }

    fn __repr__(&self) -> String {
        format!("<multirail.Listener on {}>", self.parts.address)
    }
}

/// Listen for hosts that know the token.
///
/// address is ":PORT" for all addresses of this host, or an address with or without a port; 0 is any free port. Its
/// sessions are lost when no rail has come back for give_up_after seconds, 30 unless given.
#[pyfunction]
#[pyo3(signature = (address = ":7717", *, token, rails = "", give_up_after = None))]
pub(crate) fn listen(
    py: Python<'_>,
    address: &str,
    token: &Token,
    rails: &str,
    give_up_after: Option<f64>,
) -> PyResult<Py<PyAny>> {
    let config = ListenConfig::new(config::address(address)?, config::sessions(token, rails, give_up_after)?);
    let work: Work = Box::pin(async move {
        let text = config.address.to_string();
        let bound = Rust::bind(config).await.map(|listener| {
            let address = listener.address().to_string();
            let parts = Parts { address, listener: Mutex::new(Some(listener)), closing: Closing::default() };
            Listener { parts: OfProcess::new(Arc::new(parts)) }
        });
        finish(bound, text, |py, listener| Ok(Bound::new(py, listener)?.into_any().unbind()))
    });
    wait(py, work)
}
