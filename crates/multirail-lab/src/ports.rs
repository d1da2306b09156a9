//! Hosts with several ports each: port k of every host leads to switch k. Switches have no link between them, or are joined.
//!
//! To the rest of this crate, a switch is a rail that joins all hosts, named and addressed otherwise.

use crate::error::{Error, Result};
use crate::names;
use crate::plan::{Plan, Port};
use crate::rate::Rate;
use crate::topology::{Host, Rail, Topology};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// As many as a big switch has slots; the second byte of an address is this and 90 at most.
const PORTS_MAX: usize = 64;
/// The second byte of the first port's network.
const FIRST_NETWORK: usize = 90;
/// A switch's ends of its links to the next and to the previous switch. Above those of hosts, of which there are at most 254.
const NEXT_SWITCH_INDEX: usize = 500;
const PREVIOUS_SWITCH_INDEX: usize = 501;
const NEXT_SWITCH_PORT: &str = "next";
const PREVIOUS_SWITCH_PORT: &str = "previous";

/// That the hosts of a topology have a port `eth0`, `eth1`, ... for each of its rails, which are switches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Whether the switches are joined by links as fast as the machine. Default: no.
    #[serde(default)]
    pub trunk: bool,
    /// Whether every port has an address, in a network of its own for each switch. Default: only `eth0` has one.
    #[serde(default)]
    pub subnets: bool,
}

impl Ports {
    /// Hosts that all have a port of each of these rates, each way. A rate is needed for all ports, or for none.
    pub fn topology<H: AsRef<str>>(self, hosts: &[H], rates: &[Option<Rate>]) -> Result<Topology> {
        let host = |name: &H| Host { name: name.as_ref().to_owned(), ..Host::default() };
        let rail = |rate: &Option<Rate>| Rail { rate: *rate, ..Rail::default() };
        let topology = Topology {
            hosts: hosts.iter().map(host).collect(),
            rails: rates.iter().map(rail).collect(),
            ports: Some(self),
            ..Topology::default()
        };
        topology.check()?;
        Ok(topology)
    }

    /// 10.(90 + port).0.(host + 1), in a network of 24 bits. None: the port has no address.
    pub(crate) fn ipv4(self, port: usize, host: usize) -> Option<Ipv4Addr> {
        // `check` bounds both.
        self.has_address(port).then(|| Ipv4Addr::new(10, (FIRST_NETWORK + port) as u8, 0, (host + 1) as u8))
    }

    /// fd90:0:0:port::(host + 1), in a network of 64 bits.
    pub(crate) fn ipv6(self, port: usize, host: usize) -> Option<Ipv6Addr> {
        self.has_address(port).then(|| Ipv6Addr::new(0xfd90, 0, 0, port as u16, 0, 0, 0, (host + 1) as u16))
    }

    fn has_address(self, port: usize) -> bool {
        port == 0 || self.subnets
    }
}

/// Whether ports can be made of what is said of hosts, rails and clusters.
pub(crate) fn check(topology: &Topology) -> Result<()> {
    if topology.ports.is_none() {
        return Ok(());
    }
    let bad = |reason: String| Err(Error::BadTopology(reason));
    if !topology.clusters.is_empty() {
        return bad("hosts with ports are in no cluster".into());
    }
    if !(1..=PORTS_MAX).contains(&topology.rails.len()) {
        return bad(format!("{} ports are not in 1..={PORTS_MAX}", topology.rails.len()));
    }
    for (port, rail) in topology.rails.iter().enumerate() {
        if rail.wan().is_wan() {
            return bad(format!("port {port}: ports have no delay, jitter and loss"));
        }
        if topology.hosts_on(port).len() != topology.hosts.len() {
            return bad(format!("port {port}: every host has every port"));
        }
    }
    // A packet is formed for the first port, and may leave by another: as one of TCP's large ones only if none is shaped.
    let of_host = |host: &Host| topology.rails.iter().filter(|rail| rail.rate_of(&host.name).is_some()).count();
    let shaped: usize = topology.hosts.iter().map(of_host).sum();
    if shaped != 0 && shaped != topology.hosts.len() * topology.rails.len() {
        return bad("some ports have a rate and some have none\nhint: give all of them a rate, or none".into());
    }
    Ok(())
}

/// The links between switches: each leads to the next.
pub(crate) fn trunks(plan: &Plan<'_>) -> Vec<(Port, Port, u32)> {
    if !plan.topology.ports.is_some_and(|ports| ports.trunk) {
        return Vec::new();
    }
    let end = |switch: usize, name: &str, index: usize| Port {
        namespace: names::switch_namespace(plan.lab, switch),
        name: name.to_owned(),
        index,
        rate: None,
        egress: None,
        is_host: false,
    };
    let link = |switch: usize| {
        let next = end(switch, NEXT_SWITCH_PORT, NEXT_SWITCH_INDEX);
        let previous = end(switch + 1, PREVIOUS_SWITCH_PORT, PREVIOUS_SWITCH_INDEX);
        (next, previous, plan.topology.rails[switch].mtu)
    };
    (0..plan.topology.rails.len() - 1).map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::WanBy;

    fn rate(text: &str) -> Option<Rate> {
        Rate::parse_optional(text).unwrap()
    }

    #[test]
    fn two_hosts_have_switches_too_and_a_trunk_joins_them_in_a_row() {
        let mut topology = Ports::default().topology(&["h1", "h2"], &[rate("10mbit"); 3]).unwrap();
        let namespaces = |topology: &Topology| Plan { lab: "x", topology, wan_by: WanBy::Relay }.namespaces();
        assert_eq!(namespaces(&topology)[2..], ["mrlab-x-switch.0", "mrlab-x-switch.1", "mrlab-x-switch.2"]);
        let pairs = |topology: &Topology| Plan { lab: "x", topology, wan_by: WanBy::Relay }.all_pairs();
        assert_eq!(pairs(&topology).len(), 6);
        assert_eq!(pairs(&topology)[2].0.name, "eth1");
        topology.ports = Some(Ports { trunk: true, subnets: false });
        let trunks: Vec<(String, String)> = pairs(&topology)[6..]
            .iter()
            .map(|(one, other, _)| (one.namespace.clone(), other.namespace.clone()))
            .collect();
        let switch = |number: usize| format!("mrlab-x-switch.{number}");
        assert_eq!(trunks, [(switch(0), switch(1)), (switch(1), switch(2))]);
    }

    #[test]
    fn only_the_first_port_has_an_address_unless_all_have() {
        let (one, all) = (Ports::default(), Ports { trunk: false, subnets: true });
        assert_eq!(one.ipv4(0, 3), Some(Ipv4Addr::new(10, 90, 0, 4)));
        assert_eq!((one.ipv4(1, 3), one.ipv6(1, 3)), (None, None));
        assert_eq!(all.ipv4(3, 0), Some(Ipv4Addr::new(10, 93, 0, 1)));
        assert_eq!(all.ipv6(3, 0).unwrap().to_string(), "fd90:0:0:3::1");
    }

    #[test]
    fn what_ports_cannot_be_is_refused() {
        let hosts = "[ports]\n[[host]]\nname='a'\n[[host]]\nname='b'\n[[host]]\nname='c'\n";
        for (rails, word) in [
            ("", "0 ports"),
            ("[[rail]]\ndelay='1ms'", "no delay"),
            ("[[rail]]\nhosts=['a','b']", "every host"),
            ("[[rail]]\nrate='1mbit'\n[[rail]]\n", "some have none"),
            ("[[rail]]\nrates={a='1mbit'}", "some have none"),
            ("[[cluster]]\nname='x'\nhosts=['a']", "no cluster"),
        ] {
            let error = Topology::from_toml(&format!("{hosts}{rails}")).unwrap_err().to_string();
            assert!(error.contains(word), "{rails:?}: {error}");
        }
        let topology =
            Topology::from_toml(&format!("{hosts}[[rail]]\nrates={{a='1mbit',b='2mbit',c='3mbit'}}")).unwrap();
        assert_eq!(Topology::from_toml(&toml::to_string(&topology).unwrap()).unwrap(), topology);
        assert!(Ports::default().topology(&["a", "b"], &[None; PORTS_MAX + 1]).is_err());
        assert!(Ports::default().topology(&["a", "b"], &[None; PORTS_MAX]).is_ok());
    }
}
