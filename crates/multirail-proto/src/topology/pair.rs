//! The outcome for a pair of addresses, with its text.

use crate::wire::Port;
use std::fmt;
use std::net::IpAddr;

/// Two addresses, and whether they are a rail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The port on the host that dials.
    pub local: Port,
    /// The port on the other host. It has no name if the host did not report the address, as behind
    /// a NAT.
    pub remote: Port,
    /// Why this is not a rail; `None` if it is one.
    pub skip: Option<Skip>,
}

impl Pair {
    /// Whether the pair is to be used.
    pub fn is_rail(&self) -> bool {
        self.skip.is_none()
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(&self.local, &self.remote))
    }
}

/// Why a pair of addresses is not a rail. Its `Display` text is one phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// One is IPv4, the other IPv6.
    DifferentFamily,
    /// The addresses are in different networks, and both ports have a rail without this pair.
    NoCommonNetwork,
    /// Both ports are already on rails.
    PortsServed {
        /// The rails, as `eth0 10.0.0.1 -> 10.0.0.2`.
        by: String,
    },
    /// The same two ports are already a rail with addresses of the other family.
    SameAsAnotherFamily {
        /// That rail.
        by: String,
    },
    /// A link-local address is the same on every link, so it does not identify a port.
    LinkLocal,
    /// A loopback, multicast or unspecified address, at which no other host answers.
    NotReachableAddress,
    /// This host has the remote address itself, as every host has that of a container bridge.
    OwnAddress,
    /// Both ends are one host: its own connection is the rail.
    SameHost {
        /// That connection.
        by: String,
    },
    /// The user's filter excludes it.
    FilteredOut,
    /// It was dialled and did not answer.
    Unreachable {
        /// The error of the attempt.
        error: String,
    },
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skip::DifferentFamily => write!(f, "one address is IPv4 and the other IPv6"),
            Skip::NoCommonNetwork => write!(f, "different networks, and both ports have a better partner"),
            Skip::PortsServed { by } => write!(f, "both ports already used by {by}"),
            Skip::SameAsAnotherFamily { by } => write!(f, "the same two ports as {by}"),
            Skip::LinkLocal => write!(f, "link-local address"),
            Skip::NotReachableAddress => write!(f, "not the address of another host"),
            Skip::OwnAddress => write!(f, "this host has the remote address itself"),
            Skip::SameHost { by } => write!(f, "both ends are the same host, connected by {by}"),
            Skip::FilteredOut => write!(f, "left out by the filter"),
            Skip::Unreachable { error } => write!(f, "unreachable: {error}"),
        }
    }
}

/// The interface of the host that dials, if all rails are on the same one. It has several with
/// several addresses of the other host.
pub fn only_interface(pairs: &[Pair]) -> Option<&str> {
    let mut names = pairs.iter().filter(|pair| pair.is_rail()).map(|pair| pair.local.name.as_str());
    let first = names.next().filter(|name| !name.is_empty())?;
    names.all(|name| name == first).then_some(first)
}

/// A pair that could not be dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// The address dialled from.
    pub local: IpAddr,
    /// The address dialled.
    pub remote: IpAddr,
    /// The error of the attempt, as text.
    pub error: String,
}

/// The text for a pair. It omits the remote port's name, which the other side chose and may contain
/// anything.
pub(super) fn name(local: &Port, remote: &Port) -> String {
    let space = if local.name.is_empty() { "" } else { " " };
    format!("{}{space}{} -> {}", local.name, local.address, remote.address)
}
