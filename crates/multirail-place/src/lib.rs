//! Placement: spreads the streams of unmodified programs over all Ethernet ports of a host (PMCME).
//!
//! A BPF program at the egress hook of the first port decides for each packet by which port it
//! leaves (`bpf/place.bpf.c`). This crate is its control plane:
//!
//! - [`up`] checks what is needed, changes the kernel's settings, loads the program, fills its maps
//!   and attaches it.
//! - [`run_agent`] follows the links of this host and the hellos of others, and tells the program
//!   which ports can be used.
//! - [`status`] reads the maps.
//! - [`down`] undoes everything. Each change is recorded in a file before it is made, so that it
//!   can be undone after a crash.
//!
//! All functions work on the network namespace of the thread that first polls them. They need root
//! or some capabilities ([`Error::Rights`]), and a tokio runtime with I/O enabled.

#![warn(unreachable_pub)]

mod agent;
mod attached;
mod down;
mod error;
mod kernel;
mod netns;
mod program;
mod saved_state;
mod status;
mod up;

pub use agent::{ExchangeCounts, RefusedFrames, agent_pid, run_agent};
pub use down::{Ended, down};
pub use error::{Error, Result};
pub use multirail_proto::placement::exchange::Counts;
pub use multirail_proto::placement::{Mac, Policy};
pub use netns::agent_log;
pub use program::streams::StreamStatus;
pub use saved_state::PeersFrom;
pub use status::{PeerStatus, PortStatus, Status, status};
pub use up::{DEFAULT_THRESHOLD_BYTES, Options, Started, up};
