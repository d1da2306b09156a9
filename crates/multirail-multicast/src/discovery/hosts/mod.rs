//! Lists of hosts and of their clusters, as people, Slurm and Kubernetes write them.
//!
//! All of this is parsing: text and the environment are arguments. The host that runs the broadcast
//! is the root. It may be in the list by any of its names or as [`SELF`], which gives its cluster;
//! it does not receive.

mod bandwidths;
mod clusters;
pub use multirail_proto::multicast::grouping;
pub mod kubernetes;
mod party;
pub mod slurm;

pub use bandwidths::{BandwidthsError, parse_bandwidths};
pub use clusters::{ClusterError, Clustering, Subnet};
pub use party::Party;

use multirail_net::DEFAULT_PORT;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// The most hosts of a broadcast, including the root.
pub const MAX_HOSTS: usize = multirail_proto::multicast::members::MAX_MEMBERS;
/// In a list of hosts: the host that runs the command.
pub const SELF: &str = "self";
/// The longest name of a host or cluster, which is the limit of the domain name system.
const MAX_NAME_BYTES: usize = 253;

/// A host in the user's notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name or address without brackets; names in lower case.
    pub name: String,
    /// The port, if given.
    pub port: Option<u16>,
    /// The cluster, if given.
    pub cluster: Option<String>,
    /// Where the entry is in the input.
    pub place: EntryPosition,
}

/// A position in the input, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPosition {
    /// A line of a file.
    Line(usize),
    /// An item of a comma-separated list.
    Item(usize),
}

impl fmt::Display for EntryPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryPosition::Line(line) => write!(f, "line {line}"),
            EntryPosition::Item(item) => write!(f, "item {item}"),
        }
    }
}

/// Why a list of hosts cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// The list is empty.
    #[error("the list has no hosts; write ADDRESS[:PORT] [cluster=NAME] on each line, or ADDRESS,ADDRESS,...")]
    NoHosts,
    /// The list has no host but the root.
    #[error(
        "this host is the only one in the list; add the receivers (several servers on one machine: 127.0.0.1:PORT)"
    )]
    OnlySelf,
    /// The root occurs twice.
    #[error(
        "{place}: {host} is this host, as in {first}; remove one of them (several servers on one machine: 127.0.0.1:PORT)"
    )]
    TwiceSelf {
        /// The second occurrence.
        place: EntryPosition,
        /// The first occurrence.
        first: EntryPosition,
        /// The host at the second occurrence.
        host: String,
    },
    /// More than [`MAX_HOSTS`].
    #[error("{0} hosts; a broadcast has at most {MAX_HOSTS}: send to fewer, and from one of those to the rest")]
    TooMany(usize),
    /// The text is not an address.
    #[error("{place}: {text:?} is not a host: {why}; write ADDRESS, ADDRESS:PORT or [IPV6]:PORT")]
    Address {
        /// The position.
        place: EntryPosition,
        /// The text.
        text: String,
        /// What is wrong.
        why: &'static str,
    },
    /// An unknown attribute follows the address.
    #[error("{place}: {text:?} is unknown; only one cluster=NAME may follow the address")]
    Attribute {
        /// The position.
        place: EntryPosition,
        /// The text.
        text: String,
    },
    /// A host occurs twice.
    #[error("{place}: {host} is in {first} already; remove one of them")]
    Duplicate {
        /// The second occurrence.
        place: EntryPosition,
        /// The first occurrence.
        first: EntryPosition,
        /// The host.
        host: String,
    },
}

impl Entry {
    /// An entry with neither port nor cluster.
    pub fn named(name: &str, place: EntryPosition) -> Self {
        Self { name: name.to_ascii_lowercase(), port: None, cluster: None, place }
    }

    /// The address to dial: `name:port`, or `[address]:port`.
    pub fn address(&self) -> String {
        self.address_with(self.port.unwrap_or(DEFAULT_PORT))
    }

    /// As [`Entry::address`], with another port.
    pub fn address_with(&self, port: u16) -> String {
        if self.name.contains(':') { format!("[{}]:{port}", self.name) } else { format!("{}:{port}", self.name) }
    }

    /// The text to show: with the port if one was given.
    pub fn shown(&self) -> String {
        match self.port {
            Some(port) => self.address_with(port),
            None => self.name.clone(),
        }
    }

    /// Whether the entry is this host: [`SELF`], one of its `names`, or one of its `addresses`.
    /// Loopback addresses do not count, since they are used to try several servers on one machine.
    pub fn is_self(&self, names: &[String], addresses: &[IpAddr]) -> bool {
        match self.name.parse::<IpAddr>() {
            Ok(address) => !address.is_loopback() && addresses.contains(&address.to_canonical()),
            Err(_) => self.name == SELF || names.iter().any(|n| n.eq_ignore_ascii_case(&self.name)),
        }
    }
}

/// Parses the lines of a hosts file: `ADDRESS[:PORT] [cluster=NAME]`, `#` before a comment.
///
/// # Errors
///
/// [`HostsError`] names the line that is wrong.
pub fn parse_file(text: &str) -> Result<Vec<Entry>, HostsError> {
    let lines = text.lines().enumerate().map(|(number, line)| {
        let line = line.split('#').next().unwrap_or_default();
        (EntryPosition::Line(number + 1), line)
    });
    collect(lines)
}

/// Parses a comma-separated list, each item as a line of a file.
///
/// # Errors
///
/// [`HostsError`] names the item that is wrong.
pub fn parse_list(text: &str) -> Result<Vec<Entry>, HostsError> {
    collect(text.split(',').enumerate().map(|(number, item)| (EntryPosition::Item(number + 1), item)))
}

fn collect<'a>(items: impl Iterator<Item = (EntryPosition, &'a str)>) -> Result<Vec<Entry>, HostsError> {
    let mut entries = Vec::new();
    for (place, item) in items {
        let mut words = item.split_whitespace();
        if let Some(address) = words.next() {
            let (name, port) = parse_address(address).map_err(|why| bad(place, address, why))?;
            entries.push(Entry { name, port, cluster: parse_attributes(words, place)?, place });
        } else if matches!(place, EntryPosition::Item(_)) && !item.is_empty() {
            return Err(bad(place, item, "it is empty"));
        }
    }
    check(&entries)?;
    Ok(entries)
}

/// Checks that a list is not empty, not too long, and without duplicates.
///
/// # Errors
///
/// [`HostsError`] names the duplicate, or the limit.
pub(crate) fn check(entries: &[Entry]) -> Result<(), HostsError> {
    match entries.len() {
        0 => return Err(HostsError::NoHosts),
        count if count > MAX_HOSTS => return Err(HostsError::TooMany(count)),
        _ => {}
    }
    let mut seen: HashMap<String, EntryPosition> = HashMap::with_capacity(entries.len());
    for entry in entries {
        if let Some(first) = seen.insert(entry.address(), entry.place) {
            return Err(HostsError::Duplicate { place: entry.place, first, host: entry.shown() });
        }
    }
    Ok(())
}

fn bad(place: EntryPosition, text: &str, why: &'static str) -> HostsError {
    HostsError::Address { place, text: text.to_owned(), why }
}

fn parse_attributes<'a>(
    words: impl Iterator<Item = &'a str>,
    place: EntryPosition,
) -> Result<Option<String>, HostsError> {
    let mut cluster = None;
    for word in words {
        match word.strip_prefix("cluster=") {
            Some(name) if cluster.is_none() && is_cluster_name(name) => cluster = Some(name.to_owned()),
            _ => return Err(HostsError::Attribute { place, text: word.to_owned() }),
        }
    }
    Ok(cluster)
}

/// Whether a cluster name is allowed: letters, digits, `_`, `.` and `-` (not first).
pub(super) fn is_cluster_name(name: &str) -> bool {
    is_name(name)
}

/// Names appear on command lines (`ssh`) and in addresses, so they must be plain.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with('-')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// The host and port of `ADDRESS`, `ADDRESS:PORT`, `[IPV6]`, `[IPV6]:PORT` or a bare IPv6 address.
///
/// # Errors
///
/// What is wrong with the text.
pub fn parse_address(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let v6 = |text: &str| match text.parse::<std::net::Ipv6Addr>() {
        // One address must have one text.
        Ok(address) => Ok(address.to_canonical().to_string()),
        Err(_) => Err("the text in brackets must be an IPv6 address"),
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, behind) = rest.split_once(']').ok_or("a bracket is not closed")?;
        let name = v6(inside)?;
        return match behind.strip_prefix(':') {
            Some(port) => Ok((name, Some(parse_port(port)?))),
            None if behind.is_empty() => Ok((name, None)),
            None => Err("only :PORT may follow the bracket"),
        };
    }
    let (name, port) = match text.split_once(':') {
        None => (text, None),
        Some((_, rest)) if rest.contains(':') => {
            return Ok((v6(text).map_err(|_| "with several colons it must be an IPv6 address")?, None));
        }
        Some((name, port)) => (name, Some(parse_port(port)?)),
    };
    match name {
        "" => Err("the name is missing"),
        _ if !is_name(name) => Err("a name has letters, digits, '.', '-' and '_', and does not begin with '-'"),
        _ => Ok((name.to_ascii_lowercase(), port)),
    }
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    match text.parse() {
        Ok(port) if port > 0 && !text.starts_with('+') => Ok(port),
        _ => Err("a port is a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests;
