//! Filters joined by logical streams: the filter-stream model of DataCutter ("Impact of High
//! Performance Sockets on Data Intensive Applications", section 4.1).
//!
//! - [`graph`]: which filters, streams and transparent copies a group can have.
//! - `scheduler`: which copy of a filter gets a buffer.
//! - [`copy`]: what a copy sends when: acknowledgements, replays of a dead copy's buffers, and the
//!   end of a unit of work.
//! - `replay`: what a producer keeps for replays, and what a consumer remembers.
//! - [`progress`]: when a group has started, and when a unit of work has ended or failed.
//! - [`watchdog`]: when a program that is a filter counts as stuck.
//! - [`stall`]: when a unit of work counts as stalled, and which copies cause it.
//! - [`header`]: the header of a message on an edge.
//! - [`transport`]: what can carry an edge, and which choice two hosts make.
//! - [`chunk`]: how large the chunks of the data should be.

pub mod chunk;
pub mod copy;
pub mod graph;
pub mod header;
pub mod progress;
pub(crate) mod replay;
pub(crate) mod scheduler;
pub mod stall;
pub mod transport;
pub mod watchdog;

pub use graph::{FilterNode, Graph, GraphError, LogicalStream};
pub use scheduler::Schedule;
pub use transport::Transport;
