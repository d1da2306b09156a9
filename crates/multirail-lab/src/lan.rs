//! Which ports, addresses and routes the hosts of clusters and their routers have: from the topology alone, nothing is
//! asked of the kernel.
//!
//! A cluster is a bridge in its router's namespace, with a port to each host. Hardware addresses are given and known
//! beforehand to all: the kernel's table of those that it finds out is one for all namespaces, and ends at 1024.

use crate::names;
use crate::plan::{Plan, Port};
use crate::shaping::{Access, Egress, Shaping, Side};
use crate::wan::{Queue, Wan};
use std::net::Ipv4Addr;

/// Above those of rails' ports.
const FIRST_ROUTER_INDEX: usize = 1_000_000;
const FIRST_HOST_INDEX: usize = 1_100_000;
pub(crate) const MTU_BYTES: u32 = 1500;
/// The kernel holds a connection back once two packets of 64 KiB wait. In a shorter queue it would lose what a network
/// card, which does not lose what its own host sends, would not.
const HOST_QUEUE_MIN_BYTES: u64 = 256 << 10;
/// The second byte of the first cluster's network.
const FIRST_NETWORK: usize = 80;
/// The last byte of an address is below; .250 to .255 stay free for others than hosts.
const HOSTS_A_BYTE: usize = 250;

/// The first 16 bits of the addresses of a cluster's hosts.
pub(crate) fn network(cluster: usize) -> u16 {
    // As many clusters as make 256 links fit.
    10 << 8 | (FIRST_NETWORK + cluster) as u16
}

pub(crate) const NETWORK_BITS: u8 = 16;

/// As `ip` reads it.
pub(crate) fn network_of(cluster: usize) -> String {
    let [a, b] = network(cluster).to_be_bytes();
    format!("{a}.{b}.0.0/{NETWORK_BITS}")
}

/// The address of a cluster's host, by its place in the cluster: 10.(80 + cluster).(host / 250).(host % 250 + 2).
pub(crate) fn host_address(cluster: usize, host: usize) -> Ipv4Addr {
    let [a, b] = network(cluster).to_be_bytes();
    Ipv4Addr::new(a, b, (host / HOSTS_A_BYTE) as u8, (host % HOSTS_A_BYTE + 2) as u8)
}

/// 10.(80 + cluster).255.254.
pub(crate) fn router_address(cluster: usize) -> Ipv4Addr {
    let [a, b] = network(cluster).to_be_bytes();
    Ipv4Addr::new(a, b, 255, 254)
}

/// A hardware address of one's own making, different for each IP address.
pub(crate) fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:6d:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The veth pairs of a cluster: at the host, and at the router's bridge.
pub(crate) fn pairs(plan: &Plan<'_>, cluster: usize) -> Vec<(Port, Port)> {
    let wanted = &plan.topology.clusters[cluster];
    let router = names::host_namespace(plan.lab, &wanted.router());
    let access = |side: Side| {
        let mut shaping = Shaping::new(wanted.access?, &Wan::default(), MTU_BYTES);
        if let (Side::To, Queue::Bytes(bytes)) = (side, shaping.queue) {
            shaping.queue = Queue::Bytes(bytes.max(HOST_QUEUE_MIN_BYTES));
        }
        Some(Egress::Access(Access { shaping, inside: network(cluster), side }))
    };
    let pair = |host: &String| {
        let index = plan.topology.host_index(host)?;
        let at_host = Port {
            namespace: names::host_namespace(plan.lab, host),
            name: names::LAN_PORT.to_owned(),
            index: FIRST_HOST_INDEX + index,
            rate: None,
            egress: access(Side::To),
            is_host: true,
        };
        let at_router = Port {
            namespace: router.clone(),
            name: names::switch_port(index),
            index: FIRST_ROUTER_INDEX + index,
            rate: None,
            egress: access(Side::From),
            is_host: false,
        };
        Some((at_host, at_router))
    };
    wanted.hosts.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::Clusters;
    use crate::state::WanBy;
    use std::collections::BTreeSet;

    #[test]
    fn addresses_are_as_documented_and_all_different() {
        assert_eq!(host_address(0, 0), Ipv4Addr::new(10, 80, 0, 2));
        assert_eq!(host_address(3, 249), Ipv4Addr::new(10, 83, 0, 251));
        assert_eq!(host_address(3, 250), Ipv4Addr::new(10, 83, 1, 2));
        assert_eq!(router_address(1), Ipv4Addr::new(10, 81, 255, 254));
        let hosts = (0..3).flat_map(|cluster| (0..1000).map(move |host| host_address(cluster, host)));
        let all: BTreeSet<String> = hosts.chain((0..3).map(router_address)).map(mac).collect();
        assert_eq!(all.len(), 3003);
    }

    #[test]
    fn ports_of_a_namespace_have_numbers_of_their_own() {
        let topology = Clusters::new(&[("a", 40), ("b", 3)]).link_default("1mbit".parse().ok()).topology().unwrap();
        let plan = Plan { lab: "x", topology: &topology, wan_by: WanBy::Relay };
        let pairs: Vec<(Port, Port)> = (0..2).flat_map(|cluster| pairs(&plan, cluster)).chain(plan.pairs(0)).collect();
        assert_eq!(pairs.len(), 44);
        let ends = pairs.iter().flat_map(|(one, other)| [one, other]);
        let numbers: BTreeSet<(&str, usize)> = ends.map(|port| (port.namespace.as_str(), port.index)).collect();
        assert_eq!(numbers.len(), 88);
        assert!(pairs.iter().all(|(one, other)| one.index != other.index));
    }
}
