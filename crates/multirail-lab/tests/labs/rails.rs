//! Tests of rails: reachability, rates, failures and the settings of hosts.

use crate::common::{
    assert_rate_mbit_s, assert_time_ms, is_cut_off, lab, reaches, reaches_again, socket, supported, wan,
};
use multirail_lab::{Error, Lab, LinkState, Topology};
use std::net::IpAddr;
use std::process::Command;
use std::time::Instant;

#[test]
fn every_host_reaches_every_other_by_both_families() {
    if !supported() {
        return;
    }
    for hosts in [&["a", "b"][..], &["a", "b", "c"]] {
        let lab = lab(hosts, &["100mbit", "-"]);
        for rail in 0..2 {
            let addresses = |host: &str| -> [IpAddr; 2] {
                [lab.address(host, rail).unwrap().into(), lab.address_v6(host, rail).unwrap().unwrap().into()]
            };
            for (from, to) in [("a", hosts[hosts.len() - 1]), ("b", "a")] {
                for (from_address, to_address) in addresses(from).into_iter().zip(addresses(to)) {
                    let from_socket = socket(&lab, from, (from_address, 0));
                    let to_socket = socket(&lab, to, (to_address, 0));
                    assert!(reaches(&from_socket, &to_socket), "{from} to {to} on rail {rail} by {to_address}");
                }
            }
        }
    }
}

#[test]
fn a_rail_that_is_down_or_cut_returns_with_its_addresses() {
    if !supported() {
        return;
    }
    let hosts = [&["a", "b"][..], &["a", "b", "c"]];
    let labs =
        hosts.into_iter().flat_map(|hosts| [lab(hosts, &["100mbit"]), wan(hosts, "rate='100mbit'\ndelay='1ms'")]);
    for lab in labs {
        let check = |link: LinkState| {
            lab.set_link(0, link).unwrap();
            let summary = lab.summary().unwrap();
            assert_eq!(summary.links, [link]);
            let carrier = lab.command("a", "cat").unwrap().arg("/sys/class/net/rail0/carrier").output().unwrap();
            assert_eq!(carrier.stdout == b"1\n", link != LinkState::Down, "the carrier when {link:?}");
            let v4 = (
                socket(&lab, "a", (lab.address("a", 0).unwrap(), 0)),
                socket(&lab, "b", (lab.address("b", 0).unwrap(), 0)),
            );
            if link != LinkState::Up {
                assert!(is_cut_off(&v4.0, &v4.1), "IPv4 when {link:?}");
            } else {
                assert!(reaches_again(&v4.0, &v4.1), "IPv4 when {link:?}");
                let v6 = |host| socket(&lab, host, (lab.address_v6(host, 0).unwrap().unwrap(), 0));
                assert!(reaches_again(&v6("a"), &v6("b")), "IPv6 after {link:?}");
            }
        };
        use LinkState::{Cut, Down, Up};
        // Each state follows each other state, and itself.
        for link in [Up, Cut, Cut, Up, Down, Down, Up, Cut, Down, Cut, Up, Up] {
            check(link);
        }
    }
}

#[test]
fn a_cut_is_silent_for_the_sender_and_leaves_the_filters_of_others() {
    if !supported() {
        return;
    }
    let lab = lab(&["a", "b"], &["-"]);
    let a = socket(&lab, "a", (lab.address("a", 0).unwrap(), 0));
    let b = socket(&lab, "b", (lab.address("b", 0).unwrap(), 0));
    let tc = |line: &str| {
        let mut tc = lab.command("a", "tc").unwrap();
        String::from_utf8(tc.args(line.split(' ')).output().unwrap().stdout).unwrap()
    };
    tc("qdisc add dev rail0 clsact");
    let mut add = lab.command("a", "tc").unwrap();
    let add = add.args(["filter", "add", "dev", "rail0", "egress", "pref", "7", "protocol", "all"]);
    assert!(add.args(["bpf", "direct-action", "bytecode", "1,6 0 0 0"]).status().unwrap().success());
    assert!(reaches(&a, &b));
    lab.set_cut(0).unwrap();
    assert!(is_cut_off(&a, &b));
    a.send_to(b"x", b.local_addr().unwrap()).expect("the sender sees no error");
    lab.set_up(0).unwrap();
    assert!(reaches(&a, &b));
    assert!(tc("filter show dev rail0 egress").contains("pref 7"));
    assert_eq!(tc("filter show dev rail0 ingress").trim(), "");
}

#[test]
fn rates_are_within_bands_both_ways_and_when_set() {
    if !supported() {
        return;
    }
    // The bands are wide. They distinguish a shaped rail from an unshaped one and from another
    // rate.
    let lab = lab(&["a", "b"], &["100mbit", "-"]);
    let near = |rail, from, to, rate_mbit_s: f64| {
        let bytes = (rate_mbit_s * 1e6 / 8.0 * 0.3) as usize;
        let to = (to, lab.address(to, rail).unwrap());
        assert_rate_mbit_s(&lab, from, to, bytes, 0.6 * rate_mbit_s, 1.1 * rate_mbit_s);
    };
    let unshaped = |rail| {
        let to = ("b", lab.address("b", rail).unwrap());
        assert_rate_mbit_s(&lab, "a", to, 16 << 20, 150.0, f64::INFINITY);
    };
    near(0, "a", "b", 100.0);
    near(0, "b", "a", 100.0);
    unshaped(1);
    lab.set_rate(0, Some("20mbit".parse().unwrap())).unwrap();
    near(0, "a", "b", 20.0);
    lab.set_rate(1, Some("20mbit".parse().unwrap())).unwrap();
    near(1, "b", "a", 20.0);
    lab.set_rate(0, None).unwrap();
    unshaped(0);
}

#[test]
fn a_burst_takes_the_time_of_its_packets() {
    if !supported() {
        return;
    }
    // At 1 Mbit/s a full packet takes 12 ms, far more than a busy machine adds. The first one
    // passes without waiting, so four take at least the time of three. With GSO packets or a large
    // bucket they would take no time.
    let lab = lab(&["a", "b"], &["1mbit"]);
    let a = socket(&lab, "a", (lab.address("a", 0).unwrap(), 0));
    let b = socket(&lab, "b", (lab.address("b", 0).unwrap(), 0));
    assert!(reaches(&a, &b), "addresses are resolved");
    assert_time_ms("four packets", 30.0, 150.0, || {
        let start = Instant::now();
        for _ in 0..4 {
            a.send_to(&[0; 1472], b.local_addr().unwrap()).unwrap();
        }
        for _ in 0..4 {
            b.recv(&mut [0; 1472]).unwrap();
        }
        start.elapsed().as_secs_f64() * 1e3
    });
}

#[test]
fn a_host_has_its_sysctls_mtu_and_ports_and_no_others() {
    if !supported() {
        return;
    }
    let topology = Topology::from_toml(
        "[[host]]\nname='a'\n[host.sysctl]\n'net.ipv4.tcp_rmem'='4096 50000 60000'\n'net.ipv4.conf.rail0.rp_filter'='2'\n\
         [[host]]\nname='b'\n[[host]]\nname='c'\n[[rail]]\nmtu=9000\nipv6=false\nhosts=['b','a']\n[[rail]]\nrate='1gbit'",
    )
    .unwrap();
    let lab = Lab::temporary(&topology).unwrap();
    let text = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let ports = text(lab.command("c", "ls").unwrap().arg("/sys/class/net"));
    assert_eq!(ports.split_whitespace().collect::<Vec<_>>(), ["lo", "rail1"]);
    assert_eq!(text(lab.command("a", "cat").unwrap().arg("/sys/class/net/rail0/mtu")).trim(), "9000");
    let sysctls = text(
        lab.command("a", "cat")
            .unwrap()
            .args(["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/conf/rail0/rp_filter"]),
    );
    assert_eq!(sysctls.split_whitespace().collect::<Vec<_>>(), ["4096", "50000", "60000", "2"]);
    assert_eq!(lab.address_v6("a", 0).unwrap(), None);
    assert!(matches!(lab.address("c", 0), Err(Error::NotOnRail { rail: 0, .. })));
    assert!(matches!(lab.set_up(2), Err(Error::NoRail { rail: 2, rails: 2, .. })));
    assert!(matches!(lab.command("d", "true"), Err(Error::NoHost { .. })));
}
