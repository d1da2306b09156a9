//! A group of filters and the logical streams that join them.

use super::Schedule;
use serde::{Deserialize, Serialize};

/// Most filters of a group.
pub(crate) const MAX_FILTERS: usize = 256;
/// Most transparent copies of a filter.
pub const MAX_COPIES: usize = 256;
/// Most logical streams of a group.
pub const MAX_STREAMS: usize = 256;
/// Most edges of a group. A stream joins every copy of its producer to every copy of its consumer.
pub(crate) const MAX_EDGES: usize = 16 << 10;
/// Largest window of a stream: unacknowledged buffers from one copy to another.
pub(crate) const MAX_WINDOW: u32 = 1 << 16;

/// A filter and the hosts of its transparent copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterNode {
    /// Unique in its group.
    pub name: String,
    /// The host of each transparent copy, by number.
    pub hosts: Vec<u32>,
    /// The filter's output for a buffer depends on that buffer only, so another copy may produce
    /// it.
    pub stateless: bool,
}

/// A logical stream: one way, from all copies of a filter to all copies of another filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalStream {
    /// The producer's index in the list of filters.
    pub from: usize,
    /// The consumer's index in the list of filters.
    pub to: usize,
    /// How buffers are distributed over the consumer's copies.
    pub schedule: Schedule,
    /// Most buffers from one copy to another that the receiver has not started on.
    pub window: u32,
}

/// A valid group: its names are unique, its streams form no cycle, and it is within all limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Graph {
    filters: Vec<FilterNode>,
    streams: Vec<LogicalStream>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Unchecked {
    filters: Vec<FilterNode>,
    streams: Vec<LogicalStream>,
}

/// Why a group is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There is no filter.
    #[error("there is no filter; a pipeline needs at least one")]
    Empty,
    /// A limit is exceeded.
    #[error("{count} {what}, at most {most} are allowed")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The number that was given.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// Two filters have this name.
    #[error("two filters are called {0:?}; give each its own name")]
    SameName(String),
    /// A filter's name is empty.
    #[error("a filter has no name; give it one")]
    NoName,
    /// This filter has no copy.
    #[error("filter {0:?} has 0 copies; it needs at least 1")]
    NoCopies(String),
    /// A stream begins or ends at a filter that does not exist.
    #[error("a stream joins filter number {0}, which does not exist")]
    NoFilter(usize),
    /// The streams form a cycle through these filters.
    #[error("the streams form a cycle: {}; data must flow one way", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// A window is 0 or too large.
    #[error("the window of the stream {from} -> {to} is {window}; it must be 1 to {MAX_WINDOW}")]
    Window {
        /// The producer.
        from: String,
        /// The consumer.
        to: String,
        /// The window that was given, in buffers.
        window: u32,
    },
}

impl Graph {
    /// Checks a group.
    ///
    /// # Errors
    ///
    /// The first rule that the group breaks.
    pub fn new(filters: Vec<FilterNode>, streams: Vec<LogicalStream>) -> Result<Self, GraphError> {
        let limits = [("filters", filters.len(), MAX_FILTERS), ("streams", streams.len(), MAX_STREAMS)];
        for (what, count, most) in limits {
            if count > most {
                return Err(GraphError::TooMany { what, count, most });
            }
        }
        if filters.is_empty() {
            return Err(GraphError::Empty);
        }
        for (i, filter) in filters.iter().enumerate() {
            if filter.name.is_empty() {
                return Err(GraphError::NoName);
            }
            if filter.hosts.is_empty() {
                return Err(GraphError::NoCopies(filter.name.clone()));
            }
            if filter.hosts.len() > MAX_COPIES {
                return Err(GraphError::TooMany { what: "copies", count: filter.hosts.len(), most: MAX_COPIES });
            }
            if filters[..i].iter().any(|f| f.name == filter.name) {
                return Err(GraphError::SameName(filter.name.clone()));
            }
        }
        let mut edges = 0;
        for stream in &streams {
            let find = |i: usize| filters.get(i).ok_or(GraphError::NoFilter(i));
            let (from, to) = (find(stream.from)?, find(stream.to)?);
            if !(1..=MAX_WINDOW).contains(&stream.window) {
                let (from, to) = (from.name.clone(), to.name.clone());
                return Err(GraphError::Window { from, to, window: stream.window });
            }
            edges += from.hosts.len() * to.hosts.len();
        }
        if edges > MAX_EDGES {
            return Err(GraphError::TooMany { what: "edges between copies", count: edges, most: MAX_EDGES });
        }
        let graph = Self { filters, streams };
        match graph.cycle() {
            Some(cycle) => Err(GraphError::Cycle(cycle)),
            None => Ok(graph),
        }
    }

    /// The filters.
    pub fn filters(&self) -> &[FilterNode] {
        &self.filters
    }

    /// The streams.
    pub fn streams(&self) -> &[LogicalStream] {
        &self.streams
    }

    /// The indices of the streams into a filter.
    pub fn inputs(&self, filter: usize) -> impl Iterator<Item = usize> {
        self.streams.iter().enumerate().filter(move |(_, s)| s.to == filter).map(|(i, _)| i)
    }

    /// The indices of the streams out of a filter.
    pub fn outputs(&self, filter: usize) -> impl Iterator<Item = usize> {
        self.streams.iter().enumerate().filter(move |(_, s)| s.from == filter).map(|(i, _)| i)
    }

    /// Whether other copies of a filter can take over what a dead copy has not done.
    ///
    /// The filter must be stateless, and something must feed it, since it is the producer that
    /// sends the buffers again.
    pub fn is_replaceable(&self, filter: usize) -> bool {
        let node = &self.filters[filter];
        node.stateless && node.hosts.len() > 1 && self.inputs(filter).next().is_some()
    }

    /// Whether a copy of a stream's producer keeps buffers until they are done: the consumer is
    /// stateless, and not all of its copies are on the producer copy's own host.
    pub fn keeps_buffers(&self, stream: usize, producer_copy: usize) -> bool {
        let stream = &self.streams[stream];
        let (from, to) = (&self.filters[stream.from], &self.filters[stream.to]);
        to.stateless && to.hosts.iter().any(|h| *h != from.hosts[producer_copy])
    }

    /// The number of streams on the longest way through the graph.
    pub fn depth(&self) -> u32 {
        let mut depth = vec![0u32; self.filters.len()];
        // Without cycles, no way is longer than there are filters.
        for _ in &self.filters {
            for stream in &self.streams {
                depth[stream.to] = depth[stream.to].max(depth[stream.from] + 1);
            }
        }
        depth.into_iter().max().unwrap_or(0)
    }

    /// The names of the filters on a cycle, if there is one: what remains when filters without
    /// remaining inputs are removed repeatedly.
    fn cycle(&self) -> Option<Vec<String>> {
        let mut inputs: Vec<usize> = (0..self.filters.len()).map(|f| self.inputs(f).count()).collect();
        let mut free: Vec<usize> = (0..self.filters.len()).filter(|f| inputs[*f] == 0).collect();
        let mut taken = 0;
        while let Some(filter) = free.pop() {
            taken += 1;
            for stream in self.outputs(filter) {
                let to = self.streams[stream].to;
                inputs[to] -= 1;
                if inputs[to] == 0 {
                    free.push(to);
                }
            }
        }
        if taken == self.filters.len() {
            return None;
        }
        // Each remaining filter has an input from a remaining filter. Following these inputs
        // backwards must therefore lead to a filter for the second time.
        let mut way = vec![(0..inputs.len()).find(|f| inputs[*f] > 0)?];
        loop {
            let at = *way.last()?;
            let before = self.inputs(at).map(|s| self.streams[s].from).find(|f| inputs[*f] > 0)?;
            if let Some(start) = way.iter().position(|f| *f == before) {
                let mut names: Vec<String> = way[start..].iter().map(|f| self.filters[*f].name.clone()).collect();
                names.push(self.filters[before].name.clone());
                names.reverse();
                return Some(names);
            }
            way.push(before);
        }
    }
}

impl TryFrom<Unchecked> for Graph {
    type Error = GraphError;
    fn try_from(graph: Unchecked) -> Result<Self, GraphError> {
        Self::new(graph.filters, graph.streams)
    }
}

impl From<Graph> for Unchecked {
    fn from(graph: Graph) -> Self {
        Self { filters: graph.filters, streams: graph.streams }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(name: &str, copies: usize) -> FilterNode {
        FilterNode { name: name.to_owned(), hosts: vec![0; copies], stateless: false }
    }

    fn stream(from: usize, to: usize) -> LogicalStream {
        LogicalStream { from, to, schedule: Schedule::DemandDriven, window: 1 }
    }

    fn abc(streams: &[(usize, usize)]) -> Result<Graph, GraphError> {
        let filters = ["a", "b", "c"].map(|name| filter(name, 1)).to_vec();
        Graph::new(filters, streams.iter().map(|(from, to)| stream(*from, *to)).collect())
    }

    #[test]
    fn a_cycle_is_named() {
        assert!(abc(&[(0, 1), (1, 2), (0, 2)]).is_ok());
        let told = abc(&[(0, 1), (1, 2), (2, 1)]).unwrap_err().to_string();
        assert!(told.contains("b -> c -> b") || told.contains("c -> b -> c"), "{told}");
        assert_eq!(abc(&[(1, 1)]), Err(GraphError::Cycle(vec!["b".to_owned(), "b".to_owned()])));
    }

    #[test]
    fn only_stateless_filters_with_inputs_and_several_copies_are_replaceable() {
        let stateless = |copies| FilterNode { stateless: true, ..filter("b", copies) };
        for (node, streams, expected) in [
            (stateless(2), vec![stream(0, 1)], true),
            (stateless(1), vec![stream(0, 1)], false),
            (filter("b", 2), vec![stream(0, 1)], false),
            (stateless(2), vec![stream(1, 0)], false),
        ] {
            let graph = Graph::new(vec![filter("a", 1), node], streams).unwrap();
            assert_eq!((graph.is_replaceable(1), graph.depth()), (expected, 1));
        }
    }

    #[test]
    fn buffers_are_kept_where_another_host_has_a_stateless_copy() {
        let on = |hosts: &[u32]| FilterNode { stateless: true, hosts: hosts.to_vec(), ..filter("b", 1) };
        for (hosts, expected) in [(&[0, 0][..], false), (&[0, 1], true), (&[1], true)] {
            let graph = Graph::new(vec![filter("a", 1), on(hosts)], vec![stream(0, 1)]).unwrap();
            assert_eq!(graph.keeps_buffers(0, 0), expected, "{hosts:?}");
        }
    }

    #[test]
    fn invalid_graphs_are_reported() {
        assert_eq!(Graph::new(vec![], vec![]), Err(GraphError::Empty));
        assert_eq!(Graph::new(vec![filter("a", 0)], vec![]), Err(GraphError::NoCopies("a".to_owned())));
        assert_eq!(abc(&[(0, 3)]), Err(GraphError::NoFilter(3)));
        let same = vec![filter("a", 1), filter("a", 1)];
        assert_eq!(Graph::new(same, vec![]), Err(GraphError::SameName("a".to_owned())));
        let many = |copies| Graph::new(vec![filter("a", copies), filter("b", copies)], vec![stream(0, 1)]);
        assert!(many(128).is_ok());
        assert!(many(129).is_err());
        for (window, good) in [(0, false), (1, true), (MAX_WINDOW, true), (MAX_WINDOW + 1, false)] {
            let only = LogicalStream { window, ..stream(0, 1) };
            assert_eq!(Graph::new(vec![filter("a", 1), filter("b", 1)], vec![only]).is_ok(), good);
        }
    }
}
