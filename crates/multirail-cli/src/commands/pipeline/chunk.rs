//! The choice of a chunk for the guarantee of a pipeline: a rehearsal measures, and the library
//! plans.

use super::args::Described;
use anyhow::{Context, anyhow};
use multirail::pipeline::chunk::{Plan, Point, Shape};
use multirail::pipeline::describe::Description;
use multirail::pipeline::edge::Transport;
use multirail::pipeline::{LOCAL, Rehearsal, StreamOptions};
use serde::Serialize;
use std::net::ToSocketAddrs;
use std::time::Duration;

/// The chunk sizes of the rehearsal.
const SIZES: [u64; 8] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// The approximate duration of the rehearsal of each size.
const EFFORT: Duration = Duration::from_millis(60);

/// The measurements of the rehearsal, and the plan that follows from them.
#[derive(Serialize)]
pub struct Planned {
    /// The transport of the rehearsal's edges. `None` means the best one of the hosts.
    pub transport: Option<Transport>,
    /// The hosts of the rehearsal, in order.
    pub hosts: Vec<String>,
    pub points: Vec<Point>,
    pub plan: Plan,
    pub shape: Shape,
}

/// Whether a rehearsal determines the chunk.
pub fn is_measured(description: &Description) -> bool {
    description.chunk_bytes.is_none() && description.guarantee.is_some()
}

/// Rehearses and plans. Returns `None` if there is no guarantee or the chunk is given.
pub fn plan(described: &Described) -> anyhow::Result<Option<Planned>> {
    let description = &described.description;
    let Some(wanted) = description.guarantee.filter(|_| is_measured(description)) else { return Ok(None) };
    let (graph, names) = description.graph()?;
    // The first copy of a filter represents all of its copies.
    let first = graph.filters().iter().filter_map(|f| names.get(*f.hosts.first()? as usize));
    let away = first.filter_map(|name| Some((name.clone(), description.hosts.get(name)?.clone())));
    let hosts: Vec<(String, String)> = away.filter(|(name, _)| name != LOCAL).collect();
    anyhow::ensure!(
        !hosts.is_empty(),
        "cannot choose a chunk for the guarantee, because all filters are on this host: set chunk in [run], or give filters hosts"
    );
    let all_here = description.hosts.values().all(|address| is_here(address));
    let processors = if all_here { std::thread::available_parallelism().map_or(0, |n| n.get() as u32) } else { 0 };
    let shape = description.shape(processors).context("the description has no guarantee")?;
    let transport = description.transports().into_iter().flatten().next();
    let options = StreamOptions::default().transport(transport);
    let mut rehearsal = Rehearsal::start(&described.config, &hosts, shape.copies as usize, options)?;
    let curve = rehearsal.curve(&SIZES, EFFORT).map_err(|why| anyhow!("rehearsing: {why}"))?;
    let plan = shape.plan(&curve, wanted.guarantee)?;
    let hosts = hosts.into_iter().map(|(name, _)| name).collect();
    Ok(Some(Planned { transport, hosts, points: curve.points().to_vec(), plan, shape }))
}

/// Whether an address is that of this host, whose processors its filters then share.
fn is_here(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback()))
}
