//! Selects the ports of this host that may carry rails.

use super::interface::{Address, Link};
use super::netlink;
use super::speed;
use multirail_proto::topology::RailFilter;
use multirail_proto::wire::Port;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// Lists this host's ports that may carry rails, and those left out, with reasons.
///
/// Uses the network namespace of the thread that first polls it. Needs a tokio runtime of any
/// flavour with I/O enabled; spawns no task. Takes a few hundred microseconds and keeps no state:
/// call it again to see changes.
///
/// # Errors
///
/// Those of the netlink socket, for example where a sandbox forbids it.
///
/// # Cancel safety
///
/// Cancel-safe: it changes nothing.
pub async fn local_ports() -> io::Result<LocalPorts> {
    let (links, addresses) = netlink::dump().await?;
    // The ioctls block for a moment, but another thread might be in another namespace.
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
    /// Adds ports that are left out only by default: tunnels that `filter` names, and the port of
    /// `connected`, the address of a working connection. That port then has a name and an index
    /// like the others.
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
    /// The reason.
    pub reason: PortSkip,
    /// The port as [`LocalPorts::including`] would use it; `None` if there is no address to use.
    pub port: Option<Port>,
}

/// Why an interface or an address carries no rail. Its `Display` text is one phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortSkip {
    /// The interface is a loopback.
    Loopback,
    /// The interface is switched off.
    Down,
    /// There is no cable, or no active device at its other end.
    NoCarrier,
    /// It leads only to containers or virtual machines of this host, or to no host.
    Virtual {
        /// The kernel's name for its kind: `bridge`, `dummy`, `veth`.
        kind: String,
    },
    /// It is part of another interface, which has the addresses to use.
    PartOf {
        /// That interface.
        controller: String,
    },
    /// Its packets leave through another port.
    Tunnel {
        /// The kernel's name for its kind: `wireguard`, `vxlan`, `tun`.
        kind: String,
    },
    /// It has no address.
    NoAddress,
    /// The address is the same on every link, so it does not identify a port.
    LinkLocal,
    /// The kernel is still checking that the address is unique, or has found a duplicate.
    Tentative,
    /// The address is deprecated: it will be removed, and is not for new connections.
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
            PortSkip::Tunnel { kind } => write!(f, "a tunnel ({kind}), which is used only if it is named"),
            PortSkip::NoAddress => write!(f, "no address"),
            PortSkip::LinkLocal => write!(f, "link-local address"),
            PortSkip::Tentative => write!(f, "address not yet confirmed to be unique"),
            PortSkip::Deprecated => write!(f, "deprecated address"),
        }
    }
}

/// Software interfaces that never lead to another host. A bridge may: see [`sort_out`].
const VIRTUAL_KINDS: [&str; 7] = ["dummy", "ifb", "nlmon", "vrf", "can", "vcan", "vxcan"];

/// Interfaces whose packets are wrapped and sent through another interface. A `tun` interface is
/// one unless it is an Ethernet (a tap), which is the only port of a container without privileges.
pub(super) const TUNNEL_KINDS: [&str; 18] = [
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

/// Prefixes that container and virtual machine software gives to this host's end of their networks.
/// They only count for software interfaces.
const CONTAINER_NAMES: [&str; 10] =
    ["docker", "podman", "cni", "flannel", "cali", "cilium", "lxc", "virbr", "kube", "weave"];

pub(super) fn sort_out(links: &[Link], addresses: &[Address], speed_mbit_s: impl Fn(&str) -> u32) -> LocalPorts {
    let by_index: HashMap<u32, &Link> = links.iter().map(|l| (l.index, l)).collect();
    // A bridge with a hardware port may be the address of this host itself, on a host of virtual
    // machines.
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
        // Read only where it may matter, and once for each port.
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
            // An unusable address is a stronger reason than a tunnel, which the filter can include.
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
    // The ports of a routing domain (VRF) keep their addresses.
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

/// Whether an interface is hardware, so that the speed it reports means something. A veth reports
/// 10000.
fn is_hardware(link: &Link) -> bool {
    matches!(link.kind.as_deref(), None | Some("bond" | "team" | "vlan" | "ipoib" | "dsa" | "wwan"))
}
