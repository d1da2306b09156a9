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
//! [`Clusters`] makes clusters of hosts: each with a router, which has a bridge and a port to each host, and a rail between
//! each two routers. Inside a cluster nothing is shaped; a router cuts packets to the MTU before it queues them.
//!
//! [`Ports`] makes hosts with several ports each: port k of every host leads to switch k, and switches are separate or joined
//! in a row. Only the first port has an address, or all have one.
//!
//! A rail with a delay, a jitter or a loss is a WAN. Where the kernel has netem, that makes it, at the hosts' ports. Where
//! not, the hosts' ports are TAP devices, and a process of the lab carries packets from one to the other: the relay, one
//! for all rails. It ends with the lab, and with the process that made a lab that is not kept.
//!
//! # Limits
//!
//! - Without a delay the round trip of an idle rail is tens of microseconds.
//! - A relayed rail's queue is not the host's: what a program sends too much is lost on the way, and it is not held back.
//!   Losses are independent, and repeat with what is sent. Packets never change places, whatever the jitter.
//! - What netem is told is tested, but was not run on a kernel that has it. There jitter may reorder packets.
//! - Rates count Ethernet frames without preamble and gap: TCP gets 1448 of 1514 bytes, 95.6 %. One packet passes an
//!   idle rail free. `cargo run -p multirail-lab --example burst` shows both against a wire.
//! - Every packet of a shaped rail is handled by itself: at some 100 Mbit/s and above the CPU may be what is measured,
//!   and BBR, which paces by a timer, stays below the rate from there on.
//! - `UDP_SEGMENT` (as QUIC libraries use it) still makes packets that HTB passes as one. TCP and MPTCP do not.
//! - Hosts share the machine's clock, memory, files and processes. Only the network is their own.
//!
//! This crate knows nothing of multirail, so that anything can be measured on the networks it makes.
//! It needs root and the `ip` and `tc` commands (Debian and Ubuntu: package `iproute2`).

mod cables;
mod clusters;
mod error;
mod kernel;
mod lab;
mod lan;
mod lifecycle;
mod link;
mod links;
mod mesh;
mod names;
mod netns;
mod plan;
mod port;
mod ports;
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

pub use cables::{Carried, PortStatus};
pub use clusters::{Cluster, Clusters, LinkSetting};
pub use error::{Error, Result};
pub use lab::{Lab, LinkState, Removed, Summary};
pub use links::LinkDirection;
pub use ports::Ports;
pub use process::be_on_time;
pub use rate::Rate;
pub use shaping::{QUEUE_MAX_BYTES, QUEUE_MIN_PACKETS, QUEUE_TIME_MS, Shaping, WAN_QUEUE_MAX_BYTES};
pub use shared::WanCounters;
pub use topology::{Host, Rail, Topology};
pub use wan::{Delay, Loss, Queue, Wan};
