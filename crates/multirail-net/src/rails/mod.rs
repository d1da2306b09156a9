//! This host's ports: which of its network interfaces may carry rails, and why the others may not.
//!
//! All information comes from sockets of the calling thread's network namespace (netlink and
//! ethtool), none from `/sys`: within a mount namespace, `/sys` may show the interfaces of another
//! network namespace.

mod interface;
mod netlink;
mod select;
pub mod speed;
#[cfg(test)]
mod tests;

pub use multirail_proto::topology::{Pair, ParseFilterError, RailFilter, Skip, only_interface};
pub use multirail_proto::wire::Port;
pub use select::{LeftOut, LocalPorts, PortSkip, local_ports};
