//! A described group.

use crate::edge::Transport;
use crate::error::PipelineError;
use crate::filters::Filters;
use crate::graph::group::{DEFAULT_CHUNK_BYTES, Group, LOCAL};
use crate::graph::options::StreamOptions;
use multirail_net::Config;
use multirail_proto::pipeline::chunk::{Guarantee, Shape};
use multirail_proto::pipeline::{Graph, GraphError};
use std::collections::BTreeMap;

/// A group that a file describes. It is parsed by `FromStr`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Description {
    /// Hosts other than this one: name and address. The caller may add or change hosts.
    pub hosts: BTreeMap<String, String>,
    /// The size of chunks in bytes; `None` if the file gives none.
    pub chunk_bytes: Option<u64>,
    /// What carries the streams for which the file names no transport.
    pub transport: Option<Transport>,
    /// The number of units of work.
    pub units: u32,
    /// The query of each unit of work.
    pub query: String,
    /// The guarantee for which the size of chunks is chosen.
    pub guarantee: Option<GuaranteeRequest>,
    pub(super) limit_bytes: u64,
    pub(super) filters: Vec<DescribedFilter>,
    pub(super) streams: Vec<DescribedStream>,
}

/// A guarantee that the size of chunks must meet.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct GuaranteeRequest {
    /// The guarantee.
    pub guarantee: Guarantee,
    /// Bytes of a full update.
    pub update_bytes: u64,
    /// Computing time of a filter in nanoseconds per byte.
    pub compute_ns_per_byte: f64,
}

#[derive(Debug, Clone)]
pub(super) struct DescribedFilter {
    pub name: String,
    pub kind: String,
    pub parameters: serde_json::Value,
    pub copies: usize,
    pub hosts: Vec<String>,
    pub stateless: bool,
    pub line: usize,
}

#[derive(Debug, Clone)]
pub(super) struct DescribedStream {
    pub from: String,
    pub to: String,
    pub options: StreamOptions,
    pub line: usize,
}

/// An error in a description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct DescribeError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Description {
    /// The group. Filters on this host are made from `known`.
    ///
    /// # Errors
    ///
    /// If the graph is not valid, or a filter on this host has an unknown kind.
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

    /// The group as a graph, and the names of the hosts by number.
    ///
    /// # Errors
    ///
    /// If the graph is not valid.
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

    /// The group as the planner of chunks sees it; `None` without a guarantee. `processors` is the
    /// number of processors that all filters share, or 0 if each copy has one of its own.
    pub fn shape(&self, processors: u32) -> Option<Shape> {
        let request = self.guarantee?;
        let (graph, _) = self.graph().ok()?;
        let consumers = graph.streams().iter().map(|s| graph.filters()[s.to].hosts.len());
        Some(Shape {
            update_bytes: request.update_bytes,
            hops: graph.depth().max(1),
            copies: consumers.min().unwrap_or(1) as u32,
            compute_ns_per_byte: request.compute_ns_per_byte,
            processors,
        })
    }

    /// What carries each stream, in the graph's order; `None` for the best that both hosts can do.
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
