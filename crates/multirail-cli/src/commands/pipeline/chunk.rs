//! The chunk that a description's guarantee asks for: rehearsed, then planned by the library.

use super::Described;
use anyhow::{Context, anyhow};
use multirail::pipeline::chunk::{Plan, Point, Shape};
use multirail::pipeline::describe::Description;
use multirail::pipeline::{LOCAL, Rehearsal, StreamOptions};
use multirail::transport::Transport;
use serde::Serialize;
use std::net::ToSocketAddrs;
use std::time::Duration;

/// Chunks that are rehearsed.
const SIZES: [u64; 8] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// ... for about so long each.
const EFFORT: Duration = Duration::from_millis(60);

/// What was measured, and what follows from it.
#[derive(Serialize)]
pub struct Planned {
    /// What carried the rehearsal's edges; nothing: the best that the hosts have.
    pub transport: Option<Transport>,
    /// The hosts of the rehearsal, in its order.
    pub hosts: Vec<String>,
    pub points: Vec<Point>,
    pub plan: Plan,
    pub shape: Shape,
}

/// Whether a chunk is chosen by what is measured.
pub fn is_measured(description: &Description) -> bool {
    description.chunk_bytes.is_none() && description.guarantee.is_some()
}

/// Rehearses and plans. `None`: nothing is guaranteed, or the chunk is given.
pub fn plan(described: &Described) -> anyhow::Result<Option<Planned>> {
    let description = &described.description;
    let Some(wanted) = description.guarantee.filter(|_| is_measured(description)) else { return Ok(None) };
    let (graph, names) = description.graph()?;
    // A filter's first copy stands for all of them.
    let first = graph.filters().iter().filter_map(|f| names.get(*f.hosts.first()? as usize));
    let away = first.filter_map(|name| Some((name.clone(), description.hosts.get(name)?.clone())));
    let hosts: Vec<(String, String)> = away.filter(|(name, _)| name != LOCAL).collect();
    anyhow::ensure!(
        !hosts.is_empty(),
        "a chunk is chosen by what the way to other hosts can do, and all filters are here: say chunk in [run], or give filters hosts"
    );
    let all_here = description.hosts.values().all(|address| is_here(address));
    let processors = if all_here { std::thread::available_parallelism().map_or(0, |n| n.get() as u32) } else { 0 };
    let shape = description.shape(processors).context("nothing is guaranteed")?;
    let transport = description.transports().into_iter().flatten().next();
    let options = StreamOptions { transport, ..StreamOptions::default() };
    let mut rehearsal = Rehearsal::start(&described.config, &hosts, shape.copies as usize, options)?;
    let curve = rehearsal.curve(&SIZES, EFFORT).map_err(|why| anyhow!("rehearsing: {why}"))?;
    let plan = shape.plan(&curve, wanted.guarantee)?;
    let hosts = hosts.into_iter().map(|(name, _)| name).collect();
    Ok(Some(Planned { transport, hosts, points: curve.points().to_vec(), plan, shape }))
}

/// A host whose filters share the processors of this one.
fn is_here(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback()))
}
