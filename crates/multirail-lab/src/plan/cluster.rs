//! The ports of the hosts of clusters and of their routers.
//!
//! A cluster is a bridge in the namespace of its router, with a port to each host. All hardware
//! addresses are fixed and known to all hosts in advance. The kernel keeps one table of learned
//! addresses for all namespaces, and its limit is 1024 entries.

use crate::plan::addresses::cluster_network;
use crate::plan::names;
use crate::plan::port::PlannedPort;
use crate::plan::shaping::{Access, AddressField, Egress, Shaping};
use crate::spec::topology::Topology;
use crate::spec::wan::{Queue, Wan};

/// The interface index of a router's first port to a host, above those of ports on rails.
const FIRST_ROUTER_INDEX: usize = 1_000_000;
/// The interface index of the first host's port to its cluster.
const FIRST_HOST_INDEX: usize = 1_100_000;
/// The MTU of the ports of a cluster.
pub(crate) const MTU_BYTES: u32 = 1500;
/// The smallest queue of a host's port with limited access. The kernel stops a connection once two
/// packets of 64 KiB wait. A shorter queue would drop packets of the local host, which a network
/// card does not.
const HOST_QUEUE_MIN_BYTES: u64 = 256 << 10;

/// The veth pairs of a cluster, each from the port of a host to a port of the router's bridge.
pub(crate) fn pairs(lab: &str, topology: &Topology, cluster: usize) -> Vec<(PlannedPort, PlannedPort)> {
    let wanted = &topology.clusters[cluster];
    let router = names::host_namespace(lab, &wanted.router());
    let access = |field: AddressField| {
        let mut shaping = Shaping::new(wanted.access?, &Wan::default(), MTU_BYTES);
        if let (AddressField::Destination, Queue::Bytes(bytes)) = (field, shaping.queue) {
            shaping.queue = Queue::Bytes(bytes.max(HOST_QUEUE_MIN_BYTES));
        }
        Some(Egress::Access(Access { shaping, inside: cluster_network(cluster), field }))
    };
    let pair = |host: &String| {
        let index = topology.host_index(host)?;
        let at_host = PlannedPort {
            namespace: names::host_namespace(lab, host),
            name: names::CLUSTER_PORT.to_owned(),
            index: FIRST_HOST_INDEX + index,
            rate: None,
            egress: access(AddressField::Destination),
            is_host: true,
        };
        let at_router = PlannedPort {
            namespace: router.clone(),
            name: names::switch_port(index),
            index: FIRST_ROUTER_INDEX + index,
            rate: None,
            egress: access(AddressField::Source),
            is_host: false,
        };
        Some((at_host, at_router))
    };
    wanted.hosts.iter().filter_map(pair).collect()
}
