//! The peers file: the hosts, and the addresses and speeds of their ports.
//!
//! Each line lists the ports of one host in order. A port is an Ethernet address, optionally
//! followed by its speed (`02:00:00:00:01:00=100mbit`). A comment starts with `#`. The file may
//! have a line for the host that reads it, so that all hosts can share one file.

use super::{MAX_PEERS, MAX_PORTS, Mac};
use crate::units::parse_rate_mbit_s;
use std::collections::HashMap;

/// A port of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPort {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its speed in Mbit/s; 0 if unknown.
    pub speed_mbit_s: u32,
}

/// The content of a peers file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hosts {
    /// The ports of this host, if it has a line.
    pub own: Option<Vec<HostPort>>,
    /// The ports of every other host, in the order of the lines.
    pub others: Vec<Vec<HostPort>>,
}

/// Parses a peers file.
///
/// `own` are the ports of this host. A line with any of them is this host's line, and must list all
/// of them in this order.
///
/// # Errors
/// The first invalid line.
pub fn parse_hosts(text: &str, own: &[Mac]) -> Result<Hosts, HostsError> {
    let mut hosts = Hosts::default();
    let mut line_of: HashMap<Mac, usize> = HashMap::new();
    for (line, content) in (1..).zip(text.lines()) {
        let at = |what| HostsError { line, what };
        let mut ports = Vec::new();
        for word in content.split('#').next().unwrap_or_default().split_whitespace() {
            let shown = |text: &str| text.chars().take(40).collect();
            let (mac, rate) = word.split_once('=').map_or((word, None), |(mac, rate)| (mac, Some(rate)));
            let mac: Mac = mac.parse().map_err(|_| at(HostsProblem::NoMac(shown(mac))))?;
            let speed = rate.map(|rate| parse_speed(rate).ok_or_else(|| at(HostsProblem::NoSpeed(shown(rate)))));
            if !mac.is_unicast() {
                return Err(at(HostsProblem::Group(mac)));
            }
            if let Some(&first) = line_of.get(&mac) {
                return Err(at(HostsProblem::Twice { mac, first }));
            }
            if ports.len() == MAX_PORTS {
                return Err(at(HostsProblem::TooManyPorts));
            }
            line_of.insert(mac, line);
            ports.push(HostPort { mac, speed_mbit_s: speed.transpose()?.unwrap_or(0) });
        }
        if ports.is_empty() {
            continue;
        }
        if !ports.iter().any(|port| own.contains(&port.mac)) {
            if hosts.others.len() == MAX_PEERS {
                return Err(at(HostsProblem::TooManyHosts));
            }
            hosts.others.push(ports);
        } else if ports.iter().map(|port| port.mac).eq(own.iter().copied()) {
            hosts.own = Some(ports);
        } else {
            return Err(at(HostsProblem::OwnMismatch { own: own.to_vec() }));
        }
    }
    Ok(hosts)
}

/// Parses a speed in whole Mbit/s; at least one.
fn parse_speed(text: &str) -> Option<u32> {
    let rate = parse_rate_mbit_s(text).ok()?.round();
    (1.0..=f64::from(u32::MAX)).contains(&rate).then_some(rate as u32)
}

/// An invalid line of a peers file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct HostsError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: HostsProblem,
}

/// What is wrong with a line of a peers file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostsProblem {
    /// A word is not an address.
    #[error("{0:?} is not an Ethernet address; write for example 02:00:00:00:01:00")]
    NoMac(String),
    /// The text after `=` is not a speed.
    #[error("{0:?} is not a port's speed of at least 1 Mbit/s; write for example =100mbit")]
    NoSpeed(String),
    /// The address is a group's or zero.
    #[error("{0} is not a unicast address")]
    Group(Mac),
    /// The address is in the file twice.
    #[error("{mac} is already on line {first}")]
    Twice {
        /// The address.
        mac: Mac,
        /// The line of its first occurrence.
        first: usize,
    },
    /// The line has too many ports.
    #[error("a host has at most {MAX_PORTS} ports")]
    TooManyPorts,
    /// The file has too many hosts.
    #[error("there can be at most {MAX_PEERS} other hosts")]
    TooManyHosts,
    /// The line has ports of this host, but not all of them in order.
    #[error("this line has ports of this host, whose ports are, in order: {}", list(own))]
    OwnMismatch {
        /// The ports of this host.
        own: Vec<Mac>,
    },
}

fn list(macs: &[Mac]) -> String {
    macs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mac(host: u8, port: u8) -> Mac {
        Mac([2, 0, 0, 0, host, port])
    }

    fn port(host: u8, number: u8, speed_mbit_s: u32) -> HostPort {
        HostPort { mac: mac(host, number), speed_mbit_s }
    }

    #[test]
    fn a_file_is_read_and_the_own_line_recognised() {
        let text = "# all\n\n02:00:00:00:01:00 02:00:00:00:01:01 # us\n 02:00:00:00:02:00\t02:00:00:00:02:01\n02:00:00:00:03:00\n";
        let hosts = parse_hosts(text, &[mac(1, 0), mac(1, 1)]).unwrap();
        assert_eq!(hosts.others, [vec![port(2, 0, 0), port(2, 1, 0)], vec![port(3, 0, 0)]]);
        assert_eq!(hosts.own, Some(vec![port(1, 0, 0), port(1, 1, 0)]));
        let hosts = parse_hosts(text, &[mac(9, 0), mac(9, 1)]).unwrap();
        assert_eq!((hosts.own, hosts.others.len()), (None, 3));
        assert_eq!(parse_hosts("", &[mac(1, 0)]), Ok(Hosts::default()));
    }

    #[test]
    fn a_port_may_have_a_speed() {
        let text = "02:00:00:00:01:00=100mbit 02:00:00:00:01:01\n02:00:00:00:02:00 02:00:00:00:02:01=2.5gbit\n";
        let hosts = parse_hosts(text, &[mac(1, 0), mac(1, 1)]).unwrap();
        assert_eq!(hosts.own, Some(vec![port(1, 0, 100), port(1, 1, 0)]));
        assert_eq!(hosts.others, [vec![port(2, 0, 0), port(2, 1, 2_500)]]);
    }

    #[test]
    fn each_fault_is_told_with_its_line() {
        let own = [mac(1, 0), mac(1, 1)];
        let what = |text: &str| parse_hosts(text, &own).unwrap_err();
        let ok = "02:00:00:00:02:00 02:00:00:00:02:01\n";
        assert_eq!(
            what(&format!("{ok}\n02:00:00:00:03\n")).to_string(),
            "line 3: \"02:00:00:00:03\" is not an Ethernet address; write for example 02:00:00:00:01:00"
        );
        for rate in ["", "fast", "0mbit", "0.4mbit", "-1mbit", "5000000gbit", "100mbit=1"] {
            let problem = what(&format!("02:00:00:00:02:00={rate}\n")).what;
            assert_eq!(problem, HostsProblem::NoSpeed(rate.into()));
        }
        assert_eq!(what("=100mbit\n").what, HostsProblem::NoMac(String::new()));
        assert_eq!(what("01:00:5e:00:00:01\n").what, HostsProblem::Group(Mac([1, 0, 0x5e, 0, 0, 1])));
        assert_eq!(what("ff:ff:ff:ff:ff:ff\n").what, HostsProblem::Group(Mac([255; 6])));
        assert_eq!(
            what(&format!("{ok}{ok}")),
            HostsError { line: 2, what: HostsProblem::Twice { mac: mac(2, 0), first: 1 } }
        );
        assert_eq!(what("02:00:00:00:01:01 02:00:00:00:01:00\n").what, HostsProblem::OwnMismatch { own: own.to_vec() });
        assert_eq!(what("02:00:00:00:01:00\n").what, HostsProblem::OwnMismatch { own: own.to_vec() });
        let line = |ports: u8| (0..ports).map(|p| mac(2, p).to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse_hosts(&line(16), &own).unwrap().others[0].len(), MAX_PORTS);
        assert_eq!(what(&line(17)).what, HostsProblem::TooManyPorts);
        let many = |hosts: usize| {
            (0..hosts).map(|h| format!("{}\n", Mac([4, 0, 0, 0, (h >> 8) as u8, h as u8]))).collect::<String>()
        };
        assert_eq!(parse_hosts(&many(MAX_PEERS), &own).unwrap().others.len(), MAX_PEERS);
        assert_eq!(what(&many(MAX_PEERS + 1)), HostsError { line: MAX_PEERS + 1, what: HostsProblem::TooManyHosts });
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f:# =mgbit.\n\u{fe}]{0,200}") {
            if let Ok(hosts) = parse_hosts(&text, &[mac(1, 0)]) {
                prop_assert!(hosts.others.iter().flatten().all(|port| port.mac.is_unicast()));
            }
        }
    }
}
