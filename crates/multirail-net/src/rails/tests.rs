use super::PortSkip;
use super::interface::{Address, Link};
use super::select::*;

fn link(index: u32, name: &str, kind: &str) -> Link {
    let kind = (!kind.is_empty()).then(|| kind.to_owned());
    Link { index, name: name.into(), kind, up: true, carrier: true, ethernet: true, ..Link::default() }
}

fn address(index: u32, address: &str) -> Address {
    Address { index, address: address.parse().unwrap(), prefix_bits: 24, tentative: false, deprecated: false }
}

/// What becomes of each link when all have an address: `name` or `name: reason`.
fn outcome(links: &[Link]) -> Vec<String> {
    let addresses: Vec<Address> = links.iter().map(|l| address(l.index, &format!("10.0.{}.1", l.index))).collect();
    let found = sort_out(links, &addresses, |_| 1000);
    let ports = found.ports.iter().map(|p| p.name.clone());
    ports.chain(found.left_out.iter().map(|l| format!("{}: {}", l.name, l.reason))).collect()
}

fn one(link: Link) -> String {
    outcome(&[link]).remove(0)
}

#[test]
fn cables_and_interfaces_built_on_them() {
    for kind in ["", "bond", "team", "vlan", "macvlan", "ipvlan", "veth", "netkit", "ipoib", "openvswitch"] {
        assert_eq!(one(link(2, "eth0", kind)), "eth0", "{kind}");
    }
}

#[test]
fn links_to_no_other_host() {
    assert_eq!(one(Link { loopback: true, ..link(1, "lo", "") }), "lo: loopback");
    assert_eq!(one(Link { up: false, ..link(2, "eth0", "") }), "eth0: switched off");
    assert_eq!(one(Link { carrier: false, ..link(2, "eth0", "") }), "eth0: no carrier");
    assert_eq!(one(link(2, "d0", "dummy")), "d0: virtual (dummy), leads to no other host");
    assert_eq!(one(link(2, "docker0", "bridge")), "docker0: virtual (bridge), leads to no other host");
    assert_eq!(one(link(2, "cali1234", "veth")), "cali1234: virtual (veth), leads to no other host");
    assert_eq!(one(link(2, "flannel.1", "vxlan")), "flannel.1: virtual (vxlan), leads to no other host");
    assert_eq!(one(link(2, "lxc0", "")), "lxc0", "a cable with a misleading name");
}

#[test]
fn a_bridge_counts_if_a_cable_is_in_it() {
    let part_of_bridge = |index, name, kind| Link { controller: Some(9), ..link(index, name, kind) };
    let bridge = link(9, "br0", "bridge");
    let found = outcome(&[bridge.clone(), part_of_bridge(2, "eth0", ""), part_of_bridge(3, "vnet0", "tun")]);
    assert_eq!(found, ["br0", "eth0: part of br0", "vnet0: part of br0"]);
    let found = outcome(&[bridge, part_of_bridge(3, "veth0", "veth")]);
    assert_eq!(found, ["veth0: part of br0", "br0: virtual (bridge), leads to no other host"]);
}

#[test]
fn a_routing_domain_takes_nothing_from_its_ports() {
    let found = outcome(&[link(9, "red", "vrf"), Link { controller: Some(9), ..link(2, "eth0", "") }]);
    assert_eq!(found, ["eth0", "red: virtual (vrf), leads to no other host"]);
    let elsewhere = Link { controller: Some(77), ..link(2, "eth0", "") };
    assert_eq!(one(elsewhere), "eth0", "the controller has been removed");
}

#[test]
fn taps_are_ports_and_tunnels_are_not() {
    assert_eq!(one(link(2, "tap0", "tun")), "tap0");
    let tun = Link { ethernet: false, ..link(2, "tun0", "tun") };
    assert_eq!(one(tun), "tun0: a tunnel (tun), which is used only if it is named");
    for kind in TUNNEL_KINDS {
        assert!(one(link(2, "x", kind)).contains("tunnel"), "{kind}");
    }
}

#[test]
fn named_tunnels_and_connected_addresses_are_included() {
    let links = [link(2, "eth0", ""), link(3, "wg0", "wireguard"), link(4, "docker0", "bridge")];
    let addresses = [address(2, "10.0.0.1"), address(3, "10.1.0.1"), address(3, "fe80::1"), address(4, "172.17.0.1")];
    let found = sort_out(&links, &addresses, |_| 0);
    let names = |filter: &str, connected: Option<&str>| -> Vec<String> {
        let found = found.clone().including(&filter.parse().unwrap(), connected.map(|c| c.parse().unwrap()));
        assert_eq!(found.ports.len() + found.left_out.len(), addresses.len());
        found.ports.iter().map(|p| format!("{} {}", p.name, p.address)).collect()
    };
    assert_eq!(names("", None), ["eth0 10.0.0.1"]);
    assert_eq!(names("wg*", None), ["eth0 10.0.0.1", "wg0 10.1.0.1"]);
    assert_eq!(names("docker0", None), ["eth0 10.0.0.1"], "a name does not make it lead anywhere");
    assert_eq!(names("", Some("::ffff:172.17.0.1")), ["eth0 10.0.0.1", "docker0 172.17.0.1"]);
    assert_eq!(names("", Some("fe80::1")), ["eth0 10.0.0.1", "wg0 fe80::1"]);
}

#[test]
fn addresses_that_are_no_use() {
    let addresses = [
        address(2, "fe80::1"),
        address(2, "169.254.0.1"),
        Address { tentative: true, ..address(2, "fd00::1") },
        Address { deprecated: true, ..address(2, "fd00::2") },
        address(2, "fd00::3"),
        address(2, "10.0.0.1"),
    ];
    let found = sort_out(&[link(2, "eth0", ""), link(3, "eth1", "")], &addresses, |_| 0);
    let ports: Vec<String> = found.ports.iter().map(|p| p.address.to_string()).collect();
    assert_eq!(ports, ["10.0.0.1", "fd00::3"]);
    let reasons: Vec<PortSkip> = found.left_out.into_iter().map(|l| l.reason).collect();
    use PortSkip::*;
    assert_eq!(reasons, [LinkLocal, LinkLocal, Tentative, Deprecated, NoAddress]);
}

#[test]
fn only_hardware_is_asked_for_its_speed() {
    let links = [link(2, "eth0", ""), link(3, "veth0", "veth"), Link { up: false, ..link(4, "eth1", "") }];
    let addresses = [address(2, "10.0.0.1"), address(2, "10.0.0.2"), address(3, "10.0.1.1"), address(4, "10.0.2.1")];
    let asked = std::cell::RefCell::new(Vec::new());
    let found = sort_out(&links, &addresses, |name| {
        asked.borrow_mut().push(name.to_owned());
        25_000
    });
    assert_eq!(asked.into_inner(), ["eth0"]);
    assert_eq!(found.ports.iter().map(|p| p.speed_mbit_s).collect::<Vec<_>>(), [25_000, 25_000, 0]);
}
