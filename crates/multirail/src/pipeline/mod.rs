//! Pipelines of filters (the filter-stream model of DataCutter; "Impact of High Performance Sockets on Data Intensive
//! Applications", section 4.1) over multirail's transports.
//!
//! A [`Group`] has [`Filter`]s, each in one or more transparent copies, on this host and others, joined by logical streams. Started, it takes
//! units of work: each flows through all filters and ends with a marker on every edge. Each copy is a thread; an edge between
//! copies is a [`crate::transport::Connection`]. A consumer acknowledges a buffer when it starts on it, and no more than the stream's
//! window is on the way to it, so memory is bounded however slow the last filter is.
//!
//! What a host that dies had is given to other copies of a filter that is [stateless](Spec::stateless); else the unit of work fails.

mod built_in;
mod coordinator;
mod copy;
mod counters;
pub mod describe;
mod edges;
mod error;
mod filter;
mod group;
mod host;
mod io;
mod program;
mod registry;
mod rehearsal;
mod remote;
mod site;
mod wire;

pub use coordinator::{CopyStatus, Running};
pub use counters::Counts;
pub use error::PipelineError;
pub use filter::{Failure, Filter, Place, StreamOptions, Unit};
pub use group::{DEFAULT_CHUNK_BYTES, Group, LOCAL, Spec};
pub use host::EdgeId;
pub use io::{Io, Received};
pub use multirail_proto::pipeline::{Schedule, chunk};
pub use registry::Filters;
pub use rehearsal::Rehearsal;
pub use remote::Registry;
pub(crate) use remote::serve;

#[cfg(test)]
mod tests;
