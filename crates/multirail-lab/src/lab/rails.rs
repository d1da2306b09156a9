//! Operations on the rails of a lab that is up.

use crate::error::{Error, Result};
use crate::kernel::batch::Batch;
use crate::lab::clusters;
use crate::lab::configure::wait_ready;
use crate::lab::handle::Lab;
use crate::lab::state::LinkState;
use crate::relay::shared::WanCounters;
use crate::spec::rate::Rate;
use crate::spec::topology::LabRail;
use crate::spec::wan::{Delay, Wan};
use std::collections::BTreeSet;

impl Lab {
    /// Gives all ports of a rail a new rate, or none. Connections continue.
    ///
    /// A connection that was opened while the rail had no rate continues to send GSO packets, which
    /// HTB passes whole. Its mean rate is right, but its bursts are longer. Packets that wait in
    /// the queue of a relayed rail leave at the old rate.
    ///
    /// # Errors
    /// [`Error::NoRail`]; [`Error::BadTopology`] if only some ports of a host would have a rate; or
    /// the error of the kernel.
    pub fn set_rate(&self, rail: usize, rate: Option<Rate>) -> Result<()> {
        self.change_rail(rail, |rail| {
            rail.rate = rate;
            rail.rates.clear();
        })
    }

    /// Replaces the delay, jitter, loss and queue of a rail. Connections continue. Packets in
    /// flight keep their old delay.
    ///
    /// A rail that is a WAN stays one: without a delay it has a delay of zero.
    ///
    /// # Errors
    /// [`Error::NotWan`] if the rail is no WAN and the new properties would make it one;
    /// [`Error::NoRail`]; or the error of the kernel.
    pub fn set_wan(&self, rail: usize, wan: Wan) -> Result<()> {
        self.check_rail(rail)?;
        let was_wan = self.topology().rails[rail].wan().is_wan();
        if wan.is_wan() && !was_wan {
            return Err(Error::NotWan { lab: self.name().to_owned(), rail });
        }
        let wan = Wan { delay: wan.delay.or(was_wan.then_some(Delay::ZERO)), ..wan };
        self.change_rail(rail, |rail| rail.set_wan(wan))
    }

    /// Takes the hosts' ports of a rail down. They lose their carrier and routes.
    ///
    /// # Errors
    /// Those of [`Lab::set_link`].
    pub fn set_down(&self, rail: usize) -> Result<()> {
        self.set_link(rail, LinkState::Down)
    }

    /// Drops every packet on a rail silently. Ports, carrier, addresses and routes stay.
    ///
    /// # Errors
    /// Those of [`Lab::set_link`].
    pub fn set_cut(&self, rail: usize) -> Result<()> {
        self.set_link(rail, LinkState::Cut)
    }

    /// Ends [`Lab::set_down`] or [`Lab::set_cut`]. Addresses are as before.
    ///
    /// # Errors
    /// Those of [`Lab::set_link`].
    pub fn set_up(&self, rail: usize) -> Result<()> {
        self.set_link(rail, LinkState::Up)
    }

    /// Changes the state of a rail, from any state to any other.
    ///
    /// # Errors
    /// [`Error::NoRail`], or the error of the kernel.
    pub fn set_link(&self, rail: usize, link: LinkState) -> Result<()> {
        self.check_rail(rail)?;
        if self.topology().ports.is_some() {
            let ports: Vec<_> = (0..self.topology().hosts.len()).map(|host| (host, rail)).collect();
            return self.set_port_links(&ports, link);
        }
        self.change(|state| {
            let before = std::mem::replace(&mut state.links[rail], link);
            let plan = state.plan(self.name());
            let ports = plan.ports(rail);
            for port in &ports {
                let mut batch = Batch::in_namespace(&port.namespace);
                if before == LinkState::Cut && link != LinkState::Cut {
                    batch.restore(&port.name);
                }
                match link {
                    LinkState::Cut => batch.cut(&port.name),
                    LinkState::Down if port.is_host => batch.set_down(&port.name),
                    LinkState::Up | LinkState::Down => {}
                }
                if before == LinkState::Down && link != LinkState::Down && port.is_host {
                    batch.set_up(&port.name);
                }
                batch.run()?;
            }
            // A port is ready only when both ends of its pair are up.
            if before == LinkState::Down && link != LinkState::Down {
                for port in &ports {
                    wait_ready(&port.namespace, &[&port.name])?;
                }
                clusters::restore_routes(&plan, rail)?;
            }
            Ok(())
        })
    }

    /// The counters of all relayed WANs. Empty if there are none, or if the kernel emulates them.
    ///
    /// # Errors
    /// [`Error::NotUp`] if the lab has been taken down; [`Error::State`].
    pub fn wan_counters(&self) -> Result<Vec<WanCounters>> {
        let state = self.state()?;
        let Some(shared) = self.shared(&state)? else { return Ok(Vec::new()) };
        let directions = state.plan(self.name()).directions().into_iter().zip(shared.directions());
        let counters =
            directions.map(|(d, shared)| shared.counters(d.rail, &state.topology.hosts[d.host].name, d.to_host));
        Ok(counters.collect())
    }

    /// The PID of the relay, for example to measure its CPU time. `None` if there is no relay.
    ///
    /// # Errors
    /// [`Error::NotUp`] if the lab has been taken down; [`Error::State`].
    pub fn relay_pid(&self) -> Result<Option<u32>> {
        let state = self.state()?;
        Ok(state.relay.map(|relay| relay.pid()))
    }

    fn change_rail(&self, rail: usize, change: impl FnOnce(&mut LabRail)) -> Result<()> {
        self.check_rail(rail)?;
        self.change_rails(&BTreeSet::from([rail]), |rails| change(&mut rails[rail]))
    }
}
