//! Configures ports, switches and hosts after they have been created.

use crate::error::{Error, Result};
use crate::kernel::batch::Batch;
use crate::kernel::{device, netns};
use crate::plan::addresses::{self, RAIL_NETWORK_BITS};
use crate::plan::lab_plan::LabPlan;
use crate::plan::names::{self, BRIDGE};
use crate::plan::port::PlannedPort;
use crate::plan::switches;
use crate::spec::topology::LabHost;
use std::collections::BTreeMap;
use std::io;

/// Adds addresses and shaping, with one `ip` and one `tc` per namespace, and waits for the ports.
pub(crate) fn configure_ports(plan: &LabPlan<'_>) -> Result<()> {
    let LabPlan { lab, topology, .. } = plan;
    let mut by_namespace: BTreeMap<String, Vec<(usize, PlannedPort)>> = BTreeMap::new();
    for rail in 0..topology.rails.len() {
        for port in plan.ports(rail) {
            by_namespace.entry(port.namespace.clone()).or_default().push((rail, port));
        }
    }
    for (index, host) in topology.hosts.iter().enumerate() {
        let namespace = names::host_namespace(lab, &host.name);
        let mut batch = Batch::in_namespace(&namespace);
        batch.set_up("lo");
        for (rail, port) in by_namespace.get(&namespace).into_iter().flatten() {
            if let Some(address) = addresses::ipv4(topology, *rail, index) {
                batch.add_ipv4(&port.name, address, RAIL_NETWORK_BITS);
            }
            if let Some(address) = addresses::ipv6(topology, *rail, index) {
                batch.add_ipv6(&port.name, address);
            }
        }
        batch.run()?;
    }
    for (namespace, ports) in &by_namespace {
        let shaped: Vec<&str> =
            ports.iter().filter(|(_, port)| port.egress.is_some()).map(|(_, port)| port.name.as_str()).collect();
        set_offloads(namespace, &shaped, false)?;
        let mut batch = Batch::in_namespace(namespace);
        for (_, port) in ports {
            batch.set_up(&port.name);
            batch.set_egress(&port.name, None, port.egress.as_ref());
        }
        batch.run()?;
    }
    for (namespace, ports) in &by_namespace {
        let names: Vec<&str> = ports.iter().map(|(_, port)| port.name.as_str()).collect();
        wait_ready(namespace, &names)?;
    }
    Ok(())
}

/// Creates the bridges of switches and adds their ports to them.
pub(crate) fn configure_switches(plan: &LabPlan<'_>) -> Result<()> {
    for rail in 0..plan.topology.rails.len() {
        if let Some(switch) = plan.switch(rail) {
            let mut batch = Batch::in_namespace(&switch);
            batch.add_bridge(BRIDGE, plan.topology.rails[rail].mtu);
            for (_, at_switch) in &plan.pairs(rail) {
                batch.join_bridge(&at_switch.name, BRIDGE);
            }
            netns::run_in(&switch, bypass_firewall_here)?;
            batch.run()?;
        }
    }
    Ok(())
}

/// Keeps the frames that bridges of this namespace forward out of the hooks of iptables. A switch
/// has no firewall, and each frame would cost processor time. The sysctls are missing where the
/// kernel has no br_netfilter.
pub(crate) fn bypass_firewall_here() {
    for family in ["iptables", "ip6tables", "arptables"] {
        let _ = netns::set_sysctl_here(&format!("net.bridge.bridge-nf-call-{family}"), "0");
    }
}

/// Joins the switches of a trunk.
pub(crate) fn configure_trunk(plan: &LabPlan<'_>) -> Result<()> {
    let ports = || switches::trunk_pairs(plan.lab, plan.topology).into_iter().flat_map(|(a, b, _)| [a, b]);
    for port in ports() {
        let mut batch = Batch::in_namespace(&port.namespace);
        batch.join_bridge(&port.name, BRIDGE);
        batch.set_up(&port.name);
        batch.run()?;
    }
    ports().try_for_each(|port| wait_ready(&port.namespace, &[&port.name]))
}

/// Waits until ports of a namespace carry packets.
pub(crate) fn wait_ready(namespace: &str, ports: &[&str]) -> Result<()> {
    netns::run_in(namespace, || ports.iter().try_for_each(|name| device::wait_ready_here(name)))?
        .map_err(|source| failed(namespace, "its ports do not become ready", source))
}

/// Switches the segmentation offloads of ports on or off.
pub(crate) fn set_offloads(namespace: &str, ports: &[&str], on: bool) -> Result<()> {
    netns::run_in(namespace, || ports.iter().try_for_each(|name| device::set_offloads_here(name, on)))?
        .map_err(|source| failed(namespace, "cannot set offloads", source))
}

/// The error of a step inside a namespace.
pub(crate) fn failed(namespace: &str, doing: &'static str, source: io::Error) -> Error {
    Error::Namespace { namespace: namespace.to_owned(), doing, source }
}

/// Sets the sysctls that every host needs. They are missing where the kernel has no IPv6.
pub(crate) fn set_default_sysctls(lab: &str, host: &LabHost) -> Result<()> {
    netns::run_in(&names::host_namespace(lab, &host.name), || {
        for interfaces in ["all", "default"] {
            // Without it, a port that goes down loses its IPv6 addresses.
            let _ = netns::set_sysctl_here(&format!("net.ipv6.conf.{interfaces}.keep_addr_on_down"), "1");
            // Duplicate address detection delays link-local addresses by a second.
            let _ = netns::set_sysctl_here(&format!("net.ipv6.conf.{interfaces}.accept_dad"), "0");
        }
    })
}

/// Sets the sysctls of a host that the predicate selects.
pub(crate) fn set_sysctls(lab: &str, host: &LabHost, is_selected: fn(&str) -> bool) -> Result<()> {
    netns::run_in(&names::host_namespace(lab, &host.name), || {
        for (key, value) in host.sysctl.iter().filter(|(key, _)| is_selected(key)) {
            netns::set_sysctl_here(key, value).map_err(|source| Error::Sysctl {
                host: host.name.clone(),
                key: key.clone(),
                value: value.clone(),
                source,
            })?;
        }
        Ok(())
    })?
}

/// Whether a sysctl belongs to a port, as net.ipv4.conf.rail0.rp_filter.
pub(crate) fn is_of_port(key: &str) -> bool {
    key.split('.').any(names::is_port)
}
