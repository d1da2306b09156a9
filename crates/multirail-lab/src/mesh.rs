//! How clusters are joined once their ports are there: bridges, addresses, routes, and the limits of access.

use crate::error::Result;
use crate::kernel::Batch;
use crate::plan::{self, Plan};
use crate::topology::{self, Host};
use crate::{lan, lifecycle, names, netns};

/// Before it has ports, which are born with what is said here.
pub(crate) fn set_router_sysctls(lab: &str, router: &Host) -> Result<()> {
    let namespace = names::host_namespace(lab, &router.name);
    netns::run_in(&namespace, || {
        // Missing where there is no IPv6. Its own packets would be counted on the links.
        let _ = netns::set_sysctl_here("net.ipv6.conf.default.disable_ipv6", "1");
        netns::set_sysctl_here("net.ipv4.ip_forward", "1")
    })?
    .map_err(|reason| lifecycle::failed(&namespace, "cannot make it forward", reason))
}

/// After the rails have their addresses.
pub(crate) fn configure(plan: &Plan<'_>) -> Result<()> {
    let clusters = 0..plan.topology.clusters.len();
    clusters.clone().try_for_each(|cluster| configure_router(plan, cluster))?;
    clusters.clone().try_for_each(|cluster| configure_hosts(plan, cluster))?;
    for (at_host, _) in clusters.flat_map(|cluster| lan::pairs(plan, cluster)) {
        lifecycle::wait_ready(&at_host.namespace, &[&at_host.name])?;
    }
    Ok(())
}

fn configure_router(plan: &Plan<'_>, cluster: usize) -> Result<()> {
    let wanted = &plan.topology.clusters[cluster];
    let namespace = names::host_namespace(plan.lab, &wanted.router());
    let address = lan::router_address(cluster);
    let mut batch = Batch::in_namespace(&namespace);
    batch.add_bridge(plan::BRIDGE, lan::MTU_BYTES);
    batch.set_mac(plan::BRIDGE, &lan::mac(address));
    batch.add_ipv4(plan::BRIDGE, address, lan::NETWORK_BITS);
    for (host, (_, at_router)) in lan::pairs(plan, cluster).iter().enumerate() {
        batch.join_bridge(&at_router.name, plan::BRIDGE);
        batch.set_up(&at_router.name);
        batch.set_egress(&at_router.name, None, at_router.egress.as_ref());
        let address = lan::host_address(cluster, host);
        batch.add_neighbour(plan::BRIDGE, address, &lan::mac(address));
    }
    for rail in 0..plan.topology.rails.len() {
        add_route(plan, cluster, rail, &mut batch);
    }
    batch.run()
}

/// A rail that was down has lost its routes.
pub(crate) fn restore_routes(plan: &Plan<'_>, rail: usize) -> Result<()> {
    for cluster in 0..plan.topology.clusters.len() {
        let namespace = names::host_namespace(plan.lab, &plan.topology.clusters[cluster].router());
        let mut batch = Batch::in_namespace(&namespace);
        add_route(plan, cluster, rail, &mut batch);
        batch.run()?;
    }
    Ok(())
}

/// The route to the cluster at the other end of a rail, if the rail is a link of this one. Routers are the first hosts.
fn add_route(plan: &Plan<'_>, cluster: usize, rail: usize, batch: &mut Batch<'_>) {
    let other = match plan.topology.hosts_on(rail)[..] {
        [one, other] if one == cluster => other,
        [other, one] if one == cluster => other,
        _ => return,
    };
    if other < plan.topology.clusters.len() {
        let port = names::host_port(rail);
        let next = topology::ipv4(rail, other);
        batch.set_mac(&port, &lan::mac(topology::ipv4(rail, cluster)));
        batch.add_neighbour(&port, next, &lan::mac(next));
        batch.add_route(&lan::network_of(other), next, &port);
    }
}

fn configure_hosts(plan: &Plan<'_>, cluster: usize) -> Result<()> {
    let router = lan::router_address(cluster);
    let pairs = lan::pairs(plan, cluster);
    for (host, (port, _)) in pairs.iter().enumerate() {
        let off = format!("net.ipv6.conf.{}.disable_ipv6", port.name);
        // Missing where there is no IPv6.
        netns::run_in(&port.namespace, || netns::set_sysctl_here(&off, "1").ok())?;
        let own = lan::host_address(cluster, host);
        let mut batch = Batch::in_namespace(&port.namespace);
        batch.set_mac(&port.name, &lan::mac(own));
        batch.add_ipv4(&port.name, own, lan::NETWORK_BITS);
        batch.set_up(&port.name);
        let others = (0..pairs.len()).filter(|&other| other != host).map(|other| lan::host_address(cluster, other));
        for address in others.chain([router]) {
            batch.add_neighbour(&port.name, address, &lan::mac(address));
        }
        batch.add_route("default", router, &port.name);
        batch.set_egress(&port.name, None, port.egress.as_ref());
        batch.run()?;
    }
    Ok(())
}
