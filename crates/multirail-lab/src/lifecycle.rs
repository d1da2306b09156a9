//! How a lab comes and goes.

use crate::error::{Error, Result};
use crate::kernel::{self, Batch};
use crate::lab::Removed;
use crate::plan::Plan;
use crate::relay::Relay;
use crate::shared::Shared;
use crate::state::{self, State, WanBy};
use crate::topology::{Host, Topology};
use crate::{mesh, names, netns, plan, port, ports, process, tap};
use std::collections::BTreeMap;

/// By what this machine makes WANs.
pub(crate) fn wan_by(topology: &Topology) -> Result<WanBy> {
    // What routers forward may be glued together. The relay takes it apart, netem would delay or lose it whole.
    if !topology.clusters.is_empty() || !topology.rails.iter().any(|rail| rail.wan().is_wan()) {
        return Ok(WanBy::default());
    }
    Ok(if netns::run_in_new(kernel::try_netem_here)? { WanBy::Netem } else { WanBy::Relay })
}

/// Makes namespaces, ports, switches and the relay; the state must be written already.
pub(crate) fn make(lab: &str, state: &mut State) -> Result<()> {
    let topology = state.topology.clone();
    let plan = Plan { lab, topology: &topology, wan_by: state.wan_by };
    let rails = || 0..topology.rails.len();
    let mut batch = Batch::initial();
    for namespace in plan.namespaces() {
        batch.add_namespace(&namespace);
    }
    batch.run()?;

    // Before there are ports, which are born with what net.ipv4.conf.default says.
    for host in &topology.hosts {
        set_own_sysctls(lab, host)?;
        if names::is_router(&host.name) {
            mesh::set_router_sysctls(lab, host)?;
        }
        set_sysctls(lab, host, |key| !names_a_port(key))?;
    }

    let mut batch = Batch::initial();
    for (one, other, mtu_bytes) in plan.all_pairs() {
        batch.add_pair(&one, &other, mtu_bytes);
    }
    batch.run()?;

    for rail in rails() {
        if let Some(switch) = plan.switch(rail) {
            let mut batch = Batch::in_namespace(&switch);
            batch.add_bridge(plan::BRIDGE, topology.rails[rail].mtu);
            let pairs = plan.pairs(rail);
            for (_, at_switch) in &pairs {
                batch.join_bridge(&at_switch.name, plan::BRIDGE);
            }
            batch.run()?;
        }
    }
    if !plan.directions().is_empty() {
        state.relay = Some(start_relay(&plan)?);
        state::write(lab, state)?;
    }
    configure_ports(&plan)?;
    join_switches(&plan)?;
    mesh::configure(&plan)?;
    topology.hosts.iter().try_for_each(|host| set_sysctls(lab, host, names_a_port))
}

/// Makes the ports of relayed rails, and the process that carries their packets.
fn start_relay(plan: &Plan<'_>) -> Result<state::Process> {
    let failed = |doing| {
        move |reason: std::io::Error| {
            let hint = match reason.kind() {
                std::io::ErrorKind::NotFound => "\nhint: a rail with a delay needs netem, or TUN/TAP: /dev/net/tun",
                _ => "",
            };
            Error::Relay { lab: plan.lab.to_owned(), doing, reason, hint }
        }
    };
    let directions = plan.directions();
    let mut taps = Vec::new();
    for rail in (0..plan.topology.rails.len()).filter(|&rail| plan.is_relayed(rail)) {
        for port in plan.ports(rail) {
            let made = netns::run_in(&port.namespace, || {
                let made = tap::make_here(&port.name)?;
                tap::set_speed_here(&port.name, port.rate)?;
                Ok(made)
            })?;
            taps.push(made.map_err(failed("cannot make a port"))?);
            let mut batch = Batch::in_namespace(&port.namespace);
            batch.prepare_tap(&port.name, plan.topology.rails[rail].mtu);
            batch.run()?;
        }
    }
    let path = state::relay_path(plan.lab);
    let shared = Shared::create(&path, directions.len()).map_err(|e| state::failed(&path, e))?;
    for (direction, shared) in directions.iter().zip(shared.directions()) {
        shared.set(&plan.params(direction));
    }
    let watch = process::watch_this().map_err(failed("cannot watch this process"))?;
    let relay = Relay::new(plan, taps, shared, watch).map_err(failed("cannot have its memory"))?;
    process::start(relay).map_err(failed("cannot start it"))
}

/// Removes whatever there is of a lab. The lock must be held.
pub(crate) fn take_down(name: &str) -> Result<Removed> {
    let mut namespaces: Vec<String> = namespaces_of(name).collect();
    // A switch or a router first: its ports take those of all its hosts with them, in one grace period.
    namespaces.sort_by_key(|namespace| !names::is_hub(namespace));
    let mut removed = Removed::default();
    if let Ok(Some(State { relay: Some(relay), .. })) = state::read(name) {
        process::end(&relay);
    }
    for namespace in namespaces {
        removed.processes += netns::processes(&namespace);
        delete_ports(&namespace);
        kernel::delete_namespace(&namespace)?;
        removed.namespaces += 1;
    }
    state::remove(name)?;
    Ok(removed)
}

/// A process or a socket that stays keeps the nameless namespace, so ports do not go by themselves.
/// An error is none: the port may have gone with its peer just now, and the namespace may be half-made.
fn delete_ports(namespace: &str) {
    if netns::ports(namespace).iter().any(|port| port != plan::BRIDGE) {
        let mut batch = Batch::in_namespace(namespace);
        batch.delete_all_ports();
        let _ = batch.run();
    }
}

/// Takes down labs whose process is dead: tests that were killed, and an `up` that was. The lock must be held.
pub(crate) fn take_down_stale() -> Result<()> {
    for name in state::names() {
        // A state that cannot be read is somebody's to look at, not ours to remove.
        if let Ok(Some(State { owner: Some(owner), .. })) = state::read(&name)
            && !owner.is_alive()
        {
            take_down(&name)?;
        }
    }
    Ok(())
}

/// The namespaces that a lab has, whatever its state says.
pub(crate) fn namespaces_of(lab: &str) -> impl Iterator<Item = String> {
    netns::list().into_iter().filter(move |namespace| names::lab_of(namespace) == Some(lab))
}

/// Addresses and shaping, with one `ip` and one `tc` for each namespace.
fn configure_ports(plan: &Plan<'_>) -> Result<()> {
    let Plan { lab, topology, .. } = plan;
    let mut by_namespace: BTreeMap<String, Vec<(usize, plan::Port)>> = BTreeMap::new();
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
            if let Some(address) = topology.ipv4(*rail, index) {
                batch.add_ipv4(&port.name, address, 24);
            }
            if let Some(address) = topology.ipv6(*rail, index) {
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

fn join_switches(plan: &Plan<'_>) -> Result<()> {
    let trunks = || ports::trunks(plan).into_iter().flat_map(|(next, previous, _)| [next, previous]);
    for port in trunks() {
        let mut batch = Batch::in_namespace(&port.namespace);
        batch.join_bridge(&port.name, plan::BRIDGE);
        batch.set_up(&port.name);
        batch.run()?;
    }
    trunks().try_for_each(|port| wait_ready(&port.namespace, &[&port.name]))
}

/// Waits until ports of a namespace carry packets.
pub(crate) fn wait_ready(namespace: &str, ports: &[&str]) -> Result<()> {
    netns::run_in(namespace, || ports.iter().try_for_each(|name| port::wait_ready_here(name)))?
        .map_err(|reason| failed(namespace, "waiting for its ports", reason))
}

/// Switches segmentation offloads of ports.
pub(crate) fn set_offloads(namespace: &str, ports: &[&str], on: bool) -> Result<()> {
    netns::run_in(namespace, || ports.iter().try_for_each(|name| port::set_offloads_here(name, on)))?
        .map_err(|reason| failed(namespace, "cannot set offloads", reason))
}

pub(crate) fn failed(namespace: &str, doing: &'static str, reason: std::io::Error) -> Error {
    Error::Namespace { namespace: namespace.to_owned(), doing, reason }
}

/// These may be missing where the kernel has no IPv6.
fn set_own_sysctls(lab: &str, host: &Host) -> Result<()> {
    netns::run_in(&names::host_namespace(lab, &host.name), || {
        for interfaces in ["all", "default"] {
            // A port that goes down would lose its IPv6 addresses for good.
            let _ = netns::set_sysctl_here(&format!("net.ipv6.conf.{interfaces}.keep_addr_on_down"), "1");
            // Duplicate detection would delay link-local addresses by a second; there are no duplicates.
            let _ = netns::set_sysctl_here(&format!("net.ipv6.conf.{interfaces}.accept_dad"), "0");
        }
    })
}

fn set_sysctls(lab: &str, host: &Host, now: fn(&str) -> bool) -> Result<()> {
    netns::run_in(&names::host_namespace(lab, &host.name), || {
        for (key, value) in host.sysctl.iter().filter(|(key, _)| now(key)) {
            netns::set_sysctl_here(key, value).map_err(|reason| Error::Sysctl {
                host: host.name.clone(),
                key: key.clone(),
                value: value.clone(),
                hint: sysctl_hint(key, &reason),
                reason,
            })?;
        }
        Ok(())
    })?
}

/// Such as net.ipv4.conf.rail0.rp_filter.
fn names_a_port(key: &str) -> bool {
    key.split('.').any(names::is_port)
}

fn sysctl_hint(key: &str, error: &std::io::Error) -> &'static str {
    if key == "net.ipv4.tcp_congestion_control" && error.kind() == std::io::ErrorKind::PermissionDenied {
        return "\nhint: a namespace may use only what the machine allows to all: \
                sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'";
    }
    ""
}
