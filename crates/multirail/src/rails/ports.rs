//! This host's ports: which of its network interfaces may carry rails, and why the others may not.
//!
//! Everything comes from the sockets of the calling thread's network namespace (netlink and ethtool), nothing from
//! `/sys`: a mount namespace may show there the interfaces of another network namespace.

mod netlink;
pub(crate) mod speed;

use multirail_proto::topology::RailFilter;
use multirail_proto::wire::Port;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// This host's ports that may carry rails, and the ones left out and why.
///
/// Takes the thread's network namespace of its first poll. Needs a tokio runtime with I/O enabled, of any flavour; spawns
/// nothing. Takes a few hundred microseconds and holds no state: call it again to see changes.
///
/// # Errors
/// Those of the netlink socket, for example where a sandbox forbids it.
pub async fn local_ports() -> io::Result<LocalPorts> {
    let (links, addresses) = netlink::dump().await?;
    // Not on another thread, although ioctls block for a moment: that may be in another namespace.
    let speeds = speed::Speeds::new();
    Ok(sort_out(&links, &addresses, |name| speeds.mbit_s(name)))
}

/// What [`local_ports`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalPorts {
    /// One entry per usable address, by interface index; IPv4 before IPv6.
    pub ports: Vec<Port>,
    /// The rest.
    pub left_out: Vec<LeftOut>,
}

impl LocalPorts {
    /// Adds what was left out only by default: the tunnels that `filter` asks for by name, and the address `connected` of
    /// a connection that works, whatever it is on, so that its port has a name and an index like the others.
    pub fn including(self, filter: &RailFilter, connected: Option<IpAddr>) -> LocalPorts {
        let connected = connected.map(|address| address.to_canonical());
        let mut found = LocalPorts { ports: self.ports, left_out: Vec::new() };
        for left_out in self.left_out {
            let named = matches!(left_out.reason, PortSkip::Tunnel { .. }) && filter.names(&left_out.name);
            let works = left_out.address.is_some() && left_out.address == connected;
            match left_out.port {
                Some(port) if named || works => found.ports.push(port),
                port => found.left_out.push(LeftOut { port, ..left_out }),
            }
        }
        found.ports.sort_by_key(|p| p.index);
        found
    }
}

/// An interface or an address that carries no rail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The interface.
    pub name: String,
    /// Its address, or one of them; `None` if it has none.
    pub address: Option<IpAddr>,
    /// Why.
    pub reason: PortSkip,
    /// The port as [`LocalPorts::including`] would use it; `None` if there is no address to use.
    pub port: Option<Port>,
}

/// Why an interface or an address carries no rail. Displays as one phrase for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortSkip {
    /// It leads nowhere else.
    Loopback,
    /// Switched off.
    Down,
    /// No cable, or nobody at the other end.
    NoCarrier,
    /// It leads only to containers or virtual machines of this host, or nowhere.
    Virtual {
        /// What the kernel calls it: `bridge`, `dummy`, `veth`.
        kind: String,
    },
    /// Part of another interface, which has the addresses that count.
    PartOf {
        /// That interface.
        controller: String,
    },
    /// Its packets leave through another port.
    Tunnel {
        /// What the kernel calls it: `wireguard`, `vxlan`, `tun`.
        kind: String,
    },
    /// It has no address.
    NoAddress,
    /// The same on every link, so it names no port.
    LinkLocal,
    /// The kernel still checks that nobody else has this address, or somebody has.
    Tentative,
    /// The address is about to go away: not for new connections.
    Deprecated,
}

impl fmt::Display for PortSkip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortSkip::Loopback => write!(f, "loopback"),
            PortSkip::Down => write!(f, "switched off"),
            PortSkip::NoCarrier => write!(f, "no carrier"),
            PortSkip::Virtual { kind } => write!(f, "virtual ({kind}), leads to no other host"),
            PortSkip::PartOf { controller } => write!(f, "part of {controller}"),
            PortSkip::Tunnel { kind } => write!(f, "a tunnel ({kind}), name it in --rails to use it"),
            PortSkip::NoAddress => write!(f, "no address"),
            PortSkip::LinkLocal => write!(f, "link-local address"),
            PortSkip::Tentative => write!(f, "address not yet confirmed to be unique"),
            PortSkip::Deprecated => write!(f, "deprecated address"),
        }
    }
}

/// An interface, as the kernel tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Link {
    index: u32,
    name: String,
    /// What made it, if software did.
    kind: Option<String>,
    loopback: bool,
    up: bool,
    carrier: bool,
    ethernet: bool,
    controller: Option<u32>,
}

/// An address, as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address {
    index: u32,
    address: IpAddr,
    prefix_bits: u8,
    tentative: bool,
    deprecated: bool,
}

/// Interfaces of software that never lead to another host. A bridge may: see [`sort_out`].
const VIRTUAL_KINDS: [&str; 7] = ["dummy", "ifb", "nlmon", "vrf", "can", "vcan", "vxcan"];

/// Interfaces whose packets are wrapped and sent through another one. `tun` is one unless it is an Ethernet (a tap): that is
/// the only port of a container without privileges.
const TUNNEL_KINDS: [&str; 18] = [
    "wireguard",
    "vxlan",
    "geneve",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "erspan",
    "ip6erspan",
    "ipip",
    "ip6tnl",
    "sit",
    "vti",
    "vti6",
    "xfrm",
    "gtp",
    "bareudp",
    "ppp",
];

/// How the software of containers and virtual machines names this host's end of its networks. Counts only for interfaces
/// that software made.
const CONTAINER_NAMES: [&str; 10] =
    ["docker", "podman", "cni", "flannel", "cali", "cilium", "lxc", "virbr", "kube", "weave"];

fn sort_out(links: &[Link], addresses: &[Address], speed_mbit_s: impl Fn(&str) -> u32) -> LocalPorts {
    let by_index: HashMap<u32, &Link> = links.iter().map(|l| (l.index, l)).collect();
    // A bridge with a cable in it is how a host of virtual machines is reached itself.
    let leads_out = |bridge: &Link| links.iter().any(|l| l.controller == Some(bridge.index) && is_hardware(l));
    let mut found = LocalPorts::default();
    let mut links: Vec<&Link> = links.iter().collect();
    links.sort_by_key(|l| l.index);
    for link in links {
        let controller = link.controller.and_then(|c| by_index.get(&c).copied());
        let link_skip = skip_link(link, controller, leads_out(link));
        let mut own: Vec<&Address> = addresses.iter().filter(|a| a.index == link.index).collect();
        own.sort_by_key(|a| a.address.is_ipv6());
        if own.is_empty() {
            let reason = link_skip.clone().unwrap_or(PortSkip::NoAddress);
            found.left_out.push(LeftOut { name: link.name.clone(), address: None, reason, port: None });
        }
        // Asked only where it may matter, and once per port.
        let ask = is_hardware(link) && link_skip.is_none();
        let speed_mbit_s = if ask && !own.is_empty() { speed_mbit_s(&link.name) } else { 0 };
        for address in own {
            let port = Port {
                name: link.name.clone(),
                index: link.index,
                address: address.address,
                prefix_bits: address.prefix_bits,
                speed_mbit_s,
            };
            // That an address may not be used says more than that its tunnel need not.
            let reason = match &link_skip {
                Some(PortSkip::Tunnel { .. }) => skip_address(address).or(link_skip.clone()),
                _ => link_skip.clone().or(skip_address(address)),
            };
            match reason {
                None => found.ports.push(port),
                Some(reason) => {
                    let (name, address) = (link.name.clone(), Some(address.address));
                    found.left_out.push(LeftOut { name, address, reason, port: Some(port) });
                }
            }
        }
    }
    found
}

fn skip_link(link: &Link, controller: Option<&Link>, leads_out: bool) -> Option<PortSkip> {
    let kind = link.kind.as_deref().unwrap_or("");
    if link.loopback {
        return Some(PortSkip::Loopback);
    }
    // A routing domain (VRF) leaves its ports their addresses.
    if let Some(controller) = controller.filter(|c| c.kind.as_deref() != Some("vrf")) {
        return Some(PortSkip::PartOf { controller: controller.name.clone() });
    }
    let container = !kind.is_empty() && CONTAINER_NAMES.iter().any(|n| link.name.starts_with(n));
    let bridge = kind == "bridge" && !leads_out;
    if container || bridge || VIRTUAL_KINDS.contains(&kind) {
        return Some(PortSkip::Virtual { kind: kind.to_owned() });
    }
    if !link.up {
        return Some(PortSkip::Down);
    }
    if !link.carrier {
        return Some(PortSkip::NoCarrier);
    }
    if TUNNEL_KINDS.contains(&kind) || (kind == "tun" && !link.ethernet) {
        return Some(PortSkip::Tunnel { kind: kind.to_owned() });
    }
    None
}

fn skip_address(address: &Address) -> Option<PortSkip> {
    let link_local = match address.address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if address.address.is_loopback() {
        Some(PortSkip::Loopback)
    } else if link_local {
        Some(PortSkip::LinkLocal)
    } else if address.tentative {
        Some(PortSkip::Tentative)
    } else if address.deprecated {
        Some(PortSkip::Deprecated)
    } else {
        None
    }
}

/// Whether there is a cable behind an interface: then what it says of its speed means something. A veth says 10000.
fn is_hardware(link: &Link) -> bool {
    matches!(link.kind.as_deref(), None | Some("bond" | "team" | "vlan" | "ipoib" | "dsa" | "wwan"))
}

#[cfg(test)]
mod tests;
