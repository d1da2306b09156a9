//! Creates and removes labs.

use crate::error::Result;
use crate::kernel::batch::{self, Batch};
use crate::kernel::{netns, try_netem_here};
use crate::lab::clusters;
use crate::lab::configure::{
    configure_ports, configure_switches, configure_trunk, is_of_port, set_default_sysctls, set_sysctls,
};
use crate::lab::start_relay::start_relay;
use crate::lab::state::{self, LabState};
use crate::plan::lab_plan::WanEmulation;
use crate::plan::names::{self, BRIDGE};
use crate::relay::process;
use crate::spec::names::is_router;
use crate::spec::topology::Topology;

/// What [`crate::Lab::take_down`] found and removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenDown {
    /// The number of namespaces that were removed.
    pub namespaces: usize,
    /// The number of processes that were in these namespaces. They go on without a network.
    pub processes: usize,
}

/// How this machine emulates the WANs of a topology.
pub(crate) fn wan_emulation(topology: &Topology) -> Result<WanEmulation> {
    // Routers forward GSO packets. The relay segments them, while netem would delay or lose them as
    // a whole.
    if !topology.clusters.is_empty() || !topology.rails.iter().any(|rail| rail.wan().is_wan()) {
        return Ok(WanEmulation::default());
    }
    Ok(if netns::run_in_new(try_netem_here)? { WanEmulation::Netem } else { WanEmulation::Relay })
}

/// Creates the namespaces, ports, switches and relay of a lab. The state must be written already.
pub(crate) fn create(lab: &str, state: &mut LabState) -> Result<()> {
    let unchanged = state.clone();
    let (plan, topology) = (unchanged.plan(lab), &unchanged.topology);
    let mut batch = Batch::initial();
    for namespace in plan.namespaces() {
        batch.add_namespace(&namespace);
    }
    batch.run()?;

    // These sysctls precede the ports, which inherit net.ipv4.conf.default when they are created.
    for host in &topology.hosts {
        set_default_sysctls(lab, host)?;
        if is_router(&host.name) {
            clusters::set_router_sysctls(lab, host)?;
        }
        set_sysctls(lab, host, |key| !is_of_port(key))?;
    }

    let mut batch = Batch::initial();
    for (one, other, mtu_bytes) in plan.all_pairs() {
        batch.add_pair(&one, &other, mtu_bytes);
    }
    batch.run()?;

    configure_switches(&plan)?;
    if !plan.directions().is_empty() {
        state.relay = Some(start_relay(&plan)?);
        state::write(lab, state)?;
    }
    configure_ports(&plan)?;
    configure_trunk(&plan)?;
    clusters::configure(&plan)?;
    topology.hosts.iter().try_for_each(|host| set_sysctls(lab, host, is_of_port))
}

/// Removes everything that exists of a lab. The caller must hold the lock.
pub(crate) fn take_down(name: &str) -> Result<TakenDown> {
    let mut namespaces: Vec<String> = namespaces_of(name).collect();
    // Switches and routers come first. Their ports take the ports of all their hosts with them, in
    // one grace period of the kernel.
    namespaces.sort_by_key(|namespace| !names::is_hub(namespace));
    let mut removed = TakenDown::default();
    if let Ok(Some(LabState { relay: Some(relay), .. })) = state::read(name) {
        process::end(&relay);
    }
    for namespace in namespaces {
        removed.processes += netns::processes(&namespace);
        delete_ports(&namespace);
        batch::delete_namespace(&namespace)?;
        removed.namespaces += 1;
    }
    state::remove(name)?;
    Ok(removed)
}

/// Deletes the ports of a namespace. They would survive the removal of its name as long as a
/// process or a socket keeps the namespace.
fn delete_ports(namespace: &str) {
    if netns::ports(namespace).iter().any(|port| port != BRIDGE) {
        let mut batch = Batch::in_namespace(namespace);
        batch.delete_all_ports();
        // It fails if the ports have just gone with their peers, or if the namespace is incomplete.
        let _ = batch.run();
    }
}

/// Takes down the labs whose owner has died without doing so. The caller must hold the lock.
pub(crate) fn take_down_stale() -> Result<()> {
    for name in state::names() {
        // An unreadable state is left for the user to examine.
        if let Ok(Some(LabState { owner: Some(owner), .. })) = state::read(&name)
            && !owner.is_alive()
        {
            take_down(&name)?;
        }
    }
    Ok(())
}

/// The existing namespaces of a lab, whatever its state says.
pub(crate) fn namespaces_of(lab: &str) -> impl Iterator<Item = String> {
    netns::list().into_iter().filter(move |namespace| names::lab_of(namespace) == Some(lab))
}
