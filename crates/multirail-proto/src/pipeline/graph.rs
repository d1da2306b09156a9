//! A group of filters and the logical streams that join them.

use super::Schedule;
use serde::{Deserialize, Serialize};

/// Filters of a group.
pub const MAX_FILTERS: usize = 256;
/// Transparent copies of a filter.
pub const MAX_COPIES: usize = 256;
/// Streams of a group.
pub const MAX_STREAMS: usize = 256;
/// Edges of a group: of each stream, every copy of the one filter is joined to every copy of the other.
pub const MAX_EDGES: usize = 16 << 10;
/// Unacknowledged buffers from a copy to a copy.
pub const MAX_WINDOW: u32 = 1 << 16;

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Unique in its group.
    pub name: String,
    /// Where its transparent copies are, by the hosts' numbers: one entry a copy.
    pub hosts: Vec<u32>,
    /// What it does with a buffer depends on nothing but that buffer, so another copy may do it instead.
    pub stateless: bool,
}

/// A logical stream: one way, from all copies of a filter to all copies of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The producer's place in the list of filters.
    pub from: usize,
    /// The consumer's.
    pub to: usize,
    /// Which of its copies gets a buffer.
    pub schedule: Schedule,
    /// So many buffers may be on the way from a copy to a copy that the receiver has not started on.
    pub window: u32,
}

/// A checked group: the names differ, the streams make no circle, and everything has its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Graph {
    filters: Vec<Filter>,
    streams: Vec<Stream>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Unchecked {
    filters: Vec<Filter>,
    streams: Vec<Stream>,
}

/// Why a group cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// No filter at all.
    #[error("there is no filter; a pipeline needs at least one")]
    Empty,
    /// More than can be.
    #[error("{count} {what}, at most {most} are allowed")]
    TooMany {
        /// Of which things.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// Two of one name.
    #[error("two filters are called {0:?}; give each its own name")]
    SameName(String),
    /// A name that cannot be one.
    #[error("a filter without a name")]
    NoName,
    /// A filter that is nowhere.
    #[error("filter {0:?} has 0 copies; it needs at least 1")]
    NoCopies(String),
    /// A stream to or from nothing.
    #[error("a stream joins filter number {0}, and there is none")]
    NoFilter(usize),
    /// The streams go in a circle.
    #[error("the streams make a circle: {}; data must flow one way", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Nothing could ever be sent.
    #[error("the window of the stream {from} -> {to} is {window}; it must be 1 to {MAX_WINDOW}")]
    Window {
        /// The producer.
        from: String,
        /// The consumer.
        to: String,
        /// As given.
        window: u32,
    },
}

impl Graph {
    /// Checks.
    pub fn new(filters: Vec<Filter>, streams: Vec<Stream>) -> Result<Self, GraphError> {
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
        match graph.circle() {
            Some(circle) => Err(GraphError::Cycle(circle)),
            None => Ok(graph),
        }
    }

    /// The filters.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// The streams.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The streams into a filter, by number.
    pub fn inputs(&self, filter: usize) -> impl Iterator<Item = usize> {
        self.streams.iter().enumerate().filter(move |(_, s)| s.to == filter).map(|(i, _)| i)
    }

    /// The streams out of a filter, by number.
    pub fn outputs(&self, filter: usize) -> impl Iterator<Item = usize> {
        self.streams.iter().enumerate().filter(move |(_, s)| s.from == filter).map(|(i, _)| i)
    }

    /// The names along a circle, if there is one: what remains when filters with no input left are taken away, again and again.
    fn circle(&self) -> Option<Vec<String>> {
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
        // Whoever has an input left has one from somebody who has, too: backwards, the way comes to where it was.
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

    fn filter(name: &str, copies: usize) -> Filter {
        Filter { name: name.to_owned(), hosts: vec![0; copies], stateless: false }
    }

    fn stream(from: usize, to: usize) -> Stream {
        Stream { from, to, schedule: Schedule::DemandDriven, window: 1 }
    }

    fn abc(streams: &[(usize, usize)]) -> Result<Graph, GraphError> {
        let filters = ["a", "b", "c"].map(|name| filter(name, 1)).to_vec();
        Graph::new(filters, streams.iter().map(|(from, to)| stream(*from, *to)).collect())
    }

    #[test]
    fn a_circle_is_named() {
        assert!(abc(&[(0, 1), (1, 2), (0, 2)]).is_ok());
        let told = abc(&[(0, 1), (1, 2), (2, 1)]).unwrap_err().to_string();
        assert!(told.contains("b -> c -> b") || told.contains("c -> b -> c"), "{told}");
        assert_eq!(abc(&[(1, 1)]), Err(GraphError::Cycle(vec!["b".to_owned(), "b".to_owned()])));
    }

    #[test]
    fn what_cannot_be_is_told() {
        assert_eq!(Graph::new(vec![], vec![]), Err(GraphError::Empty));
        assert_eq!(Graph::new(vec![filter("a", 0)], vec![]), Err(GraphError::NoCopies("a".to_owned())));
        assert_eq!(abc(&[(0, 3)]), Err(GraphError::NoFilter(3)));
        let same = vec![filter("a", 1), filter("a", 1)];
        assert_eq!(Graph::new(same, vec![]), Err(GraphError::SameName("a".to_owned())));
        let many = |copies| Graph::new(vec![filter("a", copies), filter("b", copies)], vec![stream(0, 1)]);
        assert!(many(128).is_ok());
        assert!(many(129).is_err());
        for (window, good) in [(0, false), (1, true), (MAX_WINDOW, true), (MAX_WINDOW + 1, false)] {
            let only = Stream { window, ..stream(0, 1) };
            assert_eq!(Graph::new(vec![filter("a", 1), filter("b", 1)], vec![only]).is_ok(), good);
        }
    }
}
