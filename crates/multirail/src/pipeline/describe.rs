//! A group as a text in TOML: what is in it, and what is wrong with it, by line.
//!
//! ```toml
//! [[filter]]
//! name = "read"
//! use = "read"
//! file = "image"          # whatever is not a key of every filter is a parameter of this kind
//!
//! [[filter]]
//! name = "work"
//! program = ["./work", "--fast"]
//! copies = 3
//! hosts = ["a", "b"]
//!
//! [[stream]]
//! from = "read"
//! to = "work"
//!
//! [hosts]
//! a = "10.0.0.1:7717"
//! b = "10.0.0.2:7717"
//! ```

mod read;

use super::built_in::Size;
use super::error::PipelineError;
use super::filter::StreamOptions;
use super::group::{DEFAULT_CHUNK_BYTES, Group, LOCAL};
use super::registry::Filters;
use crate::Config;
use crate::transport::{DEFAULT_LIMIT_BYTES, Transport};
use multirail_proto::pipeline::chunk::{Guarantee, Shape};
use multirail_proto::pipeline::{Graph, GraphError, Schedule};
use read::Lines;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use toml::{Spanned, Value};

/// A description is no longer.
const MAX_BYTES: usize = 4 << 20;
/// Units of work of one run.
const MAX_UNITS: u32 = 1_000_000_000;

/// A described group.
#[derive(Debug, Clone)]
pub struct Description {
    /// Hosts beyond this one: name and address. Who reads the description may change it.
    pub hosts: BTreeMap<String, String>,
    /// What sources cut their data into; `None`: nothing is said.
    pub chunk_bytes: Option<u64>,
    /// What carries streams of which the description does not say it.
    pub transport: Option<Transport>,
    /// How many units of work there shall be.
    pub units: u32,
    /// What each of them is asked.
    pub query: String,
    /// What its chunks shall be chosen for.
    pub guarantee: Option<Wanted>,
    limit_bytes: u64,
    filters: Vec<DescribedFilter>,
    streams: Vec<DescribedStream>,
}

/// What chunks shall be chosen for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// What is guaranteed.
    pub guarantee: Guarantee,
    /// Bytes of a full update.
    pub update_bytes: u64,
    /// What a filter computes on a byte.
    pub compute_ns_per_byte: f64,
}

#[derive(Debug, Clone)]
struct DescribedFilter {
    name: String,
    kind: String,
    parameters: serde_json::Value,
    copies: usize,
    hosts: Vec<String>,
    stateless: bool,
    line: usize,
}

#[derive(Debug, Clone)]
struct DescribedStream {
    from: String,
    to: String,
    options: StreamOptions,
    line: usize,
}

/// What is wrong, and in which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct DescribeError {
    /// From 1.
    pub line: usize,
    /// What to change.
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    filter: Vec<Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>>,
    #[serde(default)]
    stream: Vec<Spanned<WrittenStream>>,
    #[serde(default)]
    hosts: BTreeMap<String, String>,
    #[serde(default)]
    run: Run,
    guarantee: Option<Spanned<WrittenGuarantee>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStream {
    from: Spanned<String>,
    to: Spanned<String>,
    schedule: Option<Schedule>,
    window: Option<u32>,
    transport: Option<Transport>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    chunk: Option<Spanned<Size>>,
    limit: Option<Spanned<Size>>,
    units: Option<Spanned<u32>>,
    #[serde(default)]
    query: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGuarantee {
    updates_per_s: Option<f64>,
    latency_us: Option<f64>,
    #[serde(default)]
    perfect_pipeline: bool,
    update_bytes: Size,
    #[serde(default)]
    compute_ns_per_byte: f64,
}

impl FromStr for Description {
    type Err = DescribeError;

    fn from_str(text: &str) -> Result<Self, DescribeError> {
        if text.len() > MAX_BYTES {
            return Err(DescribeError { line: 1, what: format!("the description is longer than {MAX_BYTES} bytes") });
        }
        let lines = Lines(text);
        let written: Written = toml::from_str(text).map_err(|e| lines.at(e.span().unwrap_or(0..0), e.message()))?;
        let mut filters = Vec::new();
        for filter in written.filter {
            filters.push(read::filter(filter, &lines)?);
        }
        let stream = |stream: Spanned<WrittenStream>| {
            let line = lines.line(&stream.span());
            let WrittenStream { from, to, schedule, window, transport } = stream.into_inner();
            let usual = StreamOptions::default();
            let (schedule, window) = (schedule.unwrap_or(usual.schedule), window.unwrap_or(usual.window));
            for end in [&from, &to] {
                if !filters.iter().any(|f: &DescribedFilter| f.name == *end.get_ref()) {
                    let what = format!("no [[filter]] has the name {:?}", end.get_ref());
                    return Err(lines.at(end.span(), &what));
                }
            }
            let options = StreamOptions { schedule, window, transport };
            Ok(DescribedStream { from: from.into_inner(), to: to.into_inner(), options, line })
        };
        let streams = written.stream.into_iter().map(stream).collect::<Result<Vec<_>, _>>()?;
        let size = |written: Option<Spanned<Size>>, least: u64, what: &str| match written {
            Some(size) if size.get_ref().0 < least => {
                Err(lines.at(size.span(), &format!("{what} must be at least {least}")))
            }
            size => Ok(size.map(|s| s.into_inner().0)),
        };
        let units = match written.run.units {
            Some(units) if !(1..=MAX_UNITS).contains(units.get_ref()) => {
                return Err(lines.at(units.span(), &format!("units must be 1 to {MAX_UNITS}")));
            }
            units => units.map_or(1, Spanned::into_inner),
        };
        Ok(Self {
            hosts: written.hosts,
            chunk_bytes: size(written.run.chunk, 1, "chunk")?,
            transport: None,
            units,
            query: written.run.query,
            guarantee: written.guarantee.map(|wanted| read::guarantee(wanted, &lines)).transpose()?,
            limit_bytes: size(written.run.limit, 1, "limit")?.unwrap_or(DEFAULT_LIMIT_BYTES),
            filters,
            streams,
        })
    }
}

impl Description {
    /// The group. Filters of this host are made from `known`.
    pub fn group(&self, config: Config, known: &Filters) -> Result<Group, DescribeError> {
        self.graph()?;
        let mut group = Group::new(config);
        for (name, address) in &self.hosts {
            group.host(name, address);
        }
        group.chunk_bytes(self.chunk_bytes.unwrap_or(DEFAULT_CHUNK_BYTES)).limit_bytes(self.limit_bytes);
        for filter in &self.filters {
            let here = filter.hosts.is_empty() || filter.hosts.iter().any(|h| h == LOCAL);
            if here && !known.kinds().contains(&filter.kind) {
                let (name, kind, kinds) = (&filter.name, &filter.kind, known.kinds().join(", "));
                let what = format!("filter {name:?} uses the kind {kind:?}, which is unknown; there are: {kinds}");
                return Err(DescribeError { line: filter.line, what });
            }
            let hosts: Vec<&str> = filter.hosts.iter().map(String::as_str).collect();
            let spec = group.filter_of_kind(&filter.name, &filter.kind, filter.parameters.clone(), known);
            spec.copies(filter.copies).on(&hosts);
            if filter.stateless {
                spec.stateless();
            }
        }
        for stream in &self.streams {
            let transport = stream.options.transport.or(self.transport);
            group.stream_with(&stream.from, &stream.to, StreamOptions { transport, ..stream.options });
        }
        Ok(group)
    }

    /// The group as a graph, and its hosts' names by number.
    pub fn graph(&self) -> Result<(Graph, Vec<String>), DescribeError> {
        let mut group = Group::new(Config::default());
        for (name, address) in &self.hosts {
            group.host(name, address);
        }
        for filter in &self.filters {
            for host in &filter.hosts {
                if host != LOCAL && !self.hosts.contains_key(host) {
                    let what = format!("filter {:?} is on host {host:?}, which is not in [hosts]", filter.name);
                    return Err(DescribeError { line: filter.line, what });
                }
            }
            let hosts: Vec<&str> = filter.hosts.iter().map(String::as_str).collect();
            let spec = group.filter_of_kind(&filter.name, &filter.kind, serde_json::Value::Null, &Filters::none());
            spec.copies(filter.copies).on(&hosts);
        }
        for stream in &self.streams {
            group.stream_with(&stream.from, &stream.to, stream.options);
        }
        group.graph().map_err(|error| DescribeError { line: self.line_of(&error), what: error.to_string() })
    }

    /// What the planner of chunks is told of the group; `None` without a guarantee. `processors`: how many the filters share, 0 if
    /// each copy has one of its own.
    pub fn shape(&self, processors: u32) -> Option<Shape> {
        let wanted = self.guarantee?;
        let (graph, _) = self.graph().ok()?;
        let mut far = vec![0u32; graph.filters().len()];
        // A way is no longer than there are filters.
        for _ in graph.filters() {
            for stream in graph.streams() {
                far[stream.to] = far[stream.to].max(far[stream.from] + 1);
            }
        }
        let consumers = graph.streams().iter().map(|s| graph.filters()[s.to].hosts.len());
        Some(Shape {
            update_bytes: wanted.update_bytes,
            hops: far.into_iter().max().unwrap_or(0).max(1),
            copies: consumers.min().unwrap_or(1) as u32,
            compute_ns_per_byte: wanted.compute_ns_per_byte,
            processors,
        })
    }

    /// What shall carry each stream, in the graph's order; `None`: the best.
    pub fn transports(&self) -> Vec<Option<Transport>> {
        self.streams.iter().map(|s| s.options.transport.or(self.transport)).collect()
    }

    /// The kind of each filter, in the graph's order.
    pub fn kinds(&self) -> Vec<&str> {
        self.filters.iter().map(|f| f.kind.as_str()).collect()
    }

    fn line_of(&self, error: &PipelineError) -> usize {
        let filter = |name: &str| self.filters.iter().rfind(|f| f.name == name).map(|f| f.line);
        let stream = |from: &str, to: &str| self.streams.iter().find(|s| s.from == from && s.to == to).map(|s| s.line);
        let line = match error {
            PipelineError::Graph(GraphError::SameName(name) | GraphError::NoCopies(name)) => filter(name),
            PipelineError::Graph(GraphError::Cycle(names)) => match names.as_slice() {
                [from, to, ..] => stream(from, to),
                _ => None,
            },
            PipelineError::Graph(GraphError::Window { from, to, .. }) => stream(from, to),
            PipelineError::Graph(GraphError::NoName) => filter(""),
            _ => None,
        };
        line.unwrap_or(1)
    }
}

#[cfg(test)]
mod tests;
