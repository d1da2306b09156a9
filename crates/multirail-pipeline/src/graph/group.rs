//! A group of filters that is being built.

use super::options::StreamOptions;
use crate::coordinator::RunningGroup;
use crate::edge::DEFAULT_LIMIT_BYTES;
use crate::error::{PipelineError, Result};
use crate::filters::Filters;
use crate::host::{FilterKind, HostEntry, Layout, RunId};
use crate::runtime::{CopyInfo, Failure, Filter, MakeFilter};
use multirail_net::Config;
use multirail_proto::pipeline::{FilterNode, Graph, LogicalStream, graph};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Default time that a host may be without a working rail before it counts as lost.
const HOST_TIMEOUT: Duration = Duration::from_secs(5);
/// Default size of the chunks into which a source cuts its data.
pub const DEFAULT_CHUNK_BYTES: u64 = 64 << 10;
/// The name of this process among the hosts.
pub const LOCAL: &str = "local";

/// A group of filters and the logical streams that join them, before it runs.
///
/// Methods that configure the group can be chained. Mistakes are reported by [`Group::start`].
pub struct Group {
    config: Config,
    filters: Vec<FilterSpec>,
    streams: Vec<(String, String, StreamOptions)>,
    hosts: Vec<HostEntry>,
    chunk_bytes: u64,
    limit_bytes: u64,
}

/// A filter of a [`Group`] that is being built.
pub struct FilterSpec {
    name: String,
    copies: usize,
    hosts: Vec<String>,
    stateless: bool,
    origin: FilterOrigin,
}

/// Who makes a filter.
enum FilterOrigin {
    /// This process, by a function.
    Function(MakeFilter),
    /// Each host, by a kind that it knows.
    Kind { kind: String, parameters: Value, known: Filters },
}

impl FilterSpec {
    /// Sets the number of transparent copies; default 1. The copies are placed on the filter's
    /// hosts in turn.
    pub fn copies(&mut self, copies: usize) -> &mut Self {
        self.copies = copies;
        self
    }

    /// Sets the hosts of the copies, by name; default [`LOCAL`], this process.
    pub fn on(&mut self, hosts: &[&str]) -> &mut Self {
        self.hosts = hosts.iter().map(|h| (*h).to_owned()).collect();
        self
    }

    /// Declares that the filter's output for a buffer depends on that buffer only.
    ///
    /// If a copy's host dies, other copies then take over its buffers. In return, producers keep a
    /// copy of each buffer until it is done, and the end of a unit of work waits for a round trip.
    pub fn stateless(&mut self) -> &mut Self {
        self.stateless = true;
        self
    }
}

impl Group {
    /// An empty group. `config` has the token and the rails for the sessions with other hosts.
    pub fn new(config: Config) -> Self {
        let hosts = vec![HostEntry { name: LOCAL.to_owned(), address: String::new() }];
        let (filters, streams) = (Vec::new(), Vec::new());
        let config = config.give_up_after(HOST_TIMEOUT);
        Self { config, filters, streams, hosts, chunk_bytes: DEFAULT_CHUNK_BYTES, limit_bytes: DEFAULT_LIMIT_BYTES }
    }

    /// Adds a host, by the address of its server (`HOST:PORT`).
    pub fn host(&mut self, name: &str, address: &str) -> &mut Self {
        self.hosts.push(HostEntry { name: name.to_owned(), address: address.to_owned() });
        self
    }

    /// Adds a filter that this process makes. All of its copies are in this process.
    pub fn filter<F: Filter + 'static>(
        &mut self,
        name: &str,
        make: impl Fn(&CopyInfo) -> F + Send + Sync + 'static,
    ) -> &mut FilterSpec {
        let make: MakeFilter = Arc::new(move |place| -> Result<Box<dyn Filter>, Failure> { Ok(Box::new(make(place))) });
        self.add(name, FilterOrigin::Function(make))
    }

    /// Adds a filter that each of its hosts makes by its kind. This process makes it from `known`.
    pub fn filter_of_kind(&mut self, name: &str, kind: &str, parameters: Value, known: &Filters) -> &mut FilterSpec {
        self.add(name, FilterOrigin::Kind { kind: kind.to_owned(), parameters, known: known.clone() })
    }

    fn add(&mut self, name: &str, origin: FilterOrigin) -> &mut FilterSpec {
        let at = self.filters.len();
        self.filters.push(FilterSpec { name: name.to_owned(), copies: 1, hosts: Vec::new(), stateless: false, origin });
        &mut self.filters[at]
    }

    /// Joins two filters by a logical stream with default options.
    pub fn stream(&mut self, from: &str, to: &str) -> &mut Self {
        self.stream_with(from, to, StreamOptions::default())
    }

    /// Joins two filters by a logical stream.
    pub fn stream_with(&mut self, from: &str, to: &str, options: StreamOptions) -> &mut Self {
        self.streams.push((from.to_owned(), to.to_owned(), options));
        self
    }

    /// Sets how long a host may be without a working rail before it counts as lost; default 5 s.
    ///
    /// A unit of work that can continue without the host is delayed by that time.
    pub fn host_timeout(&mut self, longest: Duration) -> &mut Self {
        self.config.give_up_after = longest;
        self
    }

    /// Sets the size of the chunks into which sources cut their data; default
    /// [`DEFAULT_CHUNK_BYTES`].
    pub fn chunk_bytes(&mut self, bytes: u64) -> &mut Self {
        self.chunk_bytes = bytes.max(1);
        self
    }

    /// Sets the largest size of a buffer; default 64 MiB. A host holds at most the window of
    /// buffers of each edge in memory.
    pub fn limit_bytes(&mut self, bytes: u64) -> &mut Self {
        self.limit_bytes = bytes;
        self
    }

    /// The group as a graph, and the names of the hosts by number.
    ///
    /// # Errors
    ///
    /// If a name is unknown or the graph is not valid.
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
            let copies = (0..spec.copies.min(graph::MAX_COPIES + 1)).map(|c| on[c % on.len()] as u32).collect();
            placed.push(FilterNode { name: spec.name.clone(), hosts: copies, stateless: spec.stateless });
        }
        let mut streams = Vec::new();
        for (from, to, options) in &self.streams {
            let (from, to) = (find("filter", from, filters())?, find("filter", to, filters())?);
            streams.push(LogicalStream { from, to, schedule: options.schedule, window: options.window });
        }
        Ok((Graph::new(placed, streams)?, hosts()))
    }

    /// Makes all filters and edges, on all hosts. It blocks, for at most 40 s if a host does not
    /// answer.
    ///
    /// # Errors
    ///
    /// If the group is not valid, or a host cannot take part.
    pub fn start(&self) -> Result<RunningGroup> {
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
            host_timeout: self.config.give_up_after,
        };
        let (makers, kinds) = self.makers(&layout)?;
        RunningGroup::start(&self.config, layout, LOCAL, &makers, &kinds)
    }

    /// The makers of this process's filters, and what the other hosts make, by filter.
    fn makers(&self, layout: &Layout) -> Result<(Vec<MakeFilter>, Vec<FilterKind>)> {
        let (mut makers, mut kinds) = (Vec::new(), Vec::new());
        for (spec, node) in self.filters.iter().zip(layout.graph.filters()) {
            let remote = node.hosts.iter().find(|h| **h != 0).map(|h| layout.host_name(*h));
            match (&spec.origin, remote) {
                (FilterOrigin::Function(_), Some(host)) => {
                    let cause =
                        format!("filter {:?} is a function of this process; give it a kind that hosts know", spec.name);
                    return Err(PipelineError::start(host, cause));
                }
                (FilterOrigin::Function(make), None) => {
                    makers.push(make.clone());
                    kinds.push(FilterKind { kind: String::new(), parameters: "null".to_owned() });
                }
                (FilterOrigin::Kind { kind, parameters, known }, _) => {
                    let is_here = node.hosts.contains(&0);
                    makers.push(if is_here { known.maker(kind, parameters.clone())? } else { Filters::not_here() });
                    kinds.push(FilterKind { kind: kind.clone(), parameters: parameters.to_string() });
                }
            }
        }
        Ok((makers, kinds))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.filters.iter().map(|s| &s.name).collect();
        f.debug_struct("Group").field("filters", &names).finish_non_exhaustive()
    }
}
