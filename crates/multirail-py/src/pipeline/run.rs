//! A run of a pipeline, in the process that started it.

use super::filter_server::KIND;
use super::received::Received;
use super::streams;
use crate::config::{self, Token};
use crate::error;
use crate::runtime::{self, OfProcess};
use multirail::pipeline::{self, Filters, Group, Io, PipelineError};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Results that wait until the program takes them.
const WAITING_RESULTS: usize = 4;
/// How long a waiting thread does not look for signals, or whether the run has to end.
const SLICE: Duration = Duration::from_millis(50);
/// How long the copies have to end when a run is closed.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The names of the filters of this process.
const INPUT: &str = "input";
const OUTPUT: &str = "output";

enum Item {
    Result(pipeline::Received),
    End(Result<(), PipelineError>),
}

/// A run, from which results are taken.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Run {
    parts: OfProcess<Parts>,
}

struct Parts {
    /// None when the run has ended.
    items: Mutex<Option<Receiver<Item>>>,
    is_closed: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How a run ended: the filter, its copy, its host and the cause, as far as each is known, and whether the copy or the
/// host is lost.
type Ending = (Option<String>, Option<usize>, Option<String>, String, bool);

/// Start a run.
///
/// workers is a list of names and addresses, filters one of names, workers of the copies, and whether the filter is
/// stateless. streams joins two filters each, of which "input" and "output" are of this process. source is called with
/// Streams.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "only the module multirail.pipeline calls it")]
#[pyo3(signature = (*, token, workers, filters, streams, source, limit_bytes, host_timeout))]
pub(crate) fn start_run(
    py: Python<'_>,
    token: &Token,
    workers: Vec<(String, String)>,
    filters: Vec<(String, Vec<String>, bool)>,
    streams: Vec<(String, String)>,
    source: Py<PyAny>,
    limit_bytes: u64,
    host_timeout: f64,
) -> PyResult<Run> {
    runtime::get(py)?;
    let mut group = Group::new(config::sessions(token, "", None)?);
    group.limit_bytes(limit_bytes);
    if let Some(timeout) = config::seconds(Some(host_timeout))? {
        group.host_timeout(timeout);
    }
    for (name, address) in &workers {
        group.host(name, address);
    }
    let source = Arc::new(source);
    group.filter(INPUT, move |_| {
        let source = source.clone();
        move |io: &mut Io<'_>| streams::call(io, &source)
    });
    for (name, hosts, is_stateless) in &filters {
        let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
        let spec = group.filter_of_kind(name, KIND, serde_json::Value::Null, &Filters::none());
        spec.copies(hosts.len()).on(&hosts);
        if *is_stateless {
            spec.stateless();
        }
    }
    let (sender, items) = sync_channel(WAITING_RESULTS);
    let results = sender.clone();
    group.filter(OUTPUT, move |_| {
        let results = results.clone();
        move |io: &mut Io<'_>| {
            while let Some(received) = io.read()? {
                results.send(Item::Result(received)).map_err(|_| "the program takes no more results")?;
            }
            Ok(())
        }
    });
    for (from, to) in &streams {
        group.stream(from, to);
    }
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = is_closed.clone();
    let run = move || {
        let ended = do_unit(&group, &closed);
        // A run that was closed has no receiver.
        let _ = sender.send(Item::End(ended));
    };
    let thread = std::thread::Builder::new().name("pipeline".to_owned()).spawn(run)?;
    let (items, thread) = (Mutex::new(Some(items)), Mutex::new(Some(thread)));
    Ok(Run { parts: OfProcess::new(Parts { items, is_closed, thread }) })
}

fn do_unit(group: &Group, is_closed: &AtomicBool) -> Result<(), PipelineError> {
    let mut running = group.start()?;
    let unit = running.begin(b"");
    while !is_closed.load(Ordering::Acquire) {
        if let Some(ended) = running.wait_for(unit, SLICE) {
            return ended;
        }
    }
    running.abort(unit);
    running.wait_for(unit, END_TIMEOUT).unwrap_or(Ok(()))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the end of a run tells the program.
fn ending(ended: Result<(), PipelineError>) -> Option<Ending> {
    Some(match ended.err()? {
        PipelineError::Filter { filter, copy, host, cause, .. } => (Some(filter), Some(copy), Some(host), cause, false),
        PipelineError::CopyLost { filter, copy, host, cause, .. } => {
            (Some(filter), Some(copy), Some(host), cause, true)
        }
        PipelineError::Host { host, cause, .. } => (None, None, Some(host), cause, true),
        PipelineError::Start { host, cause } => (None, None, Some(host), cause, false),
        other => (None, None, None, other.to_string(), false),
    })
}

#[pymethods]
impl Run {
    /// The next result as `(tag, buffer)`, or at the end `(None, ending)`, where ending is None after a run without
    /// failures.
    fn next(&self, py: Python<'_>) -> PyResult<(Option<u64>, Py<PyAny>)> {
        runtime::get(py)?;
        loop {
            // Another thread may wait for the next result, too, and needs the interpreter meanwhile.
            let item = py.detach(|| lock(&self.parts.items).as_ref().map(|items| items.recv_timeout(SLICE)));
            match item {
                Some(Ok(Item::Result(received))) => {
                    let buffer = Py::new(py, Received::new(received.body))?;
                    return Ok((Some(received.tag), buffer.into_any()));
                }
                Some(Ok(Item::End(ended))) => {
                    py.detach(|| self.end(Duration::MAX));
                    return Ok((None, ending(ended).into_pyobject(py)?.unbind()));
                }
                Some(Err(RecvTimeoutError::Timeout)) => py.check_signals()?,
                Some(Err(RecvTimeoutError::Disconnected)) => {
                    return Err(error::other(py, "the thread of the pipeline has ended".to_owned()));
                }
                None => return Ok((None, py.None())),
            }
        }
    }

    /// Ends the run early. It waits at most timeout seconds for the thread that takes the inputs.
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        runtime::get(py)?;
        let longest = config::seconds(Some(timeout))?.unwrap_or_default();
        py.detach(|| self.end(longest));
        Ok(())
    }
}

impl Run {
    fn end(&self, longest: Duration) {
        self.parts.is_closed.store(true, Ordering::Release);
        // Nothing waits for room in the queue after this.
        drop(lock(&self.parts.items).take());
        let Some(thread) = lock(&self.parts.thread).take() else { return };
        let began = Instant::now();
        while !thread.is_finished() && began.elapsed() < longest {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
    }
}
