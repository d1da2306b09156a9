//! Which ports a rail has and how they are joined: from the topology alone, nothing is asked of the kernel.

use crate::names;
use crate::rate::Rate;
use crate::topology::{RAILS_MAX, Topology};

/// One end of a veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The kernel's number, different at the two ends. By chance they are often the same, and then the kernel takes the
    /// port for one without a peer, whose change of carrier it may handle a second later.
    pub(crate) index: usize,
    /// The rate of what leaves here.
    pub(crate) rate: Option<Rate>,
    /// A host's port has addresses; a switch's has none.
    pub(crate) is_host: bool,
}

/// Above the loopback, the bridge, and what the kernel may put into every namespace (tunl0 and its like).
const FIRST_SWITCH_INDEX: usize = 100;
const FIRST_HOST_INDEX: usize = 1000;

/// The name of the bridge in a switch namespace.
pub(crate) const BRIDGE: &str = "bridge";

/// The namespace of a rail's switch, if it joins more than two hosts.
pub(crate) fn switch(lab: &str, topology: &Topology, rail: usize) -> Option<String> {
    (topology.hosts_on(rail).len() > 2).then(|| names::switch_namespace(lab, rail))
}

/// The veth pairs of a rail: host to host, or each host to the switch.
pub(crate) fn pairs(lab: &str, topology: &Topology, rail: usize) -> Vec<(Port, Port)> {
    let host_port = |host: usize| {
        let name = &topology.hosts[host].name;
        Port {
            namespace: names::host_namespace(lab, name),
            name: names::host_port(rail),
            index: FIRST_HOST_INDEX + host * RAILS_MAX + rail,
            rate: topology.rails[rail].rate_of(name),
            is_host: true,
        }
    };
    let hosts = topology.hosts_on(rail);
    let Some(switch) = switch(lab, topology, rail) else {
        return vec![(host_port(hosts[0]), host_port(hosts[1]))];
    };
    let pair = |&host: &usize| {
        let at_host = host_port(host);
        let name = names::switch_port(host);
        let at_switch = Port {
            namespace: switch.clone(),
            name,
            index: FIRST_SWITCH_INDEX + host,
            rate: at_host.rate,
            is_host: false,
        };
        (at_host, at_switch)
    };
    hosts.iter().map(pair).collect()
}

/// All ports of a rail.
pub(crate) fn ports(lab: &str, topology: &Topology, rail: usize) -> Vec<Port> {
    pairs(lab, topology, rail).into_iter().flat_map(|(one, other)| [one, other]).collect()
}

/// All namespaces of a lab: hosts, then switches.
pub(crate) fn namespaces(lab: &str, topology: &Topology) -> Vec<String> {
    let hosts = topology.hosts.iter().map(|host| names::host_namespace(lab, &host.name));
    hosts.chain((0..topology.rails.len()).filter_map(|rail| switch(lab, topology, rail))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_are_joined_directly_and_three_by_a_switch() {
        let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit", "20mbit"]).unwrap();
        topology.rails[0].hosts = vec!["c".into(), "a".into()];
        let direct = pairs("x", &topology, 0);
        assert_eq!(direct.len(), 1);
        assert_eq!((direct[0].0.namespace.as_str(), direct[0].1.namespace.as_str()), ("mrlab-x-a", "mrlab-x-c"));
        let switched = pairs("x", &topology, 1);
        assert_eq!(switched.len(), 3);
        assert!(switched.iter().all(|(_, at_switch)| at_switch.namespace == "mrlab-x-switch.1"));
        assert_eq!(namespaces("x", &topology), ["mrlab-x-a", "mrlab-x-b", "mrlab-x-c", "mrlab-x-switch.1"]);
    }

    #[test]
    fn a_hosts_own_rate_holds_at_its_port_and_at_the_switch() {
        let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit"]).unwrap();
        topology.rails[0].rates.insert("b".into(), "5mbit".parse().unwrap());
        let rates: Vec<f64> = ports("x", &topology, 0).iter().map(|port| port.rate.unwrap().mbit_s()).collect();
        assert_eq!(rates, [10.0, 10.0, 5.0, 5.0, 10.0, 10.0]);
    }
}
