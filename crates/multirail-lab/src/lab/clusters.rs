//! Configures the routers and hosts of clusters: bridges, addresses, neighbours, routes and access
//! limits.

use crate::error::Result;
use crate::kernel::batch::Batch;
use crate::kernel::netns;
use crate::lab::configure::{bypass_firewall_here, failed, wait_ready};
use crate::plan::addresses::{self, CLUSTER_NETWORK_BITS, mac};
use crate::plan::cluster::{self, MTU_BYTES};
use crate::plan::lab_plan::LabPlan;
use crate::plan::names::{self, BRIDGE};
use crate::spec::topology::LabHost;

/// Sets the sysctls of a router. Its ports inherit them, so it must have none yet.
pub(crate) fn set_router_sysctls(lab: &str, router: &LabHost) -> Result<()> {
    let namespace = names::host_namespace(lab, &router.name);
    netns::run_in(&namespace, || {
        // IPv6 packets of the router itself would count on the links. The sysctl is missing where
        // the kernel has no IPv6.
        let _ = netns::set_sysctl_here("net.ipv6.conf.default.disable_ipv6", "1");
        bypass_firewall_here();
        netns::set_sysctl_here("net.ipv4.ip_forward", "1")
    })?
    .map_err(|source| failed(&namespace, "cannot enable forwarding", source))
}

/// Configures all clusters. The rails must have their addresses already.
pub(crate) fn configure(plan: &LabPlan<'_>) -> Result<()> {
    let clusters = 0..plan.topology.clusters.len();
    clusters.clone().try_for_each(|cluster| configure_router(plan, cluster))?;
    clusters.clone().try_for_each(|cluster| configure_hosts(plan, cluster))?;
    for (at_host, _) in clusters.flat_map(|cluster| cluster::pairs(plan.lab, plan.topology, cluster)) {
        wait_ready(&at_host.namespace, &[&at_host.name])?;
    }
    Ok(())
}

/// Adds the routes of a rail again, which it loses when it goes down.
pub(crate) fn restore_routes(plan: &LabPlan<'_>, rail: usize) -> Result<()> {
    for cluster in 0..plan.topology.clusters.len() {
        let namespace = router_namespace(plan, cluster);
        let mut batch = Batch::in_namespace(&namespace);
        add_route(plan, cluster, rail, &mut batch);
        batch.run()?;
    }
    Ok(())
}

fn router_namespace(plan: &LabPlan<'_>, cluster: usize) -> String {
    names::host_namespace(plan.lab, &plan.topology.clusters[cluster].router())
}

fn configure_router(plan: &LabPlan<'_>, cluster: usize) -> Result<()> {
    let namespace = router_namespace(plan, cluster);
    let address = addresses::cluster_router(cluster);
    let mut batch = Batch::in_namespace(&namespace);
    batch.add_bridge(BRIDGE, MTU_BYTES);
    batch.set_mac(BRIDGE, &mac(address));
    batch.add_ipv4(BRIDGE, address, CLUSTER_NETWORK_BITS);
    for (host, (_, at_router)) in cluster::pairs(plan.lab, plan.topology, cluster).iter().enumerate() {
        batch.join_bridge(&at_router.name, BRIDGE);
        batch.set_up(&at_router.name);
        batch.set_egress(&at_router.name, None, at_router.egress.as_ref());
        let address = addresses::cluster_host(cluster, host);
        batch.add_neighbour(BRIDGE, address, &mac(address));
    }
    for rail in 0..plan.topology.rails.len() {
        add_route(plan, cluster, rail, &mut batch);
    }
    batch.run()
}

/// Adds the route to the cluster at the other end of a rail, if the rail is a link of this cluster.
fn add_route(plan: &LabPlan<'_>, cluster: usize, rail: usize, batch: &mut Batch<'_>) {
    // Routers are the first hosts, so the index of a router is that of its cluster.
    let other = match plan.topology.hosts_on(rail)[..] {
        [one, other] if one == cluster => other,
        [other, one] if one == cluster => other,
        _ => return,
    };
    if other < plan.topology.clusters.len() {
        let port = names::rail_port(rail);
        let next = addresses::rail_ipv4(rail, other);
        batch.set_mac(&port, &mac(addresses::rail_ipv4(rail, cluster)));
        batch.add_neighbour(&port, next, &mac(next));
        batch.add_route(&addresses::cluster_network_text(other), next, &port);
    }
}

fn configure_hosts(plan: &LabPlan<'_>, cluster: usize) -> Result<()> {
    let router = addresses::cluster_router(cluster);
    let pairs = cluster::pairs(plan.lab, plan.topology, cluster);
    for (host, (port, _)) in pairs.iter().enumerate() {
        // The sysctl is missing where the kernel has no IPv6.
        let disable_ipv6 = format!("net.ipv6.conf.{}.disable_ipv6", port.name);
        netns::run_in(&port.namespace, || netns::set_sysctl_here(&disable_ipv6, "1").ok())?;
        let own = addresses::cluster_host(cluster, host);
        let mut batch = Batch::in_namespace(&port.namespace);
        batch.set_mac(&port.name, &mac(own));
        batch.add_ipv4(&port.name, own, CLUSTER_NETWORK_BITS);
        batch.set_up(&port.name);
        let others =
            (0..pairs.len()).filter(|&other| other != host).map(|other| addresses::cluster_host(cluster, other));
        for address in others.chain([router]) {
            batch.add_neighbour(&port.name, address, &mac(address));
        }
        batch.add_route("default", router, &port.name);
        batch.set_egress(&port.name, None, port.egress.as_ref());
        batch.run()?;
    }
    Ok(())
}
