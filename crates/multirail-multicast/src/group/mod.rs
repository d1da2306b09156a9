//! A group: the coordinator that invites hosts, and the part of each host in it.

mod broadcast;
mod coordinator;
mod driver;
mod error;
#[cfg(test)]
mod hostile_tests;
mod inbox;
mod measuring;
mod options;
mod progress;
mod receiver;
#[cfg(test)]
mod sequence_tests;
pub(crate) mod serve;
mod summary;

pub use broadcast::broadcast_path;
pub use error::BroadcastError;
pub use options::{BroadcastHost, Options};
pub use progress::{HostProgress, HostState, Progress, Snapshot};
pub use receiver::{Group, Receiver};
pub use summary::{HostSummary, Outcome, Summary};
