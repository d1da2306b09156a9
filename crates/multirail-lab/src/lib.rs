//! Test networks on one Linux machine: hosts are network namespaces, rails are veth pairs shaped to a rate.
//!
//! ```no_run
//! use multirail_lab::{Lab, Topology};
//!
//! let topology = Topology::simple(&["a", "b"], &["100mbit", "25mbit"])?;
//! let lab = Lab::temporary(&topology)?; // taken down when dropped, also by a panic
//! let output = lab.command("a", "ip")?.args(["address", "show"]).output()?;
//! lab.set_rate(1, Some("10mbit".parse()?))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a rail is made of: a veth pair straight between two hosts, or, for three hosts and more, one veth pair from each
//! host to a bridge in a switch namespace of the rail's own. A rail with a rate is shaped where packets leave: at the
//! host's port, and at the switch's port towards the host.
//!
//! # Limits
//!
//! - A rail has a rate and a bounded queue, but no delay and no loss of its own: the round trip of an idle rail is tens of
//!   microseconds.
//! - Rates count Ethernet frames without preamble and gap: TCP gets 1448 of 1514 bytes, 95.6 %. One packet passes an
//!   idle rail free. `cargo run -p multirail-lab --example burst` shows both against a wire.
//! - Every packet of a shaped rail is handled by itself: at some 100 Mbit/s and above the CPU may be what is measured,
//!   and BBR, which paces by a timer, stays below the rate from there on.
//! - `UDP_SEGMENT` (as QUIC libraries use it) still makes packets that HTB passes as one. TCP and MPTCP do not.
//! - Hosts share the machine's clock, memory, files and processes. Only the network is their own.
//!
//! This crate knows nothing of multirail, so that anything can be measured on the networks it makes.
//! It needs root and the `ip` and `tc` commands (Debian and Ubuntu: package `iproute2`).

mod error;
mod kernel;
mod lab;
mod lifecycle;
mod link;
mod names;
mod netns;
mod plan;
mod port;
mod process;
mod rate;
mod relay;
mod segment;
mod shaping;
mod shared;
mod state;
mod store;
mod tap;
mod topology;
mod wan;

pub use error::{Error, Result};
pub use lab::{Lab, LinkState, Removed, Summary};
pub use rate::Rate;
pub use shaping::{QUEUE_MAX_BYTES, QUEUE_MIN_PACKETS, QUEUE_TIME_MS, Shaping, WAN_QUEUE_MAX_BYTES};
pub use shared::WanCounters;
pub use topology::{Host, Rail, Topology};
pub use wan::{Delay, Loss, Queue, Wan};
