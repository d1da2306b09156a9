//! Operations on the ports of hosts while a lab is up, and the counters of ports.
//!
//! All changes are at the switch's end of a port's cable, so they leave the settings of programs on
//! the host alone.

use crate::error::{Error, Result};
use crate::kernel::batch::Batch;
use crate::kernel::counters::{self, Interface, QdiscCounters};
use crate::lab::configure::wait_ready;
use crate::lab::handle::Lab;
use crate::lab::state::LinkState;
use crate::plan::lab_plan::LabPlan;
use crate::plan::names;
use crate::plan::port::PlannedPort;
use crate::spec::rate::Rate;
use serde::Serialize;
use std::collections::BTreeSet;

/// The current state of a host's port, and its counters since the lab was created.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PortStatus {
    /// The host.
    pub host: String,
    /// The number of the port, which is also that of its switch.
    pub number: usize,
    /// The name of the port on the host.
    pub port: String,
    /// The hardware address of the port.
    pub mac: String,
    /// The rate in each direction, in Mbit/s (10^6 bit/s) of Ethernet frames. `None` means no
    /// limit.
    pub rate_mbit_s: Option<f64>,
    /// Whether the port carries packets.
    pub link: LinkState,
    /// What the host sent.
    pub sent: TrafficCounters,
    /// What the switch sent to the host.
    pub received: TrafficCounters,
}

/// The counters of one direction of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TrafficCounters {
    /// Bytes of frames that left.
    pub bytes: u64,
    /// Packets that left. On a port without a rate, a GSO packet counts as one.
    pub packets: u64,
    /// Packets that found the queue full.
    pub drops: u64,
}

impl Lab {
    /// Gives a port of a host a new rate, in each direction. Connections continue.
    ///
    /// # Errors
    /// [`Error::BadTopology`] if the port was created without a rate; [`Error::NoPorts`],
    /// [`Error::NoHost`] or [`Error::NoRail`]; or the error of the kernel.
    pub fn set_port_rate(&self, host: &str, port: usize, rate: Rate) -> Result<()> {
        self.check_port(host, port)?;
        self.change_rails(&BTreeSet::from([port]), |rails| {
            rails[port].rates.insert(host.to_owned(), rate);
        })
    }

    /// Changes the state of a host's port, from any state to any other. Down is as if its cable
    /// were pulled: the host sees that the carrier is lost, and other hosts see nothing.
    ///
    /// # Errors
    /// [`Error::NoPorts`], [`Error::NoHost`] or [`Error::NoRail`], or the error of the kernel.
    pub fn set_port_link(&self, host: &str, port: usize, link: LinkState) -> Result<()> {
        let host = self.check_port(host, port)?;
        self.set_port_links(&[(host, port)], link)
    }

    /// All ports of all hosts, by host and number. Empty where hosts have rails instead of ports.
    ///
    /// # Errors
    /// [`Error::NotUp`] if the lab has been taken down, or the error of the kernel.
    pub fn ports(&self) -> Result<Vec<PortStatus>> {
        if self.topology().ports.is_none() {
            return Ok(Vec::new());
        }
        let state = self.state()?;
        let plan = state.plan(self.name());
        let switches = (0..state.topology.rails.len())
            .map(|rail| Counters::read(&names::switch_namespace(self.name(), rail)))
            .collect::<Result<Vec<_>>>()?;
        let mut ports = Vec::new();
        for (index, host) in state.topology.hosts.iter().enumerate() {
            let at_host = Counters::read(&names::host_namespace(self.name(), &host.name))?;
            for (number, at_switch) in switches.iter().enumerate() {
                let port = plan.port_name(number);
                ports.push(PortStatus {
                    host: host.name.clone(),
                    number,
                    mac: at_host.interface(&port).map(|interface| interface.mac.clone()).unwrap_or_default(),
                    rate_mbit_s: state.topology.rails[number].rate_of(&host.name).map(Rate::mbit_s),
                    link: state.port_link(index, number),
                    sent: at_host.sent(&port),
                    received: at_switch.sent(&names::switch_port(index)),
                    port,
                });
            }
        }
        Ok(ports)
    }

    /// The number of a port by its name, such as `eth3`.
    ///
    /// # Errors
    /// [`Error::NoPorts`] or [`Error::NoPort`].
    pub fn port_number(&self, name: &str) -> Result<usize> {
        let known = self.port_names()?;
        let missing = || Error::NoPort { lab: self.name().to_owned(), port: name.to_owned(), known: known.clone() };
        known.iter().position(|port| port == name).ok_or_else(missing)
    }

    /// Changes the state of ports, which are given by the indices of host and rail.
    pub(crate) fn set_port_links(&self, ports: &[(usize, usize)], link: LinkState) -> Result<()> {
        self.change(|state| {
            for &(host, rail) in ports {
                if let Some((at_host, at_switch)) = ends(&state.plan(self.name()), host, rail) {
                    change_link(&at_host, &at_switch, state.port_link(host, rail), link)?;
                }
                state.set_port_link(host, rail, link);
            }
            Ok(())
        })
    }

    /// Checks that the host has the port, and returns the index of the host.
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

/// The two ends of a port's cable: at the host and at the switch.
fn ends(plan: &LabPlan<'_>, host: usize, rail: usize) -> Option<(PlannedPort, PlannedPort)> {
    let position = plan.topology.hosts_on(rail).iter().position(|&on| on == host)?;
    plan.pairs(rail).into_iter().nth(position)
}

fn change_link(at_host: &PlannedPort, at_switch: &PlannedPort, before: LinkState, after: LinkState) -> Result<()> {
    let mut batch = Batch::in_namespace(&at_switch.namespace);
    if before == after {
        return Ok(());
    }
    match before {
        LinkState::Up => {}
        LinkState::Down => batch.set_up(&at_switch.name),
        LinkState::Cut => batch.restore_both_ways(&at_switch.name),
    }
    match after {
        LinkState::Up => {}
        LinkState::Down => batch.set_down(&at_switch.name),
        LinkState::Cut => batch.cut_both_ways(&at_switch.name),
    }
    batch.run()?;
    if before == LinkState::Down {
        for port in [at_host, at_switch] {
            wait_ready(&port.namespace, &[&port.name])?;
        }
    }
    Ok(())
}

/// The counters of all ports in a namespace.
struct Counters {
    interfaces: Vec<Interface>,
    qdiscs: Vec<QdiscCounters>,
}

impl Counters {
    fn read(namespace: &str) -> Result<Self> {
        Ok(Self { interfaces: counters::interfaces(namespace)?, qdiscs: counters::qdisc_counters(namespace)? })
    }

    fn interface(&self, port: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == port)
    }

    fn sent(&self, port: &str) -> TrafficCounters {
        let sent = self.interface(port).map(Interface::sent).unwrap_or_default();
        let drops = self.qdiscs.iter().find(|counters| counters.port == port).map_or(0, |counters| counters.drops);
        TrafficCounters { bytes: sent.bytes, packets: sent.packets, drops }
    }
}
