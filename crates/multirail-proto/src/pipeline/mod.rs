//! Filters joined by streams (the filter-stream model of DataCutter; "Impact of High Performance Sockets on Data Intensive
//! Applications", section 4.1): which graphs there can be ([`graph`]), which copy of a filter gets a buffer ([`dealer`]), what happens to
//! the buffers of a host that died ([`keep`]), and how large the chunks should be ([`chunk`]).

pub mod chunk;
pub mod dealer;
pub mod graph;
pub mod keep;

pub use dealer::{Dealer, Schedule};
pub use graph::{Filter, Graph, GraphError, Stream};
