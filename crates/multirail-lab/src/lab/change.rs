//! Changes of the rates and WAN properties of rails while a lab is up.

use crate::error::Result;
use crate::kernel::batch::{self, Batch};
use crate::kernel::{netns, tap};
use crate::lab::configure::set_offloads;
use crate::lab::handle::Lab;
use crate::lab::state::LabState;
use crate::plan::port::PlannedPort;
use crate::spec::topology::LabRail;
use std::collections::{BTreeMap, BTreeSet};

impl Lab {
    /// Changes the rails with these indices. All ports of a namespace change by one command.
    pub(crate) fn change_rails(&self, named: &BTreeSet<usize>, change: impl FnOnce(&mut [LabRail])) -> Result<()> {
        self.change(|state| {
            let before = self.ports_of(state, named);
            change(&mut state.topology.rails);
            state.topology.check()?;
            let after = self.ports_of(state, named);
            change_ports(&before, &after)?;
            if let Some(shared) = self.shared(state)? {
                let plan = state.plan(self.name());
                let directions = plan.directions().into_iter().zip(shared.directions());
                directions
                    .filter(|(direction, _)| named.contains(&direction.rail))
                    .for_each(|(direction, shared)| shared.set(&plan.link_params(&direction)));
            }
            Ok(())
        })
    }

    /// The ports of rails, and whether the relay carries their packets.
    fn ports_of(&self, state: &LabState, rails: &BTreeSet<usize>) -> Vec<(PlannedPort, bool)> {
        let plan = state.plan(self.name());
        let of_rail = |&rail| plan.ports(rail).into_iter().map(move |port| (port, plan.is_relayed(rail)));
        rails.iter().flat_map(of_rail).collect()
    }
}

fn change_ports(before: &[(PlannedPort, bool)], after: &[(PlannedPort, bool)]) -> Result<()> {
    let mut batches = BTreeMap::new();
    for ((before, _), (after, _)) in before.iter().zip(after) {
        if before.egress != after.egress {
            let batch = batches.entry(&after.namespace).or_insert_with(|| Batch::in_namespace(&after.namespace));
            batch.set_egress(&after.name, before.egress.as_ref(), after.egress.as_ref());
        }
    }
    batch::run_all(batches.values())?;
    for ((before, _), (after, is_relayed)) in before.iter().zip(after) {
        if before.egress.is_some() != after.egress.is_some() {
            set_offloads(&after.namespace, &[&after.name], after.egress.is_none())?;
        }
        if *is_relayed && before.rate != after.rate {
            // The device only reports its speed, so a failure does no harm.
            let _ = netns::run_in(&after.namespace, || tap::set_speed_here(&after.name, after.rate))?;
        }
    }
    Ok(())
}
