//! Names of namespaces and ports.
//!
//! The namespace of a host is `mrlab-<lab>-<host>`, of the switch of rail 2 `mrlab-<lab>-switch.2`,
//! and of the router of cluster c `mrlab-<lab>-router.c`. A host name has no dash, so the last dash
//! divides lab from host, and taking down lab `a` never touches lab `a-b`.

use crate::spec::names::{check_lab, is_router};
use crate::spec::topology::Topology;

/// What the name of every namespace of this crate begins with.
pub(crate) const PREFIX: &str = "mrlab-";
/// The name of the bridge in the namespace of a switch or a router.
pub(crate) const BRIDGE: &str = "bridge";
/// A host's port to its cluster.
pub(crate) const CLUSTER_PORT: &str = "lan";
/// The port of a switch to the next switch of a trunk.
pub(crate) const NEXT_SWITCH_PORT: &str = "next";
/// The port of a switch to the previous switch of a trunk.
pub(crate) const PREVIOUS_SWITCH_PORT: &str = "previous";

const RAIL: &str = "rail";
const PORT: &str = "eth";
const SWITCH: &str = "switch.";

pub(crate) fn host_namespace(lab: &str, host: &str) -> String {
    format!("{PREFIX}{lab}-{host}")
}

pub(crate) fn switch_namespace(lab: &str, rail: usize) -> String {
    format!("{PREFIX}{lab}-{SWITCH}{rail}")
}

/// The lab that a namespace belongs to. `None` if this crate did not create the namespace.
pub(crate) fn lab_of(namespace: &str) -> Option<&str> {
    let (lab, _host) = namespace.strip_prefix(PREFIX)?.rsplit_once('-')?;
    check_lab(lab).is_ok().then_some(lab)
}

/// Whether the namespace is that of a switch or a router, which have ports to many hosts.
pub(crate) fn is_hub(namespace: &str) -> bool {
    namespace.rsplit_once('-').is_some_and(|(_, host)| host.starts_with(SWITCH) || is_router(host))
}

/// A host's port on a rail of this topology: `rail2`, or `eth2` where hosts have ports.
pub(crate) fn port_of(topology: &Topology, rail: usize) -> String {
    if topology.ports.is_some() { format!("{PORT}{rail}") } else { rail_port(rail) }
}

/// A host's port on a rail.
pub(crate) fn rail_port(rail: usize) -> String {
    format!("{RAIL}{rail}")
}

/// Whether this is the name of a host's port, as `rail0` in the name of a sysctl.
pub(crate) fn is_port(name: &str) -> bool {
    let numbered = |kind: &str| name.strip_prefix(kind).is_some_and(|number| number.parse::<usize>().is_ok());
    name == CLUSTER_PORT || numbered(RAIL) || numbered(PORT)
}

/// The port of a switch to a host. It has the index of the host, because the name of the host may
/// be longer than the 15 bytes of an interface name.
pub(crate) fn switch_port(host_index: usize) -> String {
    format!("port{host_index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_its_lab() {
        assert_eq!(lab_of(&host_namespace("a", "h1")), Some("a"));
        assert_eq!(lab_of(&host_namespace("a-b", "h1")), Some("a-b"));
        assert_eq!(lab_of(&switch_namespace("a-b", 3)), Some("a-b"));
        assert_eq!(lab_of("mrlab-x"), None);
        assert_eq!(lab_of("other-a-b"), None);
    }
}
