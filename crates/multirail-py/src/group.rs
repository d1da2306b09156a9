//! Broadcasts from memory into the memory of many hosts.

use crate::config::{self, Token};
use crate::error::{self, Kind};
use crate::runtime::{self, OfProcess};
use crate::session::{Closing, finish, none};
use crate::view::View;
use crate::work::{Finish, Work, wait};
use multirail::Error;
use multirail::multicast::{BroadcastError, BroadcastHost, Group, Options, Outcome, Receiver, Summary};
use multirail::session::ListenConfig;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long hosts without progress are waited for.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);
/// How long a host that was lost is waited for, when all others have the data.
const WAIT_FOR_LOST: Duration = Duration::from_secs(3);

/// The root's side of broadcasts to hosts on each of which a `BroadcastReceiver` listens.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Broadcaster {
    group: OfProcess<Arc<Mutex<Option<Group>>>>,
}

/// An error of a broadcast for Python.
fn failed(py: Python<'_>, failure: &BroadcastError) -> PyErr {
    match failure {
        BroadcastError::Own(cause) => error::of(py, cause, None),
        other => error::other(py, other.to_string()),
    }
}

/// The addresses of hosts, each with None or why it does not have the data.
fn outcomes(summary: Summary) -> Vec<(String, Option<String>)> {
    let outcome = |outcome| match outcome {
        Outcome::Complete => None,
        Outcome::Failed(why) => Some(why),
    };
    summary.hosts.into_iter().map(|host| (host.address, outcome(host.outcome))).collect()
}

#[pymethods]
impl Broadcaster {
    /// Invites hosts. Clusters are numbered from 0 without gaps, that of the root first; None lets measurements find them.
    #[new]
    #[pyo3(signature = (hosts, *, token, clusters = None, rails = "", advertise = None))]
    fn new(
        py: Python<'_>,
        hosts: Vec<String>,
        token: &Token,
        clusters: Option<Vec<u32>>,
        rails: &str,
        advertise: Option<String>,
    ) -> PyResult<Self> {
        let mut options = Options::new()
            .config(config::sessions(token, rails, None)?)
            .advertise(advertise)
            .give_up_after(GIVE_UP_AFTER)
            .wait_for_lost(WAIT_FOR_LOST);
        options = options.find_clusters(clusters.is_none());
        let clusters = clusters.unwrap_or_else(|| vec![0; hosts.len() + 1]);
        let hosts: Vec<_> =
            hosts.into_iter().zip(&clusters[1..]).map(|(host, cluster)| BroadcastHost::new(host, *cluster)).collect();
        let slot = Arc::new(Mutex::new(None));
        let work: Work = Box::pin({
            let slot = slot.clone();
            async move {
                match Group::create(&hosts, clusters[0], &options).await {
                    Ok(group) => {
                        *slot.lock().await = Some(group);
                        Box::new(|py: Python<'_>| Ok(py.None())) as Finish
                    }
                    Err(failure) => Box::new(move |py: Python<'_>| Err(failed(py, &failure))),
                }
            }
        });
        wait(py, work)?;
        Ok(Self { group: OfProcess::new(slot) })
    }

    /// Broadcasts the bytes of objects one after another. Returns each host's address with None, or with why it does not
    /// have the data.
    fn broadcast(&self, py: Python<'_>, parts: Vec<Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        runtime::get(py)?;
        let views = parts.iter().map(View::read_only).collect::<PyResult<Vec<_>>>()?;
        let total: usize = views.iter().map(|view| view.bytes().len()).sum();
        let mut data = Vec::new();
        data.try_reserve_exact(total).map_err(|_| PyMemoryError::new_err(format!("no memory for {total} bytes")))?;
        // The group serves the data as long as hosts need it, so that it has a copy.
        py.detach(|| views.iter().for_each(|view| data.extend_from_slice(view.bytes())));
        let group = (*self.group).clone();
        wait(
            py,
            Box::pin(async move {
                let mut group = group.lock().await;
                let Some(group) = group.as_mut() else {
                    return finish(Err(Error::Closed), "the group".to_owned(), none);
                };
                match group.broadcast_owned(data).await {
                    Ok(summary) => {
                        let outcomes = outcomes(summary);
                        Box::new(move |py: Python<'_>| Ok(outcomes.into_pyobject(py)?.into_any().unbind())) as Finish
                    }
                    Err(failure) => Box::new(move |py: Python<'_>| Err(failed(py, &failure))),
                }
            }),
        )
    }

    /// Tells all hosts that no broadcast follows.
    fn end(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        runtime::get(py)?;
        let group = (*self.group).clone();
        wait(
            py,
            Box::pin(async move {
                if let Some(group) = group.lock().await.take() {
                    group.end().await;
                }
                finish(Ok(()), String::new(), none)
            }),
        )
    }
}

/// Receives the broadcasts of `Broadcaster`s of other hosts.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct BroadcastReceiver {
    parts: OfProcess<Arc<Receiving>>,
}

struct Receiving {
    address: String,
    receiver: Mutex<Option<Receiver>>,
    closing: Closing,
}

#[pymethods]
impl BroadcastReceiver {
    /// Listens, and takes broadcasts of at most `limit_bytes`.
    #[new]
    #[pyo3(signature = (address, *, token, limit_bytes, rails = ""))]
    fn new(py: Python<'_>, address: &str, token: &Token, limit_bytes: u64, rails: &str) -> PyResult<Self> {
        let config = ListenConfig::new(config::address(address)?, config::sessions(token, rails, None)?);
        let slot = Arc::new(std::sync::Mutex::new(None));
        let work: Work = Box::pin({
            let slot = slot.clone();
            async move {
                let host = config.address.to_string();
                let bound = Receiver::bind(config, limit_bytes).await;
                let kept = bound.map(|receiver| *slot.lock().unwrap_or_else(|e| e.into_inner()) = Some(receiver));
                finish(kept, host, none)
            }
        });
        wait(py, work)?;
        let receiver = slot.lock().unwrap_or_else(|e| e.into_inner()).take();
        let address = receiver.as_ref().map(|receiver| receiver.address().to_string()).unwrap_or_default();
        let parts = Receiving { address, receiver: Mutex::new(receiver), closing: Closing::default() };
        Ok(Self { parts: OfProcess::new(Arc::new(parts)) })
    }

    /// The address with the actual port.
    #[getter]
    fn address(&self) -> &str {
        &self.parts.address
    }

    /// The next broadcast that is complete, as an object with the buffer protocol. After timeout seconds, Timeout is
    /// raised.
    #[pyo3(signature = (*, timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        runtime::get(py)?;
        let limit = config::seconds(timeout)?;
        let parts = (*self.parts).clone();
        wait(
            py,
            Box::pin(async move {
                let next = parts.closing.or(async {
                    let mut receiver = parts.receiver.lock().await;
                    receiver.as_mut().ok_or(Error::Closed)?.next().await
                });
                let received = match limit {
                    Some(limit) => tokio::time::timeout(limit, next).await.ok(),
                    None => Some(next.await),
                };
                match received {
                    Some(received) => finish(received, parts.address.clone(), |py, bytes| {
                        Ok(Bound::new(py, Data::new(bytes))?.into_any().unbind())
                    }),
                    None => Box::new(move |py: Python<'_>| {
                        let message = format!("no broadcast has come within {:?}", limit.unwrap_or_default());
                        Err(error::make(py, Kind::Timeout, message, None))
                    }) as Finish,
                }
            }),
        )
    }

    /// Stops listening. Calls of `next` in other threads raise Closed.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        runtime::get(py)?;
        let parts = (*self.parts).clone();
        wait(
            py,
            Box::pin(async move {
                parts.closing.begin();
                drop(parts.receiver.lock().await.take());
                finish(Ok(()), parts.address.clone(), none)
            }),
        )
    }
}

/// The bytes of a broadcast, which views of the buffer protocol read and write.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Data {
    start: usize,
    length: usize,
}

impl Data {
    fn new(bytes: Vec<u8>) -> Self {
        let bytes = Box::leak(bytes.into_boxed_slice());
        Self { start: bytes.as_mut_ptr() as usize, length: bytes.len() }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a box of this length, and each view of it has held the object.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start as *mut u8, self.length)) });
    }
}

#[pymethods]
impl Data {
    /// SAFETY: Python passes a structure for the view.
    unsafe fn __getbuffer__(this: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let (start, length) = (this.get().start, this.get().length);
        // SAFETY: the memory lives as long as the object, of which the view holds a reference.
        match unsafe {
            ffi::PyBuffer_FillInfo(view, this.as_ptr(), start as *mut _, length as ffi::Py_ssize_t, 0, flags)
        } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(this.py())),
        }
    }

    fn __len__(&self) -> usize {
        self.length
    }
}
