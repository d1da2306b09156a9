//! The plan of a lab: its namespaces, the ports of its rails and how they are joined.

use crate::plan::names;
use crate::plan::port::PlannedPort;
use crate::plan::relay::{LinkParams, RelayDirection};
use crate::plan::shaping::{self, Egress, Netem, Shaping};
use crate::plan::{cluster, switches};
use crate::spec::check::RAILS_MAX;
use crate::spec::names::is_router;
use crate::spec::rate::Rate;
use crate::spec::topology::Topology;
use serde::{Deserialize, Serialize};

/// The interface index of a switch's first port, above those of the loopback, the bridge and the
/// interfaces that the kernel may create in every namespace, such as tunl0.
const FIRST_SWITCH_INDEX: usize = 100;
/// The interface index of the first port of the first host.
const FIRST_HOST_INDEX: usize = 1000;

/// What delays and drops the packets of WANs. It depends on the kernel of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WanEmulation {
    /// The relay, a process of the lab between TAP devices.
    #[default]
    Relay,
    /// The netem queue of the kernel, at the ports of veth pairs.
    Netem,
}

/// The name and topology of a lab, and how it emulates WANs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabPlan<'a> {
    pub(crate) lab: &'a str,
    pub(crate) topology: &'a Topology,
    pub(crate) wan_by: WanEmulation,
}

impl LabPlan<'_> {
    /// Whether the relay carries the packets of the rail.
    pub(crate) fn is_relayed(&self, rail: usize) -> bool {
        self.wan_by == WanEmulation::Relay && self.topology.rails[rail].wan().is_wan()
    }

    /// The namespace of the rail's switch. `None` for a relayed rail, and for a rail of two hosts,
    /// unless hosts have ports.
    pub(crate) fn switch(&self, rail: usize) -> Option<String> {
        let is_switched = self.topology.ports.is_some() || self.topology.hosts_on(rail).len() > 2;
        let is_switched = is_switched && !self.is_relayed(rail);
        is_switched.then(|| names::switch_namespace(self.lab, rail))
    }

    /// The name of a rail's port on each of its hosts.
    pub(crate) fn port_name(&self, rail: usize) -> String {
        names::port_of(self.topology, rail)
    }

    /// The veth pairs of all rails, clusters and trunks, with their MTU in bytes.
    pub(crate) fn all_pairs(&self) -> Vec<(PlannedPort, PlannedPort, u32)> {
        let topology = self.topology;
        let rails = (0..topology.rails.len()).map(|rail| (self.pairs(rail), topology.rails[rail].mtu));
        let clusters = (0..topology.clusters.len())
            .map(|cluster| (cluster::pairs(self.lab, topology, cluster), cluster::MTU_BYTES));
        let with_mtu = |(pairs, mtu): (Vec<_>, u32)| pairs.into_iter().map(move |(a, b)| (a, b, mtu));
        rails.chain(clusters).flat_map(with_mtu).chain(switches::trunk_pairs(self.lab, topology)).collect()
    }

    /// The veth pairs of a rail: host to host, or each host to the switch.
    pub(crate) fn pairs(&self, rail: usize) -> Vec<(PlannedPort, PlannedPort)> {
        if self.is_relayed(rail) {
            return Vec::new();
        }
        let hosts = self.topology.hosts_on(rail);
        let Some(switch) = self.switch(rail) else {
            return vec![(self.host_port(rail, hosts[0]), self.host_port(rail, hosts[1]))];
        };
        let pair = |&host: &usize| {
            let at_host = self.host_port(rail, host);
            let wanted = &self.topology.rails[rail];
            let at_switch = PlannedPort {
                namespace: switch.clone(),
                name: names::switch_port(host),
                index: FIRST_SWITCH_INDEX + host,
                rate: at_host.rate,
                // Only the port of the sending host delays packets, so that they are delayed once.
                egress: at_host.rate.map(|rate| Egress::Htb(Shaping::new(rate, &wanted.wan(), wanted.mtu))),
                is_host: false,
            };
            (at_host, at_switch)
        };
        hosts.iter().map(pair).collect()
    }

    /// All ports of a rail.
    pub(crate) fn ports(&self, rail: usize) -> Vec<PlannedPort> {
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

    /// The directions of all relayed rails, in the order of the relay's shared memory.
    pub(crate) fn directions(&self) -> Vec<RelayDirection> {
        let mut directions = Vec::new();
        for rail in (0..self.topology.rails.len()).filter(|&rail| self.is_relayed(rail)) {
            let hosts = self.topology.hosts_on(rail);
            for &host in &hosts {
                directions.push(RelayDirection { rail, host, to_host: false });
                if hosts.len() > 2 {
                    directions.push(RelayDirection { rail, host, to_host: true });
                }
            }
        }
        directions
    }

    /// The parameters of a relayed direction. Only the direction from the sender delays packets and
    /// loses them, so that both happen once.
    pub(crate) fn link_params(&self, direction: &RelayDirection) -> LinkParams {
        let rail = &self.topology.rails[direction.rail];
        let params = shaping::link_params(self.rate(direction.rail, direction.host), &rail.wan(), rail.mtu);
        if direction.to_host { LinkParams { delay_ns: 0, jitter_ns: 0, loss_ppm: 0, ..params } } else { params }
    }

    fn host_port(&self, rail: usize, host: usize) -> PlannedPort {
        let wanted = &self.topology.rails[rail];
        let rate = self.rate(rail, host);
        let egress = match (self.wan_by, wanted.wan().is_wan()) {
            (WanEmulation::Relay, true) => None,
            (WanEmulation::Netem, true) => Some(Egress::Netem(Netem::new(rate, &wanted.wan(), wanted.mtu))),
            (_, false) => rate.map(|rate| {
                let shaping = Shaping::new(rate, &wanted.wan(), wanted.mtu);
                if is_router(&self.topology.hosts[host].name) { Egress::Tbf(shaping) } else { Egress::Htb(shaping) }
            }),
        };
        PlannedPort {
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
mod tests;
