//! The runtime of one copy of a filter: its thread, its streams and its counters.

mod copy_runtime;
mod counters;
mod failure;
mod filter;
mod info;
mod io;
mod peer;
mod worker;

pub(crate) use copy_runtime::CopyRuntime;
pub(crate) use counters::Counters;
pub use counters::Counts;
pub use failure::Failure;
pub use filter::Filter;
pub use info::{CopyInfo, Received, UnitOfWork};
pub(crate) use info::{Next, QueuedUnit};
pub use io::Io;
pub(crate) use peer::{EdgePeer, PeerEdge};
pub(crate) use worker::{MakeFilter, Worker};
