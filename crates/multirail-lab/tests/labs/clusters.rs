//! Tests of clusters: reachability, rates, delays, access limits, failures and removal.

use crate::common::{
    RECEIVE_TIMEOUT, assert_rate_mbit_s, assert_time_ms, is_cut_off, namespaces, reaches, reaches_again, socket,
    supported, tcp_rate_mbit_s,
};
use multirail_lab::{Clusters, Error, Lab, LinkDirection, LinkState};
use std::panic::AssertUnwindSafe;
use std::time::Instant;

fn mesh(clusters: &[(&str, usize)], links: &[&str]) -> Clusters {
    let link = |mesh: Clusters, link: &&str| mesh.link(link.parse().unwrap());
    links.iter().fold(Clusters::new(clusters).link_default("10mbit".parse().ok()), link)
}

fn up(clusters: &Clusters) -> Lab {
    Lab::temporary(&clusters.topology().unwrap()).unwrap()
}

fn direction(lab: &Lab, from: &str, to: &str) -> LinkDirection {
    let of = |direction: &LinkDirection| direction.from == from && direction.to == to;
    lab.link_directions().unwrap().into_iter().find(of).unwrap()
}

/// Asserts that TCP between two hosts is near a rate. The band excludes the other rates here.
#[track_caller]
fn assert_rate(lab: &Lab, from: &str, to: &str, rate_mbit_s: f64) {
    let bytes = (rate_mbit_s * 1e6 / 8.0 * 0.7) as usize;
    let to = (to, lab.cluster_address(to).unwrap());
    assert_rate_mbit_s(lab, from, to, bytes, 0.6 * rate_mbit_s, 1.1 * rate_mbit_s);
}

/// Asserts that TCP between two hosts is faster than any link and access limit here.
#[track_caller]
fn assert_unlimited(lab: &Lab, from: &str, to: &str) {
    let to = (to, lab.cluster_address(to).unwrap());
    assert_rate_mbit_s(lab, from, to, 16 << 20, 200.0, f64::INFINITY);
}

#[test]
fn all_hosts_reach_all_by_the_direct_link() {
    if !supported() {
        return;
    }
    for clusters in
        [mesh(&[("a", 3), ("b", 1), ("c", 2)], &[]), mesh(&[("a", 2), ("b", 1), ("c", 2)], &["a-c=20mbit,delay=1ms"])]
    {
        let lab = up(&clusters);
        let hosts: Vec<String> = lab.hosts().map(str::to_owned).collect();
        assert!(hosts.len() >= 5 && hosts[0] == "a0");
        let sockets: Vec<_> =
            hosts.iter().map(|host| socket(&lab, host, (lab.cluster_address(host).unwrap(), 0))).collect();
        for (from, one) in sockets.iter().enumerate() {
            for (to, other) in sockets.iter().enumerate().filter(|(to, _)| *to != from) {
                assert!(reaches(one, other), "{} to {}", hosts[from], hosts[to]);
            }
        }
        // One datagram per pair of hosts has passed the link of their clusters in each direction,
        // and no other packet.
        let size = |cluster: &str| hosts.iter().filter(|host| host.starts_with(cluster)).count() as u64;
        for counted in lab.link_directions().unwrap() {
            let LinkDirection { from, to, packets, bytes, drops, .. } = &counted;
            assert_eq!((*packets, *drops), (size(from) * size(to), 0), "{from} to {to}");
            // A datagram has one byte and the headers of Ethernet, IP and UDP.
            assert_eq!(*bytes, packets * 43, "{from} to {to}");
        }
        assert_eq!(lab.link_directions().unwrap().len(), 6);
    }
}

#[test]
fn links_have_their_rates_each_way_and_independently() {
    if !supported() {
        return;
    }
    for links in [["a-b=40mbit", "b>a=15mbit"], ["a-b=40mbit,delay=5ms", "b>a=15mbit"]] {
        let lab = up(&mesh(&[("a", 2), ("b", 2), ("c", 1)], &links));
        assert_rate(&lab, "a0", "b1", 40.0);
        assert_rate(&lab, "b0", "a1", 15.0);
        assert_unlimited(&lab, "a0", "a1");
        // Both links of a at once.
        std::thread::scope(|scope| {
            scope.spawn(|| assert_rate(&lab, "a0", "b0", 40.0));
            scope.spawn(|| assert_rate(&lab, "a1", "c0", 10.0));
        });
        let used = direction(&lab, "a", "b");
        assert!(used.bytes > 3_000_000 && used.packets > 2000, "{used:?}");
        // The counters count segments of GSO packets.
        assert!(used.bytes / used.packets < 1515, "{used:?}");
        assert_eq!(direction(&lab, "b", "c").packets, 0);
    }
}

#[test]
fn settings_change_one_link_or_direction_and_no_other() {
    if !supported() {
        return;
    }
    for delay in ["", ",delay=2ms"] {
        let lab = up(&mesh(&[("a", 1), ("b", 1), ("c", 1)], &[&format!("a-b=10mbit{delay}")]));
        lab.set_links(&["a>b=40mbit".parse().unwrap(), "c-b=20mbit".parse().unwrap()]).unwrap();
        let rates: Vec<f64> = lab.link_directions().unwrap().iter().map(|direction| direction.rate_mbit_s).collect();
        assert_eq!(rates, [40.0, 10.0, 10.0, 10.0, 20.0, 20.0], "a>b b>a a>c c>a b>c c>b");
        assert_rate(&lab, "a0", "b0", 40.0);
        assert_rate(&lab, "b0", "a0", 10.0);
        assert_rate(&lab, "b0", "c0", 20.0);
        lab.set_links(&["b-a=20mbit".parse().unwrap()]).unwrap();
        assert_rate(&lab, "a0", "b0", 20.0);
        let refused = |text: &str| lab.set_links(&[text.parse().unwrap()]).unwrap_err();
        assert!(matches!(refused("a-d=1mbit"), Error::BadLink { .. }));
        assert!(matches!(refused("a-c=1mbit,delay=1ms"), Error::NotWan { .. }));
    }
}

/// A UDP round trip is never shorter than `nominal_ms`, and not always much longer.
#[track_caller]
fn assert_round_trip(lab: &Lab, one: &str, other: &str, nominal_ms: f64) {
    let on = |host: &str| socket(lab, host, (lab.cluster_address(host).unwrap(), 0));
    let (a, b) = (on(one), on(other));
    assert_time_ms(&format!("{one} to {other}"), nominal_ms - 0.1, nominal_ms + 10.0, || {
        let start = Instant::now();
        assert!(reaches(&a, &b) && reaches(&b, &a));
        start.elapsed().as_secs_f64() * 1e3
    });
}

#[test]
fn a_delay_affects_only_its_link() {
    if !supported() {
        return;
    }
    let lab = up(&mesh(&[("a", 2), ("b", 1), ("c", 1)], &["a-b=50mbit,delay=20ms"]));
    assert_round_trip(&lab, "a1", "b0", 40.0);
    assert_round_trip(&lab, "a1", "c0", 0.0);
    assert_round_trip(&lab, "a0", "a1", 0.0);
    lab.set_links(&["a-b=delay=50ms".parse().unwrap()]).unwrap();
    assert_round_trip(&lab, "b0", "a0", 100.0);
}

#[test]
fn access_limits_the_traffic_of_each_host_with_other_clusters() {
    if !supported() {
        return;
    }
    let lab = up(&mesh(&[("a", 2), ("b", 2)], &["a-b=200mbit"]).access("20mbit".parse().ok()));
    assert_unlimited(&lab, "a0", "a1");
    assert_rate(&lab, "a0", "b0", 20.0);
    // Two senders of 20 Mbit/s each share the limit of one receiver.
    let before = direction(&lab, "a", "b").bytes;
    let to = lab.cluster_address("b1").unwrap();
    let begun = Instant::now();
    loop {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for from in ["a0", "a1"] {
                let lab = &lab;
                scope.spawn(move || tcp_rate_mbit_s(lab, from, ("b1", to), 1_500_000));
            }
        });
        let rate_mbit_s = 2.0 * 1_500_000.0 * 8.0 / 1e6 / start.elapsed().as_secs_f64();
        assert!(rate_mbit_s < 22.0, "{rate_mbit_s} Mbit/s came in");
        if rate_mbit_s > 10.0 {
            break;
        }
        assert!(begun.elapsed() < RECEIVE_TIMEOUT, "only {rate_mbit_s} Mbit/s came in");
    }
    assert!(direction(&lab, "a", "b").bytes - before > 3_000_000);
}

#[test]
fn a_link_that_was_down_or_cut_gets_its_routes_back() {
    if !supported() {
        return;
    }
    for delay in ["", ",delay=1ms"] {
        let lab = up(&mesh(&[("a", 1), ("b", 1)], &[&format!("a-b=10mbit{delay}")]));
        let a = socket(&lab, "a0", (lab.cluster_address("a0").unwrap(), 0));
        let b = socket(&lab, "b0", (lab.cluster_address("b0").unwrap(), 0));
        for link in [LinkState::Down, LinkState::Up, LinkState::Cut, LinkState::Down, LinkState::Up] {
            lab.set_link(0, link).unwrap();
            let expected = link == LinkState::Up;
            let found = if expected { reaches_again(&a, &b) && reaches_again(&b, &a) } else { is_cut_off(&a, &b) };
            assert!(found, "{link:?}{delay}");
        }
    }
}

#[test]
fn no_part_of_clusters_remains_after_a_drop_a_panic_or_an_error() {
    if !supported() {
        return;
    }
    let clusters = mesh(&[("a", 4), ("b", 12), ("c", 16), ("d", 32)], &["a-b=10mbit,delay=1ms"]);
    let lab = up(&clusters);
    let name = lab.name().to_owned();
    let relay = lab.relay_pid().unwrap().expect("a relay emulates the delay");
    assert_eq!(namespaces(&name).len(), 68, "64 hosts and four routers");
    drop(lab);
    assert_eq!(namespaces(&name), [""; 0]);
    assert!(!std::path::Path::new(&format!("/proc/{relay}/exe")).exists(), "the relay has ended");

    let mut name = String::new();
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let lab = up(&mesh(&[("a", 2), ("b", 2)], &[]));
        name = lab.name().to_owned();
        panic!("on purpose");
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(namespaces(&name), [""; 0]);

    // The creation fails at the port of the last host, after all others exist.
    let name = format!("failing-clusters-{}", std::process::id());
    let mut topology = clusters.topology().unwrap();
    topology.hosts[67].sysctl.insert("net.ipv4.conf.lan.no_such_thing".into(), "1".into());
    let error = Lab::up(&name, &topology).unwrap_err();
    assert!(matches!(error, Error::Sysctl { .. }), "{error}");
    assert_eq!(namespaces(&name), [""; 0]);
}

#[test]
fn gso_packets_are_segmented_before_they_are_queued() {
    if !supported() {
        return;
    }
    // The ten segments of the initial window arrive as few GSO packets. The queue has room for
    // three segments.
    const BYTES: usize = 10 * 1448;
    for delay in ["", ",delay=1ms"] {
        let lab = up(&mesh(&[("a", 1), ("b", 1)], &[&format!("a-b=1mbit,queue=3p{delay}")]));
        let to = lab.cluster_address("b0").unwrap();
        tcp_rate_mbit_s(&lab, "a0", ("b0", to), BYTES);
        let LinkDirection { drops, packets, bytes, .. } = direction(&lab, "a", "b");
        // There are more drops if retransmitted segments are dropped, too.
        assert!(drops >= 3, "{drops} dropped of ten");
        assert!(packets >= 10 && bytes / packets < 1514, "{bytes} bytes in {packets} packets");
    }
}
