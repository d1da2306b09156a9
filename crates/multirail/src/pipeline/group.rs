//! Putting a group of filters together.

use super::coordinator::Running;
use super::copy::Make;
use super::error::{PipelineError, Result};
use super::filter::{Failure, Filter, Place, StreamOptions};
use super::host::{HostEntry, Layout, RunId};
use super::registry::Filters;
use super::remote::Kind;
use crate::Config;
use crate::transport::DEFAULT_LIMIT_BYTES;
use multirail_proto::pipeline::{self as proto, Graph};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a host may be without a working rail before it counts as gone, where nothing else is said.
const HOST_TIMEOUT: Duration = Duration::from_secs(5);
/// A source cuts its data into such chunks where nothing else is said.
pub const DEFAULT_CHUNK_BYTES: u64 = 64 << 10;
/// This process's name among the hosts.
pub const LOCAL: &str = "local";

/// A group of filters that is being put together.
pub struct Group {
    config: Config,
    filters: Vec<Spec>,
    streams: Vec<(String, String, StreamOptions)>,
    hosts: Vec<HostEntry>,
    chunk_bytes: u64,
    limit_bytes: u64,
}

/// A filter of a [`Group`] that is being put together.
pub struct Spec {
    name: String,
    copies: usize,
    hosts: Vec<String>,
    stateless: bool,
    made: Made,
}

enum Made {
    Here(Make),
    ByKind { kind: String, parameters: Value, known: Filters },
}

impl Spec {
    /// So many transparent copies; default 1. They are given to the filter's hosts in turn.
    pub fn copies(&mut self, copies: usize) -> &mut Self {
        self.copies = copies;
        self
    }

    /// The hosts that its copies are on, by name; default: this process.
    pub fn on(&mut self, hosts: &[&str]) -> &mut Self {
        self.hosts = hosts.iter().map(|h| (*h).to_owned()).collect();
        self
    }

    /// What it makes of a buffer depends on nothing but that buffer, so if a copy's host dies, another copy may do it. The price: the
    /// producer keeps a copy of each buffer until it is done, and output waits for a round trip.
    pub fn stateless(&mut self) -> &mut Self {
        self.stateless = true;
        self
    }
}

impl Group {
    /// An empty one. `config` has the token and the rails for other hosts.
    pub fn new(config: Config) -> Self {
        let hosts = vec![HostEntry { name: LOCAL.to_owned(), address: String::new() }];
        let (filters, streams) = (Vec::new(), Vec::new());
        let config = Config { give_up_after: HOST_TIMEOUT, ..config };
        Self { config, filters, streams, hosts, chunk_bytes: DEFAULT_CHUNK_BYTES, limit_bytes: DEFAULT_LIMIT_BYTES }
    }

    /// Another host, by the address of its server.
    pub fn host(&mut self, name: &str, address: &str) -> &mut Self {
        self.hosts.push(HostEntry { name: name.to_owned(), address: address.to_owned() });
        self
    }

    /// Adds a filter that this process makes; all its copies are here.
    pub fn filter<F: Filter + 'static>(
        &mut self,
        name: &str,
        make: impl Fn(&Place) -> F + Send + Sync + 'static,
    ) -> &mut Spec {
        let make: Make = Arc::new(move |place| -> Result<Box<dyn Filter>, Failure> { Ok(Box::new(make(place))) });
        self.add(name, Made::Here(make))
    }

    /// Adds a filter that its hosts make by its kind: this process from `known`.
    pub fn filter_of_kind(&mut self, name: &str, kind: &str, parameters: Value, known: &Filters) -> &mut Spec {
        self.add(name, Made::ByKind { kind: kind.to_owned(), parameters, known: known.clone() })
    }

    fn add(&mut self, name: &str, made: Made) -> &mut Spec {
        let at = self.filters.len();
        self.filters.push(Spec { name: name.to_owned(), copies: 1, hosts: Vec::new(), stateless: false, made });
        &mut self.filters[at]
    }

    /// Joins two filters by a stream.
    pub fn stream(&mut self, from: &str, to: &str) -> &mut Self {
        self.stream_with(from, to, StreamOptions::default())
    }

    /// Joins two filters by a stream that shall work like this.
    pub fn stream_with(&mut self, from: &str, to: &str, options: StreamOptions) -> &mut Self {
        self.streams.push((from.to_owned(), to.to_owned(), options));
        self
    }

    /// How long a host may be without a working rail before it counts as gone; default 5 s. A unit of work that can go on without
    /// it ends that much later.
    pub fn host_timeout(&mut self, longest: Duration) -> &mut Self {
        self.config.give_up_after = longest;
        self
    }

    /// What sources cut their data into; default [`DEFAULT_CHUNK_BYTES`].
    pub fn chunk_bytes(&mut self, bytes: u64) -> &mut Self {
        self.chunk_bytes = bytes.max(1);
        self
    }

    /// No buffer is larger; default 64 MiB. A host's memory holds at most the window's buffers of each edge.
    pub fn limit_bytes(&mut self, bytes: u64) -> &mut Self {
        self.limit_bytes = bytes;
        self
    }

    /// The group as a graph, and the names of the hosts by its numbers.
    pub fn graph(&self) -> Result<(Graph, Vec<String>)> {
        let names = |list: &mut dyn Iterator<Item = &str>| list.map(str::to_owned).collect::<Vec<_>>();
        let find = |what, name: &str, known: Vec<String>| {
            let found = known.iter().position(|n| n == name);
            found.ok_or_else(|| PipelineError::Unknown { what, name: name.to_owned(), known })
        };
        let hosts = || names(&mut self.hosts.iter().map(|h| h.name.as_str()));
        let filters = || names(&mut self.filters.iter().map(|f| f.name.as_str()));
        let mut placed = Vec::new();
        for spec in &self.filters {
            let on = spec.hosts.iter().map(|h| find("host", h, hosts()));
            let mut on = on.collect::<Result<Vec<_>>>()?;
            if on.is_empty() {
                on.push(0);
            }
            let copies = (0..spec.copies.min(proto::graph::MAX_COPIES + 1)).map(|c| on[c % on.len()] as u32).collect();
            placed.push(proto::Filter { name: spec.name.clone(), hosts: copies, stateless: spec.stateless });
        }
        let mut streams = Vec::new();
        for (from, to, options) in &self.streams {
            let (from, to) = (find("filter", from, filters())?, find("filter", to, filters())?);
            streams.push(proto::Stream { from, to, schedule: options.schedule, window: options.window });
        }
        Ok((Graph::new(placed, streams)?, hosts()))
    }

    /// Makes all filters and edges, on all hosts. It blocks, for some seconds at most.
    pub fn start(&self) -> Result<Running> {
        let (graph, _) = self.graph()?;
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(|e| PipelineError::start(LOCAL, e))?;
        let layout = Layout {
            run: RunId(run),
            graph,
            hosts: self.hosts.clone(),
            transports: self.streams.iter().map(|(_, _, o)| o.transport).collect(),
            chunk_bytes: self.chunk_bytes,
            limit_bytes: self.limit_bytes,
        };
        let (makes, kinds) = self.makes(&layout)?;
        Running::start(&self.config, layout, &makes, &kinds)
    }

    /// What this process makes, and what the others are told.
    fn makes(&self, layout: &Layout) -> Result<(Vec<Make>, Vec<Kind>)> {
        let (mut makes, mut kinds) = (Vec::<Make>::new(), Vec::new());
        for (spec, filter) in self.filters.iter().zip(layout.graph.filters()) {
            let away = filter.hosts.iter().find(|h| **h != 0).map(|h| layout.host_name(*h));
            let here = filter.hosts.contains(&0);
            match (&spec.made, away) {
                (Made::Here(_), Some(host)) => {
                    let cause = format!("filter {:?} is this process's own; give it a kind that hosts know", spec.name);
                    return Err(PipelineError::start(host, cause));
                }
                (Made::Here(make), None) => makes.push(make.clone()),
                (Made::ByKind { kind, parameters, known }, _) if here => {
                    makes.push(known.make(kind, parameters.clone())?)
                }
                (Made::ByKind { .. }, _) => makes.push(Arc::new(|_| Err("this filter has no copy here".into()))),
            }
            kinds.push(match &spec.made {
                Made::Here(_) => Kind { kind: String::new(), parameters: "null".to_owned() },
                Made::ByKind { kind, parameters, .. } => {
                    Kind { kind: kind.clone(), parameters: parameters.to_string() }
                }
            });
        }
        Ok((makes, kinds))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.filters.iter().map(|s| &s.name).collect();
        f.debug_struct("Group").field("filters", &names).finish_non_exhaustive()
    }
}
