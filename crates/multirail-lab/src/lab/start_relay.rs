//! Creates the ports of relayed rails, and starts the relay.

use crate::error::{Error, Result};
use crate::kernel::batch::Batch;
use crate::kernel::process::ProcessIdentity;
use crate::kernel::{netns, tap};
use crate::lab::state;
use crate::plan::lab_plan::LabPlan;
use crate::relay::forwarder::Relay;
use crate::relay::process;
use crate::relay::shared::RelayMemory;

pub(crate) fn start_relay(plan: &LabPlan<'_>) -> Result<ProcessIdentity> {
    let failed = |doing| move |source: std::io::Error| Error::Relay { lab: plan.lab.to_owned(), doing, source };
    let directions = plan.directions();
    let mut taps = Vec::new();
    for rail in (0..plan.topology.rails.len()).filter(|&rail| plan.is_relayed(rail)) {
        for port in plan.ports(rail) {
            let created = netns::run_in(&port.namespace, || {
                let created = tap::create_here(&port.name)?;
                tap::set_speed_here(&port.name, port.rate)?;
                Ok(created)
            })?;
            taps.push(created.map_err(failed("cannot create a TAP device"))?);
            let mut batch = Batch::in_namespace(&port.namespace);
            batch.prepare_tap(&port.name, plan.topology.rails[rail].mtu);
            batch.run()?;
        }
    }
    let path = state::relay_path(plan.lab);
    let shared = RelayMemory::create(&path, directions.len()).map_err(|e| state::failed(&path, e))?;
    for (direction, shared) in directions.iter().zip(shared.directions()) {
        shared.set(&plan.link_params(direction));
    }
    let owner = process::watch_this_process().map_err(failed("cannot watch this process"))?;
    let relay = Relay::new(plan, taps, shared, owner).map_err(failed("cannot allocate its memory"))?;
    process::start(relay).map_err(failed("cannot start its process"))
}
