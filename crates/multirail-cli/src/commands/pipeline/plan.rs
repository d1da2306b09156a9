//! `multirail pipeline plan`.

use super::args::{Described, GroupArgs};
use super::chunk::{self, Planned};
use super::servers::with_servers;
use crate::printer::Printer;
use multirail::pipeline::DEFAULT_CHUNK_BYTES;
use multirail_proto::units::format_size;
use serde::Serialize;
use std::process::ExitCode;

/// Show the hosts of all copies and the chunk, and run nothing
#[derive(clap::Args)]
#[command(
    after_help = "If the file has a [guarantee], a chain of empty filters on its hosts is measured, which takes some seconds."
)]
pub struct PlanArgs {
    #[command(flatten)]
    group: GroupArgs,
}

#[derive(Serialize)]
struct PlanRow {
    filters: Vec<FilterRow>,
    streams: Vec<StreamRow>,
    chunk_bytes: u64,
    /// `given`, `default` or `guarantee`.
    chunk_by: &'static str,
    /// The measurements and the plan for a guarantee.
    planned: Option<Planned>,
}

#[derive(Serialize)]
struct FilterRow {
    name: String,
    kind: String,
    /// The host of each copy.
    hosts: Vec<String>,
    stateless: bool,
}

#[derive(Serialize)]
struct StreamRow {
    from: String,
    to: String,
    schedule: String,
    window: u32,
    transport: Option<String>,
    edges: usize,
    edges_between_hosts: usize,
}

pub fn run(args: &PlanArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let described = args.group.read()?;
    let row = match chunk::is_measured(&described.description) {
        // An interrupt needs no handling: this process holds the other end of the servers' stdin,
        // and they end at its end.
        true => with_servers(&args.group, described, std::future::pending(), |described| {
            row(&described, chunk::plan(&described)?)
        })?,
        false => row(&described, None)?,
    };
    printer.row(&row, PlanRow::text);
    Ok(ExitCode::SUCCESS)
}

fn row(described: &Described, planned: Option<Planned>) -> anyhow::Result<PlanRow> {
    let description = &described.description;
    let (graph, names) = description.graph()?;
    let name = |host: &u32| names.get(*host as usize).cloned().unwrap_or_default();
    let filters = graph.filters().iter().zip(description.kinds()).map(|(filter, kind)| FilterRow {
        name: filter.name.clone(),
        kind: kind.to_owned(),
        hosts: filter.hosts.iter().map(name).collect(),
        stateless: filter.stateless,
    });
    let streams = graph.streams().iter().zip(description.transports()).map(|(stream, transport)| {
        let (from, to) = (&graph.filters()[stream.from], &graph.filters()[stream.to]);
        let pairs = from.hosts.iter().flat_map(|f| to.hosts.iter().map(move |t| f != t));
        StreamRow {
            from: from.name.clone(),
            to: to.name.clone(),
            schedule: stream.schedule.to_string(),
            window: stream.window,
            transport: transport.map(|t| t.to_string()),
            edges: from.hosts.len() * to.hosts.len(),
            edges_between_hosts: pairs.filter(|differ| *differ).count(),
        }
    });
    let (chunk_bytes, chunk_by) = match (&planned, description.chunk_bytes) {
        (Some(planned), _) => (planned.plan.chunk_bytes, "guarantee"),
        (None, Some(given)) => (given, "given"),
        (None, None) => (DEFAULT_CHUNK_BYTES, "default"),
    };
    Ok(PlanRow { filters: filters.collect(), streams: streams.collect(), chunk_bytes, chunk_by, planned })
}

impl PlanRow {
    fn text(&self) -> String {
        let mut lines = vec![format!("{:<16} {:<10} {:>6}  {}", "filter", "kind", "copies", "hosts")];
        for f in &self.filters {
            let stateless = if f.stateless { ", stateless" } else { "" };
            let hosts = f.hosts.join(" ");
            lines.push(format!("{:<16} {:<10} {:>6}  {hosts}{stateless}", f.name, f.kind, f.hosts.len()));
        }
        for s in &self.streams {
            let by = s.transport.as_deref().unwrap_or("the best transport");
            lines.push(format!(
                "{} -> {}: {}, window {}, {} edges, {} of them between hosts, by {by}",
                s.from, s.to, s.schedule, s.window, s.edges, s.edges_between_hosts
            ));
        }
        if let Some(planned) = &self.planned {
            let by = planned.transport.map_or("the best transport".to_owned(), |t| t.to_string());
            lines.push(format!("rehearsed over {} by {by}:", planned.hosts.join(", ")));
            lines.push(format!("{:>10} {:>12} {:>10}", "message", "one way us", "MB/s"));
            for p in &planned.points {
                let rate = p.bandwidth_bytes_s / 1e6;
                lines.push(format!("{:>10} {:>12.1} {rate:>10.1}", format_size(p.bytes), p.one_way_us));
            }
            lines.push(format!(
                "chunk {}: a partial update within {:.0} us, {:.2} full updates a second",
                format_size(self.chunk_bytes),
                planned.plan.latency_us,
                planned.plan.updates_per_s
            ));
        } else {
            lines.push(format!("chunk {} ({})", format_size(self.chunk_bytes), self.chunk_by));
        }
        lines.join("\n")
    }
}
