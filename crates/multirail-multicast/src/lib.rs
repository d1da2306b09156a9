#![doc = include_str!("../README.md")]
//!
//! # Words
//!
//! The *root* calls [`broadcast_path`]. Its *coordinator* invites the server of every host into a
//! *group*. The members of a group make links with each other: one session for a pair, and as many
//! pairs as the [`Method`] needs. On every member, a state machine
//! ([`multirail_proto::multicast::member::Member`]) decides who sends which piece to whom, and this
//! crate carries its decisions out. A piece is verified by BLAKE3 before the machine learns of it,
//! so that no host forwards wrong data.
//!
//! A failure on one host concerns that host. The others go on, and the [`Summary`] states which
//! hosts are incomplete, and why.

#![warn(unreachable_pub)]

pub mod attend;
mod discovery;
mod group;
mod handler;
mod link;
mod pass;
mod request;
mod store;
mod wire;

pub use discovery::hosts;
pub use discovery::measure as discover;
pub use group::{
    BroadcastError, BroadcastHost, FetchError, FetchOptions, Fetched, Group, HostProgress, HostState, HostSummary,
    Joining, Options, Outcome, Progress, Receiver, Snapshot, Summary, Ticket, TicketError, broadcast_path, fetch,
};
pub use handler::MulticastHandler;
pub use multirail_proto::multicast::{Bandwidths, Method};
pub use request::MULTICAST;
// For the fuzz target `manifest`.
#[doc(hidden)]
pub use store::Manifest;
// For the fuzz target `links`.
#[doc(hidden)]
pub use wire::read_any;
