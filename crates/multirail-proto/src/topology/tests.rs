use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

/// Ports from words such as `eth0=10.0.0.1/24@1000`. The same name is the same port.
fn ports(words: &str) -> Vec<Port> {
    let mut names: Vec<&str> = Vec::new();
    words
        .split_whitespace()
        .map(|word| {
            let (name, rest) = word.split_once('=').unwrap();
            let (network, speed) = rest.split_once('@').unwrap_or((rest, "0"));
            let (address, bits) = network.split_once('/').unwrap();
            if !names.contains(&name) {
                names.push(name);
            }
            let index = 2 + names.iter().position(|n| *n == name).unwrap() as u32;
            let (address, prefix_bits) = (address.parse().unwrap(), bits.parse().unwrap());
            Port { name: name.into(), index, address, prefix_bits, speed_mbit_s: speed.parse().unwrap() }
        })
        .collect()
}

fn addresses(local: &str, remote: &str) -> (IpAddr, IpAddr) {
    (local.parse().unwrap(), remote.parse().unwrap())
}

fn no_answer((local, remote): (IpAddr, IpAddr)) -> Unreachable {
    Unreachable { local, remote, error: "no route to host".into() }
}

/// The rails in order, as `local>remote` with the remote's name.
fn rails(pairs: &[Pair]) -> Vec<String> {
    pairs.iter().filter(|p| p.is_rail()).map(|p| format!("{}>{}", p.local.name, p.remote.name)).collect()
}

fn found(local: &str, remote: &str) -> Vec<Pair> {
    pair(&ports(local), &ports(remote), None, &RailFilter::default())
}

fn reason(pairs: &[Pair], local: &str, remote: &str) -> String {
    let wanted = addresses(local, remote);
    let pair = pairs.iter().find(|p| (p.local.address, p.remote.address) == wanted).expect("the pair is listed");
    pair.skip.as_ref().map_or("rail".into(), Skip::to_string)
}

const TWO_SUBNETS: [&str; 2] = ["a0=10.0.0.1/24 a1=10.0.1.1/24", "b0=10.0.0.2/24 b1=10.0.1.2/24"];
const ONE_SUBNET: [&str; 2] = ["a0=10.0.0.1/24 a1=10.0.0.3/24", "b0=10.0.0.2/24 b1=10.0.0.4/24"];

#[test]
fn no_addresses_give_no_rails() {
    assert!(found("", "").is_empty());
    assert!(found("a0=10.0.0.1/24", "").is_empty());
    assert!(found("", "b0=10.0.0.1/24").is_empty());
}

#[test]
fn a_rail_per_network() {
    let pairs = found(TWO_SUBNETS[0], TWO_SUBNETS[1]);
    assert_eq!(rails(&pairs), ["a0>b0", "a1>b1"]);
    assert_eq!(pairs.len(), 4);
    assert_eq!(reason(&pairs, "10.0.0.1", "10.0.1.2"), "different networks, and both ports have a better partner");
}

#[test]
fn two_by_two_ports_in_one_network_are_two_rails() {
    let pairs = found(ONE_SUBNET[0], ONE_SUBNET[1]);
    assert_eq!(rails(&pairs), ["a0>b0", "a1>b1"]);
    let by = "both ports already used by a0 10.0.0.1 -> 10.0.0.2 and a1 10.0.0.3 -> 10.0.0.4";
    assert_eq!(reason(&pairs, "10.0.0.1", "10.0.0.4"), by);
}

#[test]
fn fast_ports_are_partners_and_come_first() {
    let pairs =
        found("a0=10.0.0.1/24@1000 a1=10.0.0.3/24@10000", "b0=10.0.0.2/24@25000 b1=10.0.0.4/24@1000 b2=10.0.0.6/24");
    assert_eq!(rails(&pairs), ["a1>b0", "a0>b1", "a1>b2"]);
}

#[test]
fn one_fast_port_serves_four_slow_ones() {
    let slow = "b0=10.0.0.2/24@1000 b1=10.0.0.3/24@1000 b2=10.0.0.4/24@1000 b3=10.0.0.5/24@1000";
    let fast = "a0=10.0.0.1/24@10000";
    assert_eq!(rails(&found(fast, slow)), ["a0>b0", "a0>b1", "a0>b2", "a0>b3"]);
    assert_eq!(rails(&found(slow, fast)), ["b0>a0", "b1>a0", "b2>a0", "b3>a0"]);
}

#[test]
fn leftover_ports_share_the_partner_with_most_to_spare() {
    let local = "a0=10.0.0.1/24@1000 a1=10.0.0.2/24@1000 a2=10.0.0.3/24@1000 a3=10.0.0.4/24@1000";
    let uneven = found(local, "b0=10.0.0.11/24@10000 b1=10.0.0.12/24@1000");
    assert_eq!(rails(&uneven), ["a0>b0", "a1>b1", "a2>b0", "a3>b0"]);
    let even = found(local, "b0=10.0.0.11/24 b1=10.0.0.12/24");
    assert_eq!(rails(&even), ["a0>b0", "a1>b1", "a2>b0", "a3>b1"], "unknown speeds are taken as the same");
}

#[test]
fn the_matching_is_maximum() {
    // Greedily a0 would take b0 and leave a1 to double up on it.
    let pairs = found("a0=10.0.0.1/24 a0=10.0.1.1/24 a1=10.0.0.2/24", "b0=10.0.0.3/24 b1=10.0.1.3/24");
    assert_eq!(rails(&pairs), ["a0>b1", "a1>b0"]);
}

#[test]
fn routed_networks_pair_in_order() {
    let pairs = found("a0=10.1.0.1/24 a1=10.1.1.1/24", "b0=10.2.0.1/24 b1=10.2.1.1/24 b2=10.2.2.1/24");
    assert_eq!(rails(&pairs), ["a0>b0", "a1>b1", "a0>b2"]);
    assert_eq!(rails(&found("a0=10.1.0.1/32", "b0=10.1.0.2/32")), ["a0>b0"], "as some clouds assign addresses");
}

#[test]
fn routed_pairs_only_for_ports_without_a_neighbour() {
    let pairs = found("a0=10.0.0.1/24 a1=10.1.0.1/24", "b0=10.0.0.2/24 b1=10.0.0.3/24");
    assert_eq!(rails(&pairs), ["a0>b0", "a0>b1", "a1>b0"]);
    let pairs = found("a0=10.0.0.1/24 a1=10.1.0.1/24", "b0=10.0.0.2/24 b1=10.2.0.1/24");
    assert_eq!(rails(&pairs), ["a0>b0", "a1>b1"]);
}

#[test]
fn private_addresses_prefer_private_ones() {
    let pairs = found("a0=10.1.0.1/24 a1=198.51.100.1/24", "b0=203.0.113.1/24 b1=10.2.0.1/24");
    assert_eq!(rails(&pairs), ["a0>b1", "a1>b0"]);
}

#[test]
fn networks_must_agree_on_both_sides() {
    // 10.0.1.2 is in a0's network, but 10.0.0.1 is not in b0's.
    let pairs = found("a0=10.0.0.1/16 a1=10.0.1.1/24", "b0=10.0.1.2/24");
    assert_eq!(rails(&pairs), ["a1>b0", "a0>b0"]);
}

#[test]
fn both_families_between_two_ports_are_one_rail() {
    let (local, remote) = ("a0=10.0.0.1/24 a0=fd00::1/64 a1=fd01::1/64", "b0=10.0.0.2/24 b0=fd00::2/64 b1=fd01::2/64");
    let pairs = found(local, remote);
    assert_eq!(rails(&pairs), ["a0>b0", "a1>b1"]);
    assert_eq!(reason(&pairs, "10.0.0.1", "10.0.0.2"), "rail");
    assert_eq!(reason(&pairs, "fd00::1", "fd00::2"), "the same two ports as a0 10.0.0.1 -> 10.0.0.2");
    assert_eq!(reason(&pairs, "fd00::1", "10.0.0.2"), "one address is IPv4 and the other IPv6");
    let connected = addresses("fd00::1", "fd00::2");
    let pairs = pair(&ports(local), &ports(remote), Some(connected), &RailFilter::default());
    assert_eq!(rails(&pairs), ["a0>b0", "a1>b1"]);
    assert_eq!(reason(&pairs, "fd00::1", "fd00::2"), "rail");
    assert_eq!(reason(&pairs, "10.0.0.1", "10.0.0.2"), "the same two ports as a0 fd00::1 -> fd00::2");
}

#[test]
fn the_family_of_the_first_connection_goes_for_its_ports() {
    let local = ports("a0=10.0.0.1/24 a0=fd00::1/64");
    let remote = ports("b0=10.0.0.2/24 b0=fd00::2/64 b1=10.0.0.3/24 b1=fd00::3/64");
    let pairs = pair(&local, &remote, Some(addresses("fd00::1", "fd00::2")), &RailFilter::default());
    assert_eq!(reason(&pairs, "fd00::1", "fd00::3"), "rail");
}

#[test]
fn several_addresses_of_a_port_are_one_rail() {
    let pairs = found("a0=10.0.0.1/24 a0=10.0.0.2/24", "b0=10.0.0.3/24 b0=10.0.0.4/24");
    assert_eq!(rails(&pairs), ["a0>b0"]);
    assert_eq!(reason(&pairs, "10.0.0.2", "10.0.0.4"), "both ports already used by a0 10.0.0.1 -> 10.0.0.3");
}

#[test]
fn the_first_connection_is_the_first_rail() {
    let [local, remote] = ONE_SUBNET.map(ports);
    let pairs = pair(&local, &remote, Some(addresses("10.0.0.3", "10.0.0.2")), &RailFilter::default());
    assert_eq!(rails(&pairs), ["a1>b0", "a0>b1"]);
    let mapped = Some(addresses("::ffff:10.0.0.3", "::ffff:10.0.0.2"));
    assert_eq!(pair(&local, &remote, mapped, &RailFilter::default()), pairs, "as a dual-stack listener shows it");
}

#[test]
fn the_first_connection_may_be_on_neither_list() {
    let [local, remote] = TWO_SUBNETS.map(ports);
    let pairs = pair(&local, &remote, Some(addresses("192.168.1.5", "203.0.113.9")), &RailFilter::default());
    assert_eq!(rails(&pairs), [">", "a0>b0", "a1>b1"]);
    assert_eq!(pairs[0].to_string(), "192.168.1.5 -> 203.0.113.9");
}

#[test]
fn a_connection_within_one_host_is_the_only_rail() {
    let local = ports(TWO_SUBNETS[0]);
    for (from, to) in [("127.0.0.1", "127.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("10.0.0.1", "10.0.1.1"), ("::1", "::1")] {
        let pairs = pair(&local, &local, Some(addresses(from, to)), &RailFilter::default());
        assert_eq!(pairs.iter().filter(|p| p.is_rail()).count(), 1);
        assert_eq!((pairs[0].local.address, pairs[0].remote.address), addresses(from, to));
        let why = format!("both ends are the same host, connected by {from} -> {to}");
        assert!(pairs[1..].iter().all(|p| p.skip.as_ref().unwrap().to_string() == why));
    }
}

#[test]
fn addresses_that_reach_no_other_host() {
    let pairs = found(
        "a0=10.0.0.1/24 br=172.17.0.1/16 a0=169.254.1.1/16 a0=fe80::1/64",
        "b0=10.0.0.2/24 br=172.17.0.1/16 b0=169.254.1.2/16 b0=fe80::2/64 lo=127.0.0.1/8 x=0.0.0.0/0 y=224.0.0.1/4",
    );
    assert_eq!(rails(&pairs), ["a0>b0", "br>b0"]);
    assert_eq!(reason(&pairs, "10.0.0.1", "172.17.0.1"), "this host has the remote address itself");
    assert_eq!(reason(&pairs, "169.254.1.1", "169.254.1.2"), "link-local address");
    assert_eq!(reason(&pairs, "fe80::1", "fe80::2"), "link-local address");
    for remote in ["127.0.0.1", "0.0.0.0", "224.0.0.1"] {
        assert_eq!(reason(&pairs, "10.0.0.1", remote), "not the address of another host");
    }
}

#[test]
fn the_filter_wins_over_everything() {
    let [local, remote] = TWO_SUBNETS.map(ports);
    let connected = Some(addresses("10.0.0.1", "10.0.0.2"));
    let pairs = pair(&local, &remote, connected, &"a1".parse().unwrap());
    assert_eq!(rails(&pairs), ["a1>b1", "a1>b0"]);
    assert_eq!(reason(&pairs, "10.0.0.1", "10.0.0.2"), "left out by the filter");
    assert_eq!(rails(&pair(&local, &remote, connected, &"!10.0.1.0/24".parse().unwrap())), ["a0>b0"]);
    assert!(rails(&pair(&local, &remote, connected, &"wlan*".parse().unwrap())).is_empty());
}

#[test]
fn a_pair_that_does_not_answer_is_replaced() {
    let [local, remote] = ONE_SUBNET.map(ports);
    let all = RailFilter::default();
    let dead = [no_answer(addresses("10.0.0.1", "10.0.0.2"))];
    let pairs = pair_excluding(&local, &remote, &[], &all, &dead);
    assert_eq!(rails(&pairs), ["a0>b1", "a1>b0"]);
    assert_eq!(reason(&pairs, "10.0.0.1", "10.0.0.2"), "unreachable: no route to host");
    // Existing rails are kept, and the ports that lost their partner share one.
    let standing = [addresses("10.0.0.3", "10.0.0.4")];
    let pairs = pair_excluding(&local, &remote, &standing, &all, &dead);
    assert_eq!(rails(&pairs), ["a1>b1", "a0>b1", "a1>b0"]);
    // a0 has no partner left.
    let dead = [dead[0].clone(), no_answer(addresses("10.0.0.1", "10.0.0.4"))];
    assert_eq!(rails(&pair_excluding(&local, &remote, &standing, &all, &dead)), ["a1>b1", "a1>b0"]);
}

#[test]
fn the_other_family_replaces_one_that_does_not_answer() {
    let (local, remote) = (ports("a0=10.0.0.1/24 a0=fd00::1/64"), ports("b0=10.0.0.2/24 b0=fd00::2/64"));
    let dead = [no_answer(addresses("10.0.0.1", "10.0.0.2"))];
    let pairs = pair_excluding(&local, &remote, &[], &RailFilter::default(), &dead);
    assert_eq!(reason(&pairs, "fd00::1", "fd00::2"), "rail");
    assert_eq!(rails(&pairs).len(), 1);
}

#[test]
fn addresses_beyond_the_limit_are_ignored() {
    let many = |count: usize| -> Vec<Port> {
        let address = |i| IpAddr::from([10, 0, 0, i as u8]);
        let port = |i| Port { name: String::new(), index: i, address: address(i), prefix_bits: 32, speed_mbit_s: 0 };
        (0..count as u32).map(port).collect()
    };
    let remote = ports("b0=10.1.0.1/24");
    let all = RailFilter::default();
    assert_eq!(pair(&many(MAX_ADDRESSES), &remote, None, &all).len(), MAX_ADDRESSES);
    assert_eq!(pair(&many(MAX_ADDRESSES + 1), &remote, None, &all).len(), MAX_ADDRESSES);
    let connected = Some(addresses("10.0.0.64", "10.1.0.1"));
    let pairs = pair(&many(MAX_ADDRESSES + 1), &remote, connected, &all);
    assert_eq!(pairs[0].local.index, 64, "the first connection's port is still known");
}

/// Few networks and ports, so that they often coincide. Every field also takes values of a broken
/// peer.
fn any_ports() -> impl Strategy<Value = Vec<Port>> {
    let v4 = (0u8..3, 1u8..40).prop_map(|(net, host)| IpAddr::from([10, 0, net, host]));
    let v6 = (0u16..3, 1u16..40).prop_map(|(net, host)| IpAddr::from([0xfd00, net, 0, 0, 0, 0, 0, host]));
    let address = prop_oneof![4 => v4, 2 => v6, 1 => any::<IpAddr>()];
    let bits = prop_oneof![4 => Just(24u8), 2 => Just(64u8), 1 => any::<u8>()];
    let speed = prop_oneof![Just(0u32), Just(1000), Just(10000), any::<u32>()];
    let port = (0u32..5, address, bits, speed).prop_map(|(index, address, prefix_bits, speed_mbit_s)| Port {
        name: format!("p{index}"),
        index,
        address,
        prefix_bits,
        speed_mbit_s,
    });
    prop::collection::vec(port, 0..8)
}

proptest! {
    #[test]
    fn invariants_hold_for_any_hosts(
        local in any_ports(),
        remote in any_ports(),
        picks in prop::collection::vec((0usize..8, 0usize..8, any::<bool>()), 0..6),
        filter in prop_oneof![3 => Just(""), 1 => Just("!p0"), 1 => Just("10.0.0.0/16,p3")],
    ) {
        let filter: RailFilter = filter.parse().unwrap();
        let (mut standing, mut dead) = (Vec::new(), Vec::new());
        for (l, r, stands) in picks {
            if let (Some(l), Some(r)) = (local.get(l), remote.get(r)) {
                let pair = (l.address, r.address);
                if stands { standing.push(pair) } else { dead.push(no_answer(pair)) }
            }
        }
        let pairs = pair_excluding(&local, &remote, &standing, &filter, &dead);
        prop_assert_eq!(&pairs, &pair_excluding(&local, &remote, &standing, &filter, &dead));

        // Every pair is listed once, rails first, and has a phrase.
        let distinct = |side: &[Port]| side.iter().map(|p| p.address.to_canonical()).collect::<HashSet<_>>().len();
        prop_assert!(pairs.len() >= distinct(&local) * distinct(&remote));
        let listed: HashSet<_> = pairs.iter().map(|p| (p.local.address, p.remote.address)).collect();
        prop_assert_eq!(listed.len(), pairs.len());
        prop_assert!(pairs.is_sorted_by_key(|p| !p.is_rail()));
        prop_assert!(pairs.iter().all(|p| p.skip.as_ref().is_none_or(|s| !s.to_string().is_empty())));

        // No two ports have two rails, and every rail is allowed.
        let chosen: Vec<(u32, u32)> =
            pairs.iter().filter(|p| p.is_rail()).map(|p| (p.local.index, p.remote.index)).collect();
        prop_assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), chosen.len());
        for rail in pairs.iter().filter(|p| p.is_rail()) {
            let ends = (rail.local.address, rail.remote.address);
            prop_assert!(filter.admits(&rail.local, ends.1));
            prop_assert!(!dead.iter().any(|d| (d.local.to_canonical(), d.remote.to_canonical()) == ends));
        }

        // A port without a rail has no possible pair, and a pair is spare only if its ports are
        // served.
        let spare = |s: &Skip| {
            matches!(s, Skip::PortsServed { .. } | Skip::NoCommonNetwork | Skip::SameAsAnotherFamily { .. })
        };
        for pair in pairs.iter().filter(|p| p.skip.as_ref().is_some_and(spare)) {
            prop_assert!(chosen.iter().any(|c| c.0 == pair.local.index), "{} leaves {}", pair, pair.local.name);
            prop_assert!(chosen.iter().any(|c| c.1 == pair.remote.index), "{} leaves {}", pair, pair.remote.name);
        }

        // No rail among neighbours is superfluous, except for existing rails and those that routed
        // rails make spare.
        let neighbours = |p: &&Pair| p.is_rail() && in_common_network(&p.local, &p.remote);
        if standing.is_empty() && pairs.iter().filter(neighbours).count() == chosen.len() {
            let mut count: (HashMap<u32, u32>, HashMap<u32, u32>) = Default::default();
            for (l, r) in &chosen {
                *count.0.entry(*l).or_default() += 1;
                *count.1.entry(*r).or_default() += 1;
            }
            prop_assert!(chosen.iter().all(|(l, r)| count.0[l] == 1 || count.1[r] == 1), "{:?}", chosen);
        }
    }
}

#[test]
fn the_only_interface() {
    let remote = "a=10.0.0.2/24 b=10.0.1.2/24";
    let filtered = |filter: &str| {
        let local = ports("eth0=10.0.0.1/24 eth1=10.0.1.1/24");
        pair(&local, &ports(remote), None, &filter.parse().unwrap())
    };
    assert_eq!(rails(&filtered("eth0")).len(), 2, "one to each address");
    assert_eq!(only_interface(&filtered("eth0")), Some("eth0"));
    assert_eq!(only_interface(&filtered("")), None, "two rails");
    assert_eq!(only_interface(&filtered("eth9")), None, "no rail");
}
