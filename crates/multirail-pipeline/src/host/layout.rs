//! A group as all its hosts know it.

use crate::edge::Transport;
use crate::runtime::EdgePeer;
use multirail_proto::pipeline::Graph;
use multirail_proto::pipeline::copy::{InputConfig, OutputConfig};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A group that is being run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub run: RunId,
    pub graph: Graph,
    /// By number. Host 0 coordinates; it does not listen, so it dials all of its edges.
    pub hosts: Vec<HostEntry>,
    /// By stream; `None` for the best that both ends can do.
    pub transports: Vec<Option<Transport>>,
    pub chunk_bytes: u64,
    pub limit_bytes: u64,
    /// How long a host may be without a working rail before its edges count as lost.
    pub host_timeout: Duration,
}

/// A host of a group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HostEntry {
    pub name: String,
    /// The address of its server, with the port.
    pub address: String,
}

/// Names a group. It is random, so that no other group's edges reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RunId(pub [u8; 16]);

/// Names an edge of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct EdgeId {
    pub(crate) run: RunId,
    pub(crate) stream: u32,
    pub(crate) from_copy: u32,
    pub(crate) to_copy: u32,
}

/// An edge and the hosts of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlacedEdge {
    pub id: EdgeId,
    pub from_host: u32,
    pub to_host: u32,
}

impl Layout {
    /// Whether all parts fit together, in a layout from another host.
    pub(crate) fn is_consistent(&self) -> bool {
        let hosts = self.graph.filters().iter().flat_map(|f| &f.hosts);
        let all_known = hosts.into_iter().all(|h| (*h as usize) < self.hosts.len());
        all_known && self.transports.len() == self.graph.streams().len()
    }

    /// The name of a host.
    pub(crate) fn host_name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("?", |h| &h.name)
    }

    /// All edges of a stream.
    pub(crate) fn edges(&self, stream: usize) -> impl Iterator<Item = PlacedEdge> {
        let joined = &self.graph.streams()[stream];
        let (from, to) = (&self.graph.filters()[joined.from].hosts, &self.graph.filters()[joined.to].hosts);
        from.iter().enumerate().flat_map(move |(f, from_host)| {
            to.iter().enumerate().map(move |(t, to_host)| {
                let id = EdgeId { run: self.run, stream: stream as u32, from_copy: f as u32, to_copy: t as u32 };
                PlacedEdge { id, from_host: *from_host, to_host: *to_host }
            })
        })
    }

    /// The edge of this name, if the group has it.
    pub(crate) fn find_edge(&self, id: EdgeId) -> Option<PlacedEdge> {
        self.graph.streams().get(id.stream as usize)?;
        self.edges(id.stream as usize).find(|edge| edge.id == id)
    }

    /// A copy, as the other end of an edge sees it.
    pub(crate) fn peer(&self, filter: usize, copy: usize) -> EdgePeer {
        let node = &self.graph.filters()[filter];
        let host = self.host_name(node.hosts[copy]).to_owned();
        EdgePeer { filter: node.name.clone(), copy, host }
    }

    /// The input edges of a copy, in order, with the producer's filter.
    pub(crate) fn inputs(&self, filter: usize, copy: usize) -> impl Iterator<Item = (EdgeId, usize, InputConfig)> {
        self.graph.inputs(filter).enumerate().flat_map(move |(place, number)| {
            let stream = &self.graph.streams()[number];
            let edges = self.edges(number).filter(move |edge| edge.id.to_copy as usize == copy);
            edges.map(move |edge| {
                let producer_copy = edge.id.from_copy as usize;
                let config = InputConfig {
                    stream: place,
                    producer_copy,
                    window: stream.window,
                    replaceable: self.graph.is_replaceable(stream.from),
                    kept_by_producer: self.graph.keeps_buffers(number, producer_copy),
                };
                (edge.id, stream.from, config)
            })
        })
    }

    /// The output streams of a copy, in order: the consumer's filter, and the edges to its copies.
    pub(crate) fn outputs(
        &self,
        filter: usize,
        copy: usize,
    ) -> impl Iterator<Item = (usize, OutputConfig, Vec<EdgeId>)> {
        self.graph.outputs(filter).map(move |number| {
            let stream = &self.graph.streams()[number];
            let edges = self.edges(number).filter(move |edge| edge.id.from_copy as usize == copy);
            let config = OutputConfig {
                schedule: stream.schedule,
                window: stream.window,
                consumers: self.graph.filters()[stream.to].hosts.len(),
                keep: self.graph.keeps_buffers(number, copy),
            };
            (stream.to, config, edges.map(|edge| edge.id).collect())
        })
    }
}

impl PlacedEdge {
    /// The host that dials, and the host that accepts. The producer's host dials, unless the
    /// consumer is on the coordinator, which does not listen.
    pub(crate) fn dialer_and_acceptor(&self) -> (u32, u32) {
        if self.to_host == 0 { (self.to_host, self.from_host) } else { (self.from_host, self.to_host) }
    }
}
