//! The chunk that a description's guarantee asks for: measured, then planned by the library.

use super::Described;
use anyhow::Context;
use multirail::bench::curve::{self, EFFORT, SIZES};
use multirail::pipeline::LOCAL;
use multirail::pipeline::chunk::{Curve, Plan, Point, Shape};
use multirail::transport::Transport;
use serde::Serialize;
use std::net::ToSocketAddrs;

/// What was measured, and what follows from it.
#[derive(Serialize)]
pub struct Planned {
    pub transport: Transport,
    /// The host that was measured to.
    pub host: String,
    pub points: Vec<Point>,
    pub plan: Plan,
    pub shape: Shape,
}

/// Measures and plans. `None`: nothing is guaranteed, or the chunk is given.
pub fn plan(described: &Described) -> anyhow::Result<Option<Planned>> {
    let description = &described.description;
    let (None, Some(wanted)) = (description.chunk_bytes, description.guarantee) else { return Ok(None) };
    let (graph, names) = description.graph()?;
    let away = graph.filters().iter().flat_map(|f| &f.hosts).find_map(|h| {
        let name = names.get(*h as usize).filter(|n| *n != LOCAL)?;
        Some((name.clone(), description.hosts.get(name)?.clone()))
    });
    let (host, address) = away.context(
        "a chunk is chosen by what the way to another host can do, and all filters are here: say chunk in [run], or give filters hosts",
    )?;
    let carries = description.transports().into_iter().flatten().next();
    let measured = curve::curve(&address, &described.config, carries, &SIZES, EFFORT);
    let (transport, points) = measured.with_context(|| format!("measuring the way to host {host}"))?;
    let of = |p: &curve::Point| Point {
        bytes: p.message_bytes,
        one_way_us: p.one_way_us,
        bandwidth_bytes_s: p.bandwidth_bytes_s,
    };
    let points: Vec<Point> = points.iter().map(of).collect();
    let curve = Curve::new(points.clone())?;
    let all_here = description.hosts.values().all(|address| is_here(address));
    let processors = if all_here { std::thread::available_parallelism().map_or(0, |n| n.get() as u32) } else { 0 };
    let shape = description.shape(processors).context("nothing is guaranteed")?;
    let plan = shape.plan(&curve, wanted.guarantee)?;
    Ok(Some(Planned { transport, host, points, plan, shape }))
}

/// A host whose filters share the processors of this one.
fn is_here(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback()))
}
