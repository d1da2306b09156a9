//! Tests of hosts with several ports: reachability, switches, rates, counters and failures.

use crate::common::{
    RECEIVE_TIMEOUT, assert_rate_mbit_s, is_cut_off, namespaces, reaches, reaches_again, socket, supported,
};
use multirail_lab::{Error, Lab, LinkState, PortStatus, Ports, Rate, TrafficCounters};
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

fn rate(text: &str) -> Option<Rate> {
    Rate::parse_optional(text).unwrap()
}

fn up(ports: Ports, hosts: &[&str], rates: &[&str]) -> Lab {
    let rates: Vec<Option<Rate>> = rates.iter().map(|text| rate(text)).collect();
    Lab::temporary(&ports.topology(hosts, &rates).unwrap()).unwrap()
}

const SUBNETS: Ports = Ports::new().with_subnets(true);

fn status(lab: &Lab, host: &str, number: usize) -> PortStatus {
    lab.ports().unwrap().into_iter().find(|port| port.host == host && port.number == number).unwrap()
}

fn carrier(lab: &Lab, host: &str, port: &str) -> bool {
    let path = format!("/sys/class/net/{port}/carrier");
    lab.command(host, "cat").unwrap().arg(path).output().unwrap().stdout == b"1\n"
}

#[test]
fn hosts_reach_each_other_at_all_ports_with_an_address() {
    if !supported() {
        return;
    }
    for (ports, addressed) in [(Ports::default(), 1), (SUBNETS, 3)] {
        for hosts in [&["h1", "h2"][..], &["h1", "h2", "h3"]] {
            let lab = up(ports, hosts, &["100mbit", "100mbit", "100mbit"]);
            let last = hosts[hosts.len() - 1];
            for port in 0..3 {
                assert_eq!(status(&lab, last, port).port, format!("eth{port}"));
                assert!(carrier(&lab, last, &format!("eth{port}")));
                if port >= addressed {
                    assert!(matches!(lab.address("h1", port), Err(Error::NoAddress { .. })));
                    assert_eq!(lab.address_v6("h1", port).unwrap(), None);
                    continue;
                }
                let addresses = |host: &str| -> [IpAddr; 2] {
                    [lab.address(host, port).unwrap().into(), lab.address_v6(host, port).unwrap().unwrap().into()]
                };
                for (from, to) in addresses("h1").into_iter().zip(addresses(last)) {
                    let (from, to) = (socket(&lab, "h1", (from, 0)), socket(&lab, last, (to, 0)));
                    assert!(reaches(&from, &to), "{from:?} to {to:?}");
                }
            }
        }
    }
}

/// Sends a frame for the last port of h2 from the first port of h1. Returns whether `arrives` is
/// true for it.
fn across_switches(ports: Ports, arrives: fn(&UdpSocket, &UdpSocket) -> bool) -> bool {
    let lab = up(ports, &["h1", "h2"], &["-", "-", "-"]);
    let mac = status(&lab, "h2", 2).mac;
    let run = |host: &str, line: &str| {
        let mut words = line.split(' ');
        lab.command(host, words.next().unwrap()).unwrap().args(words).status().unwrap().success()
    };
    // The address is at the last port of h2, but in the network of the first port.
    assert!(run("h2", "ip address add 10.90.0.77/32 dev eth2"));
    assert!(run("h1", &format!("ip neighbour replace 10.90.0.77 lladdr {mac} nud permanent dev eth0")));
    let from = socket(&lab, "h1", (lab.address("h1", 0).unwrap(), 0));
    let to = socket(&lab, "h2", ("10.90.0.77".parse::<IpAddr>().unwrap(), 0));
    arrives(&from, &to)
}

#[test]
fn only_a_trunk_joins_switches() {
    if !supported() {
        return;
    }
    assert!(across_switches(Ports::default(), is_cut_off));
    assert!(across_switches(Ports::new().with_trunk(true), reaches));
}

#[test]
fn ports_have_their_rates_in_each_direction_also_new_ones() {
    if !supported() {
        return;
    }
    let lab = up(SUBNETS, &["h1", "h2", "h3"], &["40mbit", "10mbit"]);
    // The bands distinguish the rates.
    let near = |port, from, to, rate_mbit_s: f64| {
        let bytes = (rate_mbit_s * 1e6 / 8.0 * 0.5) as usize;
        let to = (to, lab.address(to, port).unwrap());
        assert_rate_mbit_s(&lab, from, to, bytes, 0.6 * rate_mbit_s, 1.1 * rate_mbit_s);
    };
    near(0, "h1", "h2", 40.0);
    near(1, "h1", "h2", 10.0);
    lab.set_port_rate("h2", 0, rate("10mbit").unwrap()).unwrap();
    near(0, "h2", "h1", 10.0);
    near(0, "h1", "h2", 10.0);
    near(0, "h1", "h3", 40.0);
    let rates: Vec<Option<f64>> = lab.ports().unwrap().iter().map(|port| port.rate_mbit_s).collect();
    assert_eq!(rates, [40.0, 10.0, 10.0, 10.0, 40.0, 10.0].map(Some));
    assert!(matches!(lab.set_port_rate("h2", 2, rate("1mbit").unwrap()), Err(Error::NoRail { .. })));
    assert!(matches!(lab.set_rate(0, None), Err(Error::BadTopology(_))));
    assert!(matches!(lab.port_number("eth2"), Err(Error::NoPort { .. })));
}

#[test]
fn ports_count_their_traffic_in_each_direction() {
    if !supported() {
        return;
    }
    for rate in ["10mbit", "-"] {
        let lab = up(SUBNETS, &["h1", "h2"], &[rate, rate]);
        let before = (status(&lab, "h1", 1), status(&lab, "h2", 1));
        let sender = socket(&lab, "h1", (lab.address("h1", 1).unwrap(), 0));
        let receiver = socket(&lab, "h2", (lab.address("h2", 1).unwrap(), 0));
        for _ in 0..20 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
            receiver.recv(&mut [0; 1000]).unwrap();
        }
        let after = (status(&lab, "h1", 1), status(&lab, "h2", 1));
        // Beside the datagrams, hosts send ARP and neighbour discovery packets.
        let grown = |before: TrafficCounters, after: TrafficCounters| {
            let (bytes, packets) = (after.bytes - before.bytes, after.packets - before.packets);
            assert!(
                (20 * 1042..20 * 1042 + 2000).contains(&bytes) && (20..40).contains(&packets),
                "{bytes} in {packets}"
            );
        };
        grown(before.0.sent, after.0.sent);
        grown(before.1.received, after.1.received);
        assert!(after.0.received.bytes < 4000 && after.1.sent.bytes < 4000, "{after:?}");
    }
    // A fast port sends more than a slow one carries.
    let lab = up(SUBNETS, &["h1", "h2"], &["100mbit"]);
    lab.set_port_rate("h2", 0, rate("1mbit").unwrap()).unwrap();
    let sender = socket(&lab, "h1", (lab.address("h1", 0).unwrap(), 0));
    let start = Instant::now();
    while status(&lab, "h2", 0).received.drops <= 10 {
        assert!(start.elapsed() < RECEIVE_TIMEOUT, "nothing is dropped");
        for _ in 0..50 {
            sender.send_to(&[0; 1400], (lab.address("h2", 0).unwrap(), 9)).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    assert_eq!(status(&lab, "h1", 0).sent.drops, 0);
}

#[test]
fn a_port_fails_alone_and_comes_back() {
    if !supported() {
        return;
    }
    use LinkState::{Cut, Down, Up};
    let lab = up(SUBNETS, &["h1", "h2", "h3"], &["100mbit", "100mbit"]);
    let at = |host: &str, port| socket(&lab, host, (lab.address(host, port).unwrap(), 0));
    // Each state after each other one, and after itself.
    for link in [Up, Cut, Cut, Up, Down, Down, Up, Cut, Down, Cut, Up, Up] {
        lab.set_port_link("h2", 1, link).unwrap();
        assert_eq!(status(&lab, "h2", 1).link, link);
        assert_eq!(carrier(&lab, "h2", "eth1"), link != Down, "the carrier when {link:?}");
        assert!(carrier(&lab, "h1", "eth1") && carrier(&lab, "h2", "eth0"), "of other ports when {link:?}");
        assert_eq!(status(&lab, "h1", 1).link, Up);
        if link == Up {
            assert!(reaches_again(&at("h1", 1), &at("h2", 1)) && reaches_again(&at("h2", 1), &at("h1", 1)));
        } else {
            assert!(is_cut_off(&at("h1", 1), &at("h2", 1)), "to it when {link:?}");
            assert!(is_cut_off(&at("h2", 1), &at("h3", 1)), "from it when {link:?}");
        }
        assert!(reaches_again(&at("h1", 1), &at("h3", 1)) && reaches_again(&at("h2", 0), &at("h3", 0)));
    }
    // A whole switch.
    lab.set_down(0).unwrap();
    assert!(!carrier(&lab, "h1", "eth0") && !carrier(&lab, "h3", "eth0") && carrier(&lab, "h1", "eth1"));
    lab.set_up(0).unwrap();
    assert!(reaches_again(&at("h1", 0), &at("h3", 0)));
}

#[test]
fn a_failing_port_leaves_the_settings_of_the_host_alone() {
    if !supported() {
        return;
    }
    let lab = up(Ports::default(), &["h1", "h2"], &["100mbit", "100mbit"]);
    let show = || {
        let text = |command: &str, line: &str| {
            let output = lab.command("h1", command).unwrap().args(line.split(' ')).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        [text("tc", "qdisc show"), text("tc", "filter show dev eth1 ingress"), text("ip", "address show dev eth1")]
    };
    let tc = |line: &str| assert!(lab.command("h1", "tc").unwrap().args(line.split(' ')).status().unwrap().success());
    tc("qdisc add dev eth1 clsact");
    let before = show();
    lab.set_port_link("h1", 1, LinkState::Cut).unwrap();
    assert_eq!(show(), before);
    tc("qdisc delete dev eth1 clsact");
    lab.set_port_link("h1", 1, LinkState::Up).unwrap();
}

#[test]
fn eight_hosts_with_eight_ports_come_and_go() {
    if !supported() {
        return;
    }
    let hosts = ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"];
    let lab = up(Ports::new().with_trunk(true), &hosts, &["25mbit"; 8]);
    let name = lab.name().to_owned();
    assert_eq!(namespaces(&name).len(), 16, "hosts and switches");
    assert_eq!(lab.ports().unwrap().len(), 64);
    let macs: std::collections::BTreeSet<String> = lab.ports().unwrap().into_iter().map(|port| port.mac).collect();
    assert_eq!(macs.len(), 64);
    drop(lab);
    assert_eq!(namespaces(&name), [""; 0]);
}

#[test]
fn hosts_with_rails_have_no_ports() {
    if !supported() {
        return;
    }
    let lab = crate::common::lab(&["a", "b"], &["-"]);
    assert_eq!(lab.ports().unwrap(), []);
    assert!(matches!(lab.set_port_link("a", 0, LinkState::Cut), Err(Error::NoPorts { .. })));
    assert!(matches!(lab.port_number("rail0"), Err(Error::NoPorts { .. })));
}
