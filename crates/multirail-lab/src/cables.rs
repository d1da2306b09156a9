//! What can be done with the ports of a lab's hosts while it is up, and what they have carried.
//!
//! All is done at the switch's end of a port's cable, so that what programs on the host set up there stays untouched.

use crate::error::{Error, Result};
use crate::kernel::{self, Batch, Interface, PortCounters};
use crate::lab::{Lab, LinkState};
use crate::lifecycle;
use crate::names;
use crate::plan::{Plan, Port};
use crate::rate::Rate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A port that is not up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortLink {
    rail: usize,
    host: usize,
    link: LinkState,
}

/// A port of a host, as it is now, and what it has carried since the lab was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortStatus {
    /// The host.
    pub host: String,
    /// The port's number, which is that of its switch.
    pub number: usize,
    /// The port's name on the host.
    pub port: String,
    /// Its hardware address.
    pub mac: String,
    /// Its rate each way, in Mbit/s (10^6 bit/s) of Ethernet frames. None: as fast as the machine.
    pub rate_mbit_s: Option<f64>,
    /// Whether it carries packets.
    pub link: LinkState,
    /// What the host sent.
    pub sent: Carried,
    /// What the switch sent to the host.
    pub received: Carried,
}

/// One direction of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Bytes of frames that left.
    pub bytes: u64,
    /// Packets that left. Without a rate, several of TCP's count as one.
    pub packets: u64,
    /// Packets that found the queue full.
    pub drops: u64,
}

impl Lab {
    /// Gives a port of a host a new rate, each way. Connections live on.
    ///
    /// Errors if the port was made without one.
    pub fn set_port_rate(&self, host: &str, port: usize, rate: Rate) -> Result<()> {
        self.check_port(host, port)?;
        self.change_rails(&BTreeSet::from([port]), |rails| {
            rails[port].rates.insert(host.to_owned(), rate);
        })
    }

    /// Brings a port of a host into the given state, from whichever it is in. Down is what pulling its cable does: the host
    /// sees that the carrier is lost, and nobody else does.
    pub fn set_port_link(&self, host: &str, port: usize, link: LinkState) -> Result<()> {
        let host = self.check_port(host, port)?;
        self.set_port_links(&[(host, port)], link)
    }

    /// All ports of all hosts, by host and number. Empty where hosts have rails.
    pub fn ports(&self) -> Result<Vec<PortStatus>> {
        if self.topology().ports.is_none() {
            return Ok(Vec::new());
        }
        let state = self.state()?;
        let plan = Plan::new(self.name(), &state);
        let counted = |namespace: &str| Ok((kernel::interfaces(namespace)?, kernel::port_counters(namespace)?));
        let switches = (0..state.topology.rails.len())
            .map(|rail| counted(&names::switch_namespace(self.name(), rail)))
            .collect::<Result<Vec<_>>>()?;
        let mut ports = Vec::new();
        for (index, host) in state.topology.hosts.iter().enumerate() {
            let at_host = counted(&names::host_namespace(self.name(), &host.name))?;
            for (number, at_switch) in switches.iter().enumerate() {
                let port = plan.port_name(number);
                let mac = at_host.0.iter().find(|interface| interface.name == port).map(|found| found.mac.clone());
                ports.push(PortStatus {
                    host: host.name.clone(),
                    number,
                    mac: mac.unwrap_or_default(),
                    rate_mbit_s: state.topology.rails[number].rate_of(&host.name).map(Rate::mbit_s),
                    link: link_of(&state.port_links, index, number),
                    sent: carried(&at_host, &port),
                    received: carried(at_switch, &names::switch_port(index)),
                    port,
                });
            }
        }
        Ok(ports)
    }

    /// The number of a port by its name, such as `eth3`.
    pub fn port_number(&self, name: &str) -> Result<usize> {
        let known = self.port_names()?;
        let missing = || Error::NoPort { lab: self.name().to_owned(), port: name.to_owned(), known: known.clone() };
        known.iter().position(|port| port == name).ok_or_else(missing)
    }

    pub(crate) fn set_port_links(&self, which: &[(usize, usize)], link: LinkState) -> Result<()> {
        self.change(|state| {
            for &(host, rail) in which {
                let before = link_of(&state.port_links, host, rail);
                let ports = ends(&Plan::new(self.name(), state), host, rail);
                if let Some((at_host, at_switch)) = ports {
                    change(&at_host, &at_switch, before, link)?;
                }
                state.port_links.retain(|port| (port.host, port.rail) != (host, rail));
                if link != LinkState::Up {
                    state.port_links.push(PortLink { rail, host, link });
                }
            }
            Ok(())
        })
    }

    /// The host's index.
    fn check_port(&self, host: &str, port: usize) -> Result<usize> {
        self.port_names()?;
        self.host_on(host, port)
    }

    fn port_names(&self) -> Result<Vec<String>> {
        match self.topology().ports {
            Some(_) => (0..self.rails()).map(|rail| self.port(rail)).collect(),
            None => Err(Error::NoPorts { lab: self.name().to_owned() }),
        }
    }
}

fn link_of(links: &[PortLink], host: usize, rail: usize) -> LinkState {
    links.iter().find(|port| (port.host, port.rail) == (host, rail)).map_or(LinkState::Up, |port| port.link)
}

/// The host's end of a port's cable, and the switch's.
fn ends(plan: &Plan<'_>, host: usize, rail: usize) -> Option<(Port, Port)> {
    let place = plan.topology.hosts_on(rail).iter().position(|&on| on == host)?;
    plan.pairs(rail).into_iter().nth(place)
}

fn change(at_host: &Port, at_switch: &Port, before: LinkState, after: LinkState) -> Result<()> {
    let mut batch = Batch::in_namespace(&at_switch.namespace);
    if before == after {
        return Ok(());
    }
    match before {
        LinkState::Up => {}
        LinkState::Down => batch.set_up(&at_switch.name),
        LinkState::Cut => batch.heal_both_ways(&at_switch.name),
    }
    match after {
        LinkState::Up => {}
        LinkState::Down => batch.set_down(&at_switch.name),
        LinkState::Cut => batch.cut_both_ways(&at_switch.name),
    }
    batch.run()?;
    if before == LinkState::Down {
        for port in [at_host, at_switch] {
            lifecycle::wait_ready(&port.namespace, &[&port.name])?;
        }
    }
    Ok(())
}

fn carried((interfaces, counters): &(Vec<Interface>, Vec<PortCounters>), port: &str) -> Carried {
    let sent = interfaces.iter().find(|interface| interface.name == port).map(|interface| interface.stats.sent);
    let sent = sent.unwrap_or_default();
    let drops = counters.iter().find(|counters| counters.port == port).map_or(0, |counters| counters.drops);
    Carried { bytes: sent.bytes, packets: sent.packets, drops }
}
