//! The links between the switches of hosts with several ports.

use crate::plan::names::{self, NEXT_SWITCH_PORT, PREVIOUS_SWITCH_PORT};
use crate::plan::port::PlannedPort;
use crate::spec::topology::Topology;

/// The interface index of a switch's port to the next switch. It is above those of the ports to
/// hosts, of which there are at most 254.
const NEXT_SWITCH_INDEX: usize = 500;
/// The interface index of a switch's port to the previous switch.
const PREVIOUS_SWITCH_INDEX: usize = 501;

/// The veth pairs of a trunk, each from a switch to the next one, with their MTU in bytes. Empty if
/// the topology has no trunk.
pub(crate) fn trunk_pairs(lab: &str, topology: &Topology) -> Vec<(PlannedPort, PlannedPort, u32)> {
    if !topology.ports.is_some_and(|ports| ports.trunk) {
        return Vec::new();
    }
    let end = |switch: usize, name: &str, index: usize| PlannedPort {
        namespace: names::switch_namespace(lab, switch),
        name: name.to_owned(),
        index,
        rate: None,
        egress: None,
        is_host: false,
    };
    let link = |switch: usize| {
        let next = end(switch, NEXT_SWITCH_PORT, NEXT_SWITCH_INDEX);
        let previous = end(switch + 1, PREVIOUS_SWITCH_PORT, PREVIOUS_SWITCH_INDEX);
        (next, previous, topology.rails[switch].mtu)
    };
    (0..topology.rails.len() - 1).map(link).collect()
}
