//! The addresses of hosts on rails, at ports and in clusters.

use crate::spec::topology::{Ports, Topology};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The second byte of the network of the first port.
const FIRST_PORT_NETWORK: usize = 90;
/// The second byte of the network of the first cluster.
const FIRST_CLUSTER_NETWORK: usize = 80;
/// How many hosts of a cluster share the third byte of their addresses. The last bytes .0, .1 and
/// .252 to .255 belong to no host.
const HOSTS_A_BYTE: usize = 250;
/// The prefix length of the IPv4 network of a rail or a port.
pub(crate) const RAIL_NETWORK_BITS: u8 = 24;
/// The prefix length of the network of a cluster.
pub(crate) const CLUSTER_NETWORK_BITS: u8 = 16;

/// The IPv4 address of a host on a rail or at a port: 10.77.rail.(host + 1) or
/// 10.(90 + port).0.(host + 1). `None` if the port has no address.
pub(crate) fn ipv4(topology: &Topology, rail: usize, host: usize) -> Option<Ipv4Addr> {
    match topology.ports {
        None => Some(rail_ipv4(rail, host)),
        // `Topology::check` bounds both.
        Some(ports) => {
            has_address(ports, rail).then(|| Ipv4Addr::new(10, (FIRST_PORT_NETWORK + rail) as u8, 0, (host + 1) as u8))
        }
    }
}

/// The IPv6 address of a host on a rail or at a port: fd77:0:0:rail::(host + 1) or
/// fd90:0:0:port::(host + 1), in a network of 64 bits. `None` if the rail has no IPv6 or the port
/// no address.
pub(crate) fn ipv6(topology: &Topology, rail: usize, host: usize) -> Option<Ipv6Addr> {
    let (network, has_address) = match topology.ports {
        None => (0xfd77, true),
        Some(ports) => (0xfd90, has_address(ports, rail)),
    };
    (has_address && topology.rails[rail].ipv6)
        .then(|| Ipv6Addr::new(network, 0, 0, rail as u16, 0, 0, 0, (host + 1) as u16))
}

/// 10.77.rail.(host + 1).
pub(crate) fn rail_ipv4(rail: usize, host: usize) -> Ipv4Addr {
    // `Topology::check` bounds both.
    Ipv4Addr::new(10, 77, rail as u8, (host + 1) as u8)
}

fn has_address(ports: Ports, port: usize) -> bool {
    port == 0 || ports.subnets
}

/// The first 16 bits of the addresses of a cluster's hosts.
pub(crate) fn cluster_network(cluster: usize) -> u16 {
    // At most 256 links fit into a lab, and thus at most 23 clusters.
    10 << 8 | (FIRST_CLUSTER_NETWORK + cluster) as u16
}

/// The network of a cluster in the notation of `ip`.
pub(crate) fn cluster_network_text(cluster: usize) -> String {
    let [a, b] = cluster_network(cluster).to_be_bytes();
    format!("{a}.{b}.0.0/{CLUSTER_NETWORK_BITS}")
}

/// The address of a cluster's host by its index in the cluster:
/// 10.(80 + cluster).(host / 250).(host % 250 + 2).
pub(crate) fn cluster_host(cluster: usize, host: usize) -> Ipv4Addr {
    let [a, b] = cluster_network(cluster).to_be_bytes();
    Ipv4Addr::new(a, b, (host / HOSTS_A_BYTE) as u8, (host % HOSTS_A_BYTE + 2) as u8)
}

/// The address of a cluster's router: 10.(80 + cluster).255.254.
pub(crate) fn cluster_router(cluster: usize) -> Ipv4Addr {
    let [a, b] = cluster_network(cluster).to_be_bytes();
    Ipv4Addr::new(a, b, 255, 254)
}

/// A locally administered hardware address, different for each IP address.
pub(crate) fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:6d:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn cluster_addresses_are_as_documented_and_all_different() {
        assert_eq!(cluster_host(0, 0), Ipv4Addr::new(10, 80, 0, 2));
        assert_eq!(cluster_host(3, 249), Ipv4Addr::new(10, 83, 0, 251));
        assert_eq!(cluster_host(3, 250), Ipv4Addr::new(10, 83, 1, 2));
        assert_eq!(cluster_router(1), Ipv4Addr::new(10, 81, 255, 254));
        let hosts = (0..3).flat_map(|cluster| (0..1000).map(move |host| cluster_host(cluster, host)));
        let all: BTreeSet<String> = hosts.chain((0..3).map(cluster_router)).map(mac).collect();
        assert_eq!(all.len(), 3003);
    }

    #[test]
    fn only_the_first_port_has_an_address_unless_all_have() {
        let topology = |ports: Ports| ports.topology(&["a", "b", "c", "d"], &[None; 4]).unwrap();
        let (one, all) = (topology(Ports::new()), topology(Ports::new().with_subnets(true)));
        assert_eq!(ipv4(&one, 0, 3), Some(Ipv4Addr::new(10, 90, 0, 4)));
        assert_eq!((ipv4(&one, 1, 3), ipv6(&one, 1, 3)), (None, None));
        assert_eq!(ipv4(&all, 3, 0), Some(Ipv4Addr::new(10, 93, 0, 1)));
        assert_eq!(ipv6(&all, 3, 0).unwrap().to_string(), "fd90:0:0:3::1");
    }
}
