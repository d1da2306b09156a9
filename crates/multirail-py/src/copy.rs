//! Copies of files to and from a server.

use crate::config::{self, Token};
use crate::counters::Counters;
use crate::error::{self, Kind};
use crate::job::Job;
use crate::runtime;
use crate::work::{Operation, Work, wait_and_tell};
use multirail::Session;
use multirail::files::{self, CopyError, Failure, Options, Report, Side};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::Instant;

/// What a call says about a copy.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    host: String,
    upload: bool,
    sources: Vec<PathBuf>,
    destination: PathBuf,
    token: Token,
    rails: String,
    recursive: bool,
    checksum: bool,
}

fn copying(py: Python<'_>, asked: Asked) -> PyResult<(Work, Counters)> {
    runtime::get(py)?;
    let Asked { host, upload, sources, destination, token, rails, recursive, checksum } = asked;
    let config = config::sessions(&token, &rails, None)?;
    let host = config::host(&host);
    let options = Options::new().recursive(recursive).by_content(checksum);
    let counters = Counters::from(options.progress.clone());
    let address = host.clone();
    let mut job = Job::start(py, "copy", move || async move {
        let began = Instant::now();
        let mut session = Session::connect(&address, config).await?;
        let copied = match upload {
            true => files::put(&mut session, &sources, &destination, &options).await,
            false => files::get(&mut session, &sources, &destination, &options).await,
        };
        match copied {
            Ok(report) => {
                session.close().await?;
                Ok(Ok((report, began.elapsed().as_secs_f64())))
            }
            Err(CopyError::Session(error)) => Err(error),
            Err(other) => Ok(Err(other)),
        }
    })?;
    let work: Work = Box::pin(async move {
        let done = job.done().await;
        Box::new(move |py: Python<'_>| match done {
            Ok(Ok((report, seconds))) => described(py, &report, seconds, &host),
            Ok(Err(CopyError::Sources(why))) => Err(PyValueError::new_err(why)),
            Ok(Err(CopyError::Destination(why))) => Err(error::make(py, Kind::CopyFailed, why, None)),
            Ok(Err(other)) => Err(error::make(py, Kind::CopyFailed, other.to_string(), Some(&host))),
            Err(error) => Err(error::of(py, &error, Some(&host))),
        }) as crate::work::Finish
    });
    Ok((work, counters))
}

/// The report as a dictionary for `multirail.files.Report`.
fn described(py: Python<'_>, report: &Report, seconds: f64, host: &str) -> PyResult<Py<PyAny>> {
    let failure = |failure: &Failure| {
        let side = match failure.side {
            Side::Client => None,
            Side::Server => Some(host.to_owned()),
        };
        (failure.path.clone().into_os_string(), failure.to_string(), side)
    };
    let skipped = |skipped: &files::Skipped| (skipped.path.clone().into_os_string(), skipped.what.clone());
    let all = PyDict::new(py);
    all.set_item("files", report.files)?;
    all.set_item("bytes", report.bytes)?;
    all.set_item("directories", report.directories)?;
    all.set_item("links", report.links)?;
    all.set_item("unchanged", report.unchanged)?;
    all.set_item("resumed_bytes", report.resumed_bytes)?;
    all.set_item("failed_count", report.failed_count)?;
    all.set_item("failures", report.failed.iter().map(failure).collect::<Vec<_>>())?;
    all.set_item("skipped_count", report.skipped_count)?;
    all.set_item("skipped", report.skipped.iter().map(skipped).collect::<Vec<_>>())?;
    all.set_item("seconds", seconds)?;
    Ok(all.into_any().unbind())
}

/// Runs work that has counters, and calls `tell` with them about 20 times a second and at the end.
pub(crate) fn wait_and_count(
    py: Python<'_>,
    (work, counters): (Work, Counters),
    tell: Option<Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let count = |_: Python<'_>| tell.as_ref().map_or(Ok(()), |tell| tell.call1(counters.read()).map(drop));
    let done = wait_and_tell(py, work, count)?;
    count(py)?;
    Ok(done)
}

#[pyfunction]
#[pyo3(signature = (asked, tell = None))]
pub(crate) fn copy(py: Python<'_>, asked: Asked, tell: Option<Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
    wait_and_count(py, copying(py, asked)?, tell)
}

#[pyfunction]
pub(crate) fn start_copy(py: Python<'_>, asked: Asked) -> PyResult<(Operation, Counters)> {
    let (work, counters) = copying(py, asked)?;
    Ok((Operation::new(work), counters))
}
