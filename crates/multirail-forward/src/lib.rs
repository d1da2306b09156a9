#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

mod allow;
mod client;
mod handler;
mod relay;
pub mod run;
mod wire;

pub use allow::{AllowList, ParseAllowListError};
pub use client::{ForwardError, Forwarder};
pub use handler::ForwardHandler;
pub use relay::relay;

use multirail_net::protocol::ProtocolName;

/// The name of the protocol.
pub const FORWARD: ProtocolName = ProtocolName::new("forward");
