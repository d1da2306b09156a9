use super::*;
use crate::spec::clusters::Clusters;
use crate::spec::topology::Ports;
use std::collections::BTreeSet;

fn plan(topology: &Topology, wan_by: WanEmulation) -> LabPlan<'_> {
    LabPlan { lab: "x", topology, wan_by }
}

#[test]
fn two_hosts_are_joined_directly_and_three_by_a_switch() {
    let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit", "20mbit"]).unwrap();
    topology.rails[0].hosts = vec!["c".into(), "a".into()];
    let plan = plan(&topology, WanEmulation::Relay);
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
fn the_rate_of_a_host_applies_at_its_port_and_at_the_switch() {
    let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit"]).unwrap();
    topology.rails[0].rates.insert("b".into(), "5mbit".parse().unwrap());
    let ports = plan(&topology, WanEmulation::Relay).ports(0);
    let rates: Vec<f64> = ports.iter().map(|port| port.rate.unwrap().mbit_s()).collect();
    assert_eq!(rates, [10.0, 10.0, 5.0, 5.0, 10.0, 10.0]);
}

#[test]
fn a_relayed_rail_has_no_pair_and_no_switch_and_delays_once() {
    let mut topology = Topology::simple(&["a", "b", "c"], &["10mbit", "-"]).unwrap();
    topology.rails[0].delay = "10ms".parse().ok();
    topology.rails[1].hosts = vec!["a".into(), "b".into()];
    topology.rails[1].loss = "0%".parse().ok();
    let relayed = plan(&topology, WanEmulation::Relay);
    assert_eq!(relayed.namespaces().len(), 3);
    assert_eq!((relayed.pairs(0).len(), relayed.ports(0).len()), (0, 3));
    assert!(relayed.ports(0).iter().all(|port| port.is_host && port.egress.is_none()));
    let directions = relayed.directions();
    let rail_0 = directions.iter().filter(|direction| direction.rail == 0);
    let delays: Vec<u64> = rail_0.map(|direction| relayed.link_params(direction).delay_ns).collect();
    assert_eq!(delays, [10_000_000, 0, 10_000_000, 0, 10_000_000, 0]);
    assert_eq!(directions.len(), 8);
    let netem = plan(&topology, WanEmulation::Netem);
    assert_eq!((netem.namespaces().len(), netem.directions().len()), (4, 0));
    let (at_host, at_switch) = &netem.pairs(0)[0];
    assert!(matches!((at_host.egress, at_switch.egress), (Some(Egress::Netem(_)), Some(Egress::Htb(_)))));
    assert!(matches!(netem.ports(1)[1].egress, Some(Egress::Netem(Netem { rate: None, .. }))));
}

#[test]
fn ports_of_two_hosts_lead_to_switches_that_a_trunk_joins_in_a_row() {
    let mut topology = Ports::default().topology(&["h1", "h2"], &["10mbit".parse().ok(); 3]).unwrap();
    let namespaces = |topology: &Topology| plan(topology, WanEmulation::Relay).namespaces();
    assert_eq!(namespaces(&topology)[2..], ["mrlab-x-switch.0", "mrlab-x-switch.1", "mrlab-x-switch.2"]);
    let pairs = |topology: &Topology| plan(topology, WanEmulation::Relay).all_pairs();
    assert_eq!(pairs(&topology).len(), 6);
    assert_eq!(pairs(&topology)[2].0.name, "eth1");
    topology.ports = Some(Ports::new().with_trunk(true));
    let trunks: Vec<(String, String)> =
        pairs(&topology)[6..].iter().map(|(one, other, _)| (one.namespace.clone(), other.namespace.clone())).collect();
    let switch = |number: usize| format!("mrlab-x-switch.{number}");
    assert_eq!(trunks, [(switch(0), switch(1)), (switch(1), switch(2))]);
}

#[test]
fn interface_indices_are_unique_in_a_namespace_and_differ_in_a_pair() {
    let topology = Clusters::new(&[("a", 40), ("b", 3)]).link_default("1mbit".parse().ok()).topology().unwrap();
    let plan = plan(&topology, WanEmulation::Relay);
    let pairs: Vec<(PlannedPort, PlannedPort)> =
        (0..2).flat_map(|cluster| cluster::pairs("x", &topology, cluster)).chain(plan.pairs(0)).collect();
    assert_eq!(pairs.len(), 44);
    let ends = pairs.iter().flat_map(|(one, other)| [one, other]);
    let numbers: BTreeSet<(&str, usize)> = ends.map(|port| (port.namespace.as_str(), port.index)).collect();
    assert_eq!(numbers.len(), 88);
    assert!(pairs.iter().all(|(one, other)| one.index != other.index));
}
