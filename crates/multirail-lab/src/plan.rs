//! Which ports a rail has and how they are joined: from the topology alone, nothing is asked of the kernel.

use crate::lan;
use crate::link::Params;
use crate::names;
use crate::ports;
use crate::rate::Rate;
use crate::shaping::{self, Egress, Netem, Shaping};
use crate::state::{State, WanBy};
use crate::topology::{RAILS_MAX, Topology};

/// A lab's topology, and by what its WANs are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) lab: &'a str,
    pub(crate) topology: &'a Topology,
    pub(crate) wan_by: WanBy,
}

/// A port of a host or a switch: one end of a veth pair, or a TAP device of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The kernel's number, different at the two ends. By chance they are often the same, and then the kernel takes the
    /// port for one without a peer, whose change of carrier it may handle a second later.
    pub(crate) index: usize,
    /// The rate of what leaves here.
    pub(crate) rate: Option<Rate>,
    /// How it leaves, if not as fast as the machine. A relay's port has none.
    pub(crate) egress: Option<Egress>,
    /// A host's port has addresses; a switch's has none.
    pub(crate) is_host: bool,
}

/// Above the loopback, the bridge, and what the kernel may put into every namespace (tunl0 and its like).
const FIRST_SWITCH_INDEX: usize = 100;
const FIRST_HOST_INDEX: usize = 1000;

/// The name of the bridge in a switch namespace.
pub(crate) const BRIDGE: &str = "bridge";

/// One direction of a relayed rail: what a host sends, and, on a rail with a switch, what comes to it from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Direction {
    pub(crate) rail: usize,
    /// The host's index.
    pub(crate) host: usize,
    pub(crate) to_host: bool,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(lab: &'a str, state: &'a State) -> Self {
        Self { lab, topology: &state.topology, wan_by: state.wan_by }
    }

    /// Whether a process carries the rail's packets.
    pub(crate) fn is_relayed(&self, rail: usize) -> bool {
        self.wan_by == WanBy::Relay && self.topology.rails[rail].wan().is_wan()
    }

    /// The namespace of a rail's switch, if it joins more than two hosts, or their ports, and is not relayed.
    pub(crate) fn switch(&self, rail: usize) -> Option<String> {
        let is_switched = self.topology.ports.is_some() || self.topology.hosts_on(rail).len() > 2;
        let is_switched = is_switched && !self.is_relayed(rail);
        is_switched.then(|| names::switch_namespace(self.lab, rail))
    }

    /// The name of a rail's port on each of its hosts.
    pub(crate) fn port_name(&self, rail: usize) -> String {
        names::port_of(self.topology, rail)
    }

    /// The veth pairs of all rails and clusters, and between switches, with their MTU in bytes.
    pub(crate) fn all_pairs(&self) -> Vec<(Port, Port, u32)> {
        let rails = (0..self.topology.rails.len()).map(|rail| (self.pairs(rail), self.topology.rails[rail].mtu));
        let clusters = (0..self.topology.clusters.len()).map(|cluster| (lan::pairs(self, cluster), lan::MTU_BYTES));
        let with_mtu = |(pairs, mtu): (Vec<(Port, Port)>, u32)| pairs.into_iter().map(move |(a, b)| (a, b, mtu));
        rails.chain(clusters).flat_map(with_mtu).chain(ports::trunks(self)).collect()
    }

    /// The veth pairs of a rail: host to host, or each host to the switch.
    pub(crate) fn pairs(&self, rail: usize) -> Vec<(Port, Port)> {
        if self.is_relayed(rail) {
            return Vec::new();
        }
        let hosts = self.topology.hosts_on(rail);
        let Some(switch) = self.switch(rail) else {
            return vec![(self.host_port(rail, hosts[0]), self.host_port(rail, hosts[1]))];
        };
        let pair = |&host: &usize| {
            let at_host = self.host_port(rail, host);
            let name = names::switch_port(host);
            let wanted = &self.topology.rails[rail];
            let at_switch = Port {
                namespace: switch.clone(),
                name,
                index: FIRST_SWITCH_INDEX + host,
                rate: at_host.rate,
                // A packet travels once: it has been delayed where it came from.
                egress: at_host.rate.map(|rate| Egress::Htb(Shaping::new(rate, &wanted.wan(), wanted.mtu))),
                is_host: false,
            };
            (at_host, at_switch)
        };
        hosts.iter().map(pair).collect()
    }

    /// All ports of a rail.
    pub(crate) fn ports(&self, rail: usize) -> Vec<Port> {
        if self.is_relayed(rail) {
            return self.topology.hosts_on(rail).into_iter().map(|host| self.host_port(rail, host)).collect();
        }
        self.pairs(rail).into_iter().flat_map(|(one, other)| [one, other]).collect()
    }

    /// All namespaces of the lab: hosts, then switches.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let hosts = self.topology.hosts.iter().map(|host| names::host_namespace(self.lab, &host.name));
        hosts.chain((0..self.topology.rails.len()).filter_map(|rail| self.switch(rail))).collect()
    }

    /// The directions of all relayed rails, in the order in which they are shared.
    pub(crate) fn directions(&self) -> Vec<Direction> {
        let mut directions = Vec::new();
        for rail in (0..self.topology.rails.len()).filter(|&rail| self.is_relayed(rail)) {
            let hosts = self.topology.hosts_on(rail);
            for &host in &hosts {
                directions.push(Direction { rail, host, to_host: false });
                if hosts.len() > 2 {
                    directions.push(Direction { rail, host, to_host: true });
                }
            }
        }
        directions
    }

    /// What a relay does in a direction. A packet travels, and may be lost, once: on its way from its sender.
    pub(crate) fn params(&self, direction: &Direction) -> Params {
        let rail = &self.topology.rails[direction.rail];
        let params = shaping::params(self.rate(direction.rail, direction.host), &rail.wan(), rail.mtu);
        if direction.to_host { Params { delay_ns: 0, jitter_ns: 0, loss_ppm: 0, ..params } } else { params }
    }

    fn host_port(&self, rail: usize, host: usize) -> Port {
        let wanted = &self.topology.rails[rail];
        let rate = self.rate(rail, host);
        let egress = match (self.wan_by, wanted.wan().is_wan()) {
            (WanBy::Relay, true) => None,
            (WanBy::Netem, true) => Some(Egress::Netem(Netem::new(rate, &wanted.wan(), wanted.mtu))),
            (_, false) => rate.map(|rate| {
                let shaping = Shaping::new(rate, &wanted.wan(), wanted.mtu);
                // A router has what hosts send as they glued it together.
                if names::is_router(&self.topology.hosts[host].name) {
                    Egress::Tbf(shaping)
                } else {
                    Egress::Htb(shaping)
                }
            }),
        };
        Port {
            namespace: names::host_namespace(self.lab, &self.topology.hosts[host].name),
            name: self.port_name(rail),
            index: FIRST_HOST_INDEX + host * RAILS_MAX + rail,
            rate,
            egress,
            is_host: true,
        }
    }

    fn rate(&self, rail: usize, host: usize) -> Option<Rate> {
        self.topology.rails[rail].rate_of(&self.topology.hosts[host].name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(topology: &Topology, wan_by: WanBy) -> Plan<'_> {
        Plan { lab: "x", topology, wan_by }
    }

    #[test]
    fn two_hosts_are_joined_directly_and_three_by_a_switch() {
        let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit", "20mbit"]).unwrap();
        topology.rails[0].hosts = vec!["c".into(), "a".into()];
        let plan = plan(&topology, WanBy::Relay);
        let direct = plan.pairs(0);
        assert_eq!(direct.len(), 1);
        assert_eq!((direct[0].0.namespace.as_str(), direct[0].1.namespace.as_str()), ("mrlab-x-a", "mrlab-x-c"));
        let switched = plan.pairs(1);
        assert_eq!(switched.len(), 3);
        assert!(switched.iter().all(|(_, at_switch)| at_switch.namespace == "mrlab-x-switch.1"));
        assert_eq!(plan.namespaces(), ["mrlab-x-a", "mrlab-x-b", "mrlab-x-c", "mrlab-x-switch.1"]);
        assert_eq!(plan.directions(), []);
    }

    #[test]
    fn a_hosts_own_rate_holds_at_its_port_and_at_the_switch() {
        let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit"]).unwrap();
        topology.rails[0].rates.insert("b".into(), "5mbit".parse().unwrap());
        let ports = plan(&topology, WanBy::Relay).ports(0);
        let rates: Vec<f64> = ports.iter().map(|port| port.rate.unwrap().mbit_s()).collect();
        assert_eq!(rates, [10.0, 10.0, 5.0, 5.0, 10.0, 10.0]);
    }

    #[test]
    fn a_relayed_rail_has_no_pair_and_no_switch_and_delays_once() {
        let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit", "-"]).unwrap();
        topology.rails[0].delay = "10ms".parse().ok();
        topology.rails[1].hosts = vec!["a".into(), "b".into()];
        topology.rails[1].loss = "0%".parse().ok();
        let relayed = plan(&topology, WanBy::Relay);
        assert_eq!(relayed.namespaces().len(), 3);
        assert_eq!((relayed.pairs(0).len(), relayed.ports(0).len()), (0, 3));
        assert!(relayed.ports(0).iter().all(|port| port.is_host && port.egress.is_none()));
        let directions = relayed.directions();
        let rail_0 = directions.iter().filter(|direction| direction.rail == 0);
        let delays: Vec<u64> = rail_0.map(|direction| relayed.params(direction).delay_ns).collect();
        assert_eq!(delays, [10_000_000, 0, 10_000_000, 0, 10_000_000, 0]);
        assert_eq!(directions.len(), 8);
        let netem = plan(&topology, WanBy::Netem);
        assert_eq!((netem.namespaces().len(), netem.directions().len()), (4, 0));
        let (at_host, at_switch) = &netem.pairs(0)[0];
        assert!(matches!((at_host.egress, at_switch.egress), (Some(Egress::Netem(_)), Some(Egress::Htb(_)))));
        assert!(matches!(netem.ports(1)[1].egress, Some(Egress::Netem(Netem { rate: None, .. }))));
    }
}
