//! Servers of a folder.

use crate::config::{self, Token};
use crate::job::Job;
use crate::runtime::{self, OfProcess};
use crate::session::{finish, none};
use crate::work::{Work, wait};
use multirail::Error;
use multirail::server::Server as Rust;
use multirail::session::ListenConfig;
use multirail::stop::Stop;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};

/// How long `close` waits for requests that run.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// Requests that run are never ended: that would end the sessions of the whole process.
const REQUESTS_WITHIN: Duration = Duration::from_secs(365 * 24 * 3600);

/// Serves a folder in threads of its own.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Server {
    parts: OfProcess<Arc<Parts>>,
}

struct Parts {
    address: String,
    stop: Stop,
    job: Mutex<Option<Job<()>>>,
}

#[pymethods]
impl Server {
    /// The address with the actual port.
    #[getter]
    fn address(&self) -> &str {
        &self.parts.address
    }

    /// Stop serving. Clients get no further answers; requests that run may go on, and are waited for, at most 5 s.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        runtime::get(py)?;
        let parts = (*self.parts).clone();
        let work: Work = Box::pin(async move {
            parts.stop.stop(REQUESTS_WITHIN);
            if let Some(mut job) = parts.job.lock().await.take() {
                let _ = tokio::time::timeout(CLOSE_WITHIN, job.done()).await;
            }
            finish(Ok(()), parts.address.clone(), none)
        });
        wait(py, work)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py).map(drop)
    }

    fn __repr__(&self) -> String {
        format!("<multirail.Server at {}>", self.parts.address)
    }
}

/// Serve a folder to hosts that know the token: for copies, broadcasts and fsspec.
///
/// root is the folder. Clients can read and write everything below it, and nothing outside. address is as that of listen.
/// The server runs in threads of its own until it is closed.
#[pyfunction]
#[pyo3(signature = (root, address = ":7717", *, token, rails = ""))]
pub(crate) fn serve(py: Python<'_>, root: PathBuf, address: &str, token: &Token, rails: &str) -> PyResult<Py<PyAny>> {
    runtime::get(py)?;
    let root = py.import("os")?.getattr("path")?.call_method("realpath", (root,), None)?;
    // A folder that does not exist is the usual `FileNotFoundError`.
    py.import("os")?.call_method1("listdir", (&root,))?;
    let root: PathBuf = root.extract()?;
    let config = ListenConfig::new(config::address(address)?, config::sessions(token, rails, None)?);
    let (stop, text) = (Stop::new(), config.address.to_string());
    let server = Rust::new(config, root).stopped_by(stop.clone());
    let (tell, ready) = oneshot::channel();
    let mut job = Job::start(py, "server", move || {
        server.serve(|address| {
            let _ = tell.send(address.to_string());
        })
    })?;
    let work: Work = Box::pin(async move {
        let begun = match ready.await {
            Ok(address) => Ok(address),
            Err(_) => Err(job.done().await.err().unwrap_or(Error::Closed)),
        };
        let server = begun.map(|address| Server {
            parts: OfProcess::new(Arc::new(Parts { address, stop, job: Mutex::new(Some(job)) })),
        });
        finish(server, text, |py, server| Ok(Bound::new(py, server)?.into_any().unbind()))
    });
    wait(py, work)
}
