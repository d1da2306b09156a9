//! Broadcasts of a file or a directory to the servers of many hosts.

use crate::config::{self, Token};
use crate::copy::wait_and_count;
use crate::counters::Counters;
use crate::error;
use crate::job::Job;
use crate::runtime;
use crate::work::{Finish, Operation, Work};
use multirail::multicast::hosts::{Party, parse_list};
use multirail::multicast::{BroadcastError, BroadcastHost, Options, Outcome, Summary, broadcast_path};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;

/// What a call says about a broadcast.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    source: PathBuf,
    destination: PathBuf,
    hosts: Vec<String>,
    token: Token,
    rails: String,
    recursive: bool,
}

fn broadcasting(py: Python<'_>, asked: Asked) -> PyResult<(Work, Counters)> {
    runtime::get(py)?;
    let Asked { source, destination, hosts, token, rails, recursive } = asked;
    let wrong = |why: String| PyValueError::new_err(format!("hosts: {why}"));
    let entries = parse_list(&hosts.join(",")).map_err(|why| wrong(why.to_string()))?;
    let party = Party::new(entries, None, &[], &[]).map_err(|why| wrong(why.to_string()))?;
    let given = party.clusters_of_entries().map_err(|why| wrong(why.to_string()))?;
    // Without clusters, all hosts begin in one, and measurements find those that there are.
    let options = Options::new()
        .destination(destination)
        .recursive(recursive)
        .find_clusters(given.is_none())
        .config(config::sessions(&token, &rails, None)?);
    let cluster = |host: usize| given.as_ref().map_or(0, |given| given.of[host]);
    let root_cluster = cluster(0);
    let receivers = party.receivers.iter().enumerate();
    let hosts: Vec<BroadcastHost> =
        receivers.map(|(number, entry)| BroadcastHost::new(entry.address(), cluster(number + 1))).collect();
    let counters = Counters::from(options.progress.clone());
    let mut job = Job::start(py, "broadcast", move || async move {
        match broadcast_path(&source, &hosts, root_cluster, &options).await {
            Err(BroadcastError::Own(error)) => Err(error),
            done => Ok(done),
        }
    })?;
    let work: Work = Box::pin(async move {
        let done = job.done().await;
        Box::new(move |py: Python<'_>| match done {
            Ok(Ok(summary)) => described(py, &summary),
            Ok(Err(BroadcastError::Hosts(why))) => Err(PyValueError::new_err(why)),
            Ok(Err(other)) => Err(error::other(py, other.to_string())),
            Err(error) => Err(error::of(py, &error, None)),
        }) as Finish
    });
    Ok((work, counters))
}

/// The summary as a dictionary for `multirail.files.Summary`.
fn described(py: Python<'_>, summary: &Summary) -> PyResult<Py<PyAny>> {
    let hosts = PyList::empty(py);
    for host in &summary.hosts {
        let all = PyDict::new(py);
        all.set_item("host", &host.address)?;
        all.set_item("complete", host.outcome == Outcome::Complete)?;
        all.set_item(
            "reason",
            match &host.outcome {
                Outcome::Complete => None,
                Outcome::Failed(why) => Some(why),
            },
        )?;
        all.set_item("cluster", host.cluster)?;
        all.set_item("seconds", host.complete_after.map(|after| after.as_secs_f64()))?;
        all.set_item("held_bytes", host.held_bytes)?;
        all.set_item("resumed_bytes", host.resumed_bytes)?;
        hosts.append(all)?;
    }
    let clusters = summary.wan_bytes.iter().enumerate();
    let between = clusters.map(|(from, row)| {
        let others = row.iter().enumerate().filter(|(to, _)| *to != from);
        others.map(|(_, bytes)| bytes).sum::<u64>()
    });
    let all = PyDict::new(py);
    all.set_item("bytes", summary.total_bytes)?;
    all.set_item("seconds", summary.elapsed.as_secs_f64())?;
    all.set_item("hosts", hosts)?;
    all.set_item("bytes_between_clusters", between.sum::<u64>())?;
    Ok(all.into_any().unbind())
}

#[pyfunction]
#[pyo3(signature = (asked, tell = None))]
pub(crate) fn broadcast(py: Python<'_>, asked: Asked, tell: Option<Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
    wait_and_count(py, broadcasting(py, asked)?, tell)
}

#[pyfunction]
pub(crate) fn start_broadcast(py: Python<'_>, asked: Asked) -> PyResult<(Operation, Counters)> {
    let (work, counters) = broadcasting(py, asked)?;
    Ok((Operation::new(work), counters))
}
