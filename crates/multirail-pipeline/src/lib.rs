#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

mod coordinator;
pub mod edge;
mod error;
mod filters;
mod graph;
mod host;
mod program;
mod rehearsal;
mod runtime;

pub use coordinator::{CopyStatus, RunningGroup};
pub use error::PipelineError;
pub use filters::Filters;
pub use graph::describe;
pub use graph::{DEFAULT_CHUNK_BYTES, FilterSpec, Group, LOCAL, StreamOptions};
pub use host::{PIPELINE, PIPELINE_EDGE, PipelineHandler};
pub use multirail_proto::pipeline::{Schedule, chunk};
pub use rehearsal::Rehearsal;
// For the fuzz target `prepare`.
#[doc(hidden)]
pub use host::prepare_any;
pub use runtime::{CopyInfo, Counts, Failure, Filter, Io, Received, UnitOfWork};

#[cfg(test)]
mod tests;
