//! One to many: a file, a tree or a buffer from one host to many hosts in several clusters.
//!
//! The *coordinator* (who calls [`broadcast_path`], and has the data: the root) invites every host's server into a *group*.
//! Hosts of a group join each other by sessions, one a pair and as many pairs as the [`Method`] wants, and each runs a
//! [`multirail_proto::multicast::Node`] that decides who sends which piece to whom. Pieces are verified by BLAKE3 before a
//! node hears of them, so that nobody passes on what is wrong.
//!
//! What goes wrong on one host is about that host: the others go on, and the [`Summary`] tells who has not the whole and why.

mod arrival;
pub mod attend;
mod broadcast;
mod coordinator;
pub mod discover;

#[cfg(test)]
mod hostile_tests;
pub mod hosts;
mod inbox;
mod link;
pub mod manifest;
mod manifest_scan;
mod member;
pub mod memory_store;
mod options;
mod progress;
mod queue;
mod receiver;
mod serve;
pub mod source_store;
mod store;
mod store_files;
#[cfg(test)]
mod store_testing;
mod summary;
mod transfer;
mod tree;
pub mod tree_store;
mod wire;

pub use broadcast::{BroadcastError, broadcast_path};
pub use manifest::{Entry, EntryKind, Layout, Manifest, ManifestError};
pub use memory_store::MemoryStore;
pub use multirail_proto::multicast::{Bandwidths, Method};
pub use options::{Host, Options};
pub use progress::{HostProgress, HostState, Progress, Snapshot};
pub use receiver::{Group, Receiver};
pub(crate) use serve::{Registry, serve_invite, serve_peer};
pub use source_store::{SourceOptions, SourceStore};
pub use store::{Store, StoreError, Written};
pub use summary::{HostSummary, Outcome, Summary};
pub use tree_store::{Destination, TreeOptions, TreeStore};
pub use wire::{InviteRequest, PeerHello};
