//! A group: the coordinator that invites hosts, and the part of each host in it.

mod broadcast;
mod coordinator;
mod driver;
mod error;
mod fetch;
#[cfg(test)]
mod hostile_tests;
mod inbox;
mod joining;
mod measuring;
mod options;
mod progress;
mod receiver;
#[cfg(test)]
mod sequence_tests;
pub(crate) mod serve;
mod summary;
mod ticket;

pub use broadcast::broadcast_path;
pub use error::BroadcastError;
pub use fetch::{FetchError, FetchOptions, Fetched, fetch};
pub use joining::Joining;
pub use options::{BroadcastHost, Options};
pub use progress::{HostProgress, HostState, Progress, Snapshot};
pub use receiver::{Group, Receiver};
pub use summary::{HostSummary, Outcome, Summary};
pub use ticket::{Ticket, TicketError};
