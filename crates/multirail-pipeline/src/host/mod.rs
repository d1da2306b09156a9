//! One host's part of a group: its copies, their edges, and the server that runs them for others.

mod handler;
mod layout;
mod messages;
mod prepared;
mod registry;
mod running;
#[cfg(test)]
mod sequence_tests;
mod service;

pub use handler::PipelineHandler;
pub(crate) use layout::{HostEntry, Layout, RunId};
pub(crate) use messages::{FilterKind, FromHost, ToHost, receive, send};
pub use messages::{PIPELINE, PIPELINE_EDGE};
pub(crate) use prepared::PreparedHost;
#[doc(hidden)]
pub use registry::prepare_any;
pub(crate) use running::{OnEnded, RunningHost};
