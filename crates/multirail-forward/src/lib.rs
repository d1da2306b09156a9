#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

mod allow;
pub mod cgroup;
mod client;
mod handler;
mod loopback;
mod peers;
mod relay;
pub mod run;
pub mod socks;
mod via;
mod wire;

pub use allow::{AllowList, ParseAllowListError};
pub use client::{ForwardError, Forwarder};
pub use handler::ForwardHandler;
pub use peers::Peers;
pub use relay::relay;
pub use via::Via;

use multirail_net::protocol::ProtocolName;

/// The name of the protocol.
pub const FORWARD: ProtocolName = ProtocolName::new("forward");
