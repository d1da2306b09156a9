//! The handle of a lab: how to create, open and remove it, its names and addresses, and commands on
//! its hosts.

use crate::error::{Error, Result};
use crate::kernel::{check_commands, netns};
use crate::lab::lifecycle::{self, TakenDown};
use crate::lab::state::{self, LabState, LinkState};
use crate::plan::{addresses, names};
use crate::relay::shared::RelayMemory;
use crate::spec::names::{check_lab, is_router};
use crate::spec::topology::Topology;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A lab that is up.
///
/// A lab from [`Lab::up`] or [`Lab::temporary`] is taken down when the value is dropped, also by a
/// panic. [`Lab::keep`] lets it stay. A lab from [`Lab::open`] stays.
#[derive(Debug)]
pub struct Lab {
    name: String,
    /// The topology as it was created. The state has the current rates.
    topology: Topology,
    taken_down_on_drop: bool,
}

/// The current state of a lab.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LabSummary {
    /// The name of the lab.
    pub name: String,
    /// Hosts and rails with their current rates. `None` if only leftovers exist.
    pub topology: Option<Topology>,
    /// The state of each rail.
    pub links: Vec<LinkState>,
}

impl Lab {
    /// Creates a lab. First it takes down the labs of processes that have died.
    ///
    /// # Errors
    /// [`Error::AlreadyUp`] if a lab of this name exists; [`Error::BadName`],
    /// [`Error::BadTopology`] or [`Error::LinkWithoutRate`] for a bad argument; those of
    /// [`Lab::supported`]; and those of the kernel. After an error, nothing of the lab remains.
    pub fn up(name: &str, topology: &Topology) -> Result<Self> {
        check_lab(name)?;
        topology.check()?;
        Self::supported()?;
        let topology = without_missing_ipv6(topology);
        let _lock = state::lock()?;
        lifecycle::take_down_stale()?;
        if state::names().iter().any(|existing| existing == name) || lifecycle::namespaces_of(name).next().is_some() {
            return Err(Error::AlreadyUp(name.to_owned()));
        }
        let wan_by = lifecycle::wan_emulation(&topology)?;
        let mut state = LabState::new(topology.clone(), wan_by);
        state::write(name, &state)?;
        if let Err(error) = lifecycle::create(name, &mut state) {
            // The first error is the one to report. The next `up` removes what this may leave.
            let _ = lifecycle::take_down(name);
            return Err(error);
        }
        Ok(Self { name: name.to_owned(), topology, taken_down_on_drop: true })
    }

    /// Creates a lab under a unique name, for tests that may run at the same time.
    ///
    /// # Errors
    /// Those of [`Lab::up`].
    pub fn temporary(topology: &Topology) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self::up(&format!("tmp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)), topology)
    }

    /// Opens a lab that any process has created. It stays up when the value is dropped.
    ///
    /// # Errors
    /// [`Error::NotUp`], [`Error::BadName`], or [`Error::State`] if its state cannot be read.
    pub fn open(name: &str) -> Result<Self> {
        check_lab(name)?;
        let state = state::read(name)?.ok_or_else(|| Error::NotUp(name.to_owned()))?;
        Ok(Self { name: name.to_owned(), topology: state.topology, taken_down_on_drop: false })
    }

    /// Checks whether this process can create labs: it needs root, and the commands `ip` and `tc`.
    /// Tests that need a lab are skipped where this is an error, and print it.
    ///
    /// # Errors
    /// [`Error::NotRoot`], [`Error::CommandMissing`], or the error of the kernel.
    pub fn supported() -> Result<()> {
        check_commands()?;
        netns::check_permitted()
    }

    /// Lets the lab stay when this process ends.
    ///
    /// # Errors
    /// [`Error::State`] if its state cannot be written. The lab is then taken down.
    pub fn keep(mut self) -> Result<Self> {
        self.change(|state| {
            if let Some(shared) = self.shared(state)? {
                shared.header().is_kept.store(1, Ordering::Relaxed);
            }
            state.owner = None;
            Ok(())
        })?;
        self.taken_down_on_drop = false;
        Ok(self)
    }

    /// Takes down the lab of this name, or its leftovers. It is no error if nothing exists.
    ///
    /// Processes in the lab are not ended, but lose their network.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NotRoot`], or the error of the kernel.
    pub fn take_down(name: &str) -> Result<TakenDown> {
        check_lab(name)?;
        let _lock = state::lock()?;
        lifecycle::take_down(name)
    }

    /// All labs that are up, and those of which only leftovers exist, in alphabetical order.
    ///
    /// # Errors
    /// [`Error::State`] if a state cannot be read.
    pub fn list() -> Result<Vec<LabSummary>> {
        let found = netns::list();
        let names: BTreeSet<String> = state::names()
            .into_iter()
            .chain(found.iter().filter_map(|namespace| Some(names::lab_of(namespace)?.to_owned())))
            .collect();
        let summary = |name: String| match state::read(&name)? {
            Some(state) => Ok(LabSummary { name, topology: Some(state.topology), links: state.links }),
            None => Ok(LabSummary { name, topology: None, links: Vec::new() }),
        };
        names.into_iter().map(summary).collect()
    }

    /// The name of the lab.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the hosts, in the order of their addresses, without the routers of clusters.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.topology.hosts.iter().map(|host| host.name.as_str()).filter(|name| !is_router(name))
    }

    /// The number of rails.
    pub fn rails(&self) -> usize {
        self.topology.rails.len()
    }

    /// The current rates and link states, also those that other processes have set.
    ///
    /// # Errors
    /// [`Error::NotUp`] if the lab has been taken down; [`Error::State`].
    pub fn summary(&self) -> Result<LabSummary> {
        let state = self.state()?;
        Ok(LabSummary { name: self.name.clone(), topology: Some(state.topology), links: state.links })
    }

    /// A command that will run on a host: in its network namespace, with a /sys that shows its
    /// ports.
    ///
    /// # Errors
    /// [`Error::NoHost`], [`Error::NotRoot`], or [`Error::Namespace`] if the lab has been taken
    /// down.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        netns::command(&self.namespace(host)?, program)
    }

    /// Runs a closure on a host, on a thread of its own, and waits for it. Sockets that it opens
    /// belong to the host for good, and threads that it starts run on the host. A panic of the
    /// closure continues in the caller.
    ///
    /// # Errors
    /// Those of [`Lab::command`].
    pub fn run_in<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
        netns::run_in(&self.namespace(host)?, work)
    }

    /// The IPv4 address of a host on a rail, 10.77.rail.(host + 1), or at a port,
    /// 10.(90 + port).0.(host + 1).
    ///
    /// # Errors
    /// [`Error::NoAddress`] if the port has none; [`Error::NoRail`], [`Error::NoHost`] or
    /// [`Error::NotOnRail`].
    pub fn address(&self, host: &str, rail: usize) -> Result<Ipv4Addr> {
        let address = addresses::ipv4(&self.topology, rail, self.host_on(host, rail)?);
        address.ok_or_else(|| Error::NoAddress { lab: self.name.clone(), host: host.to_owned(), port: rail })
    }

    /// The IPv6 address of a host on a rail, fd77:0:0:rail::(host + 1), or at a port,
    /// fd90:0:0:port::(host + 1). `None` if there is none.
    ///
    /// # Errors
    /// [`Error::NoRail`], [`Error::NoHost`] or [`Error::NotOnRail`].
    pub fn address_v6(&self, host: &str, rail: usize) -> Result<Option<Ipv6Addr>> {
        let host = self.host_on(host, rail)?;
        Ok(addresses::ipv6(&self.topology, rail, host))
    }

    /// The name of the port of a rail, which is the same on each of its hosts.
    ///
    /// # Errors
    /// [`Error::NoRail`].
    pub fn port(&self, rail: usize) -> Result<String> {
        self.check_rail(rail)?;
        Ok(names::port_of(&self.topology, rail))
    }

    /// The name of the namespace of a host, for `ip netns exec`.
    ///
    /// # Errors
    /// [`Error::NoHost`].
    pub fn namespace(&self, host: &str) -> Result<String> {
        self.host_index(host)?;
        Ok(names::host_namespace(&self.name, host))
    }

    /// The topology as it was created.
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The current state, whichever process has changed it.
    pub(crate) fn state(&self) -> Result<LabState> {
        state::read(&self.name)?.ok_or_else(|| Error::NotUp(self.name.clone()))
    }

    /// Changes the lab while holding the lock. The state is written only if the change succeeds, so
    /// that a failed change can be repeated.
    pub(crate) fn change(&self, change: impl FnOnce(&mut LabState) -> Result<()>) -> Result<()> {
        let _lock = state::lock()?;
        let mut state = self.state()?;
        change(&mut state)?;
        state::write(&self.name, &state)
    }

    /// The shared memory of the relay. `None` if there is no relay.
    pub(crate) fn shared(&self, state: &LabState) -> Result<Option<RelayMemory>> {
        if state.relay.is_none() {
            return Ok(None);
        }
        let path = state::relay_path(&self.name);
        let directions = state.plan(&self.name).directions().len();
        RelayMemory::open(&path, directions).map(Some).map_err(|e| state::failed(&path, e))
    }

    pub(crate) fn check_rail(&self, rail: usize) -> Result<()> {
        let rails = self.rails();
        if rail < rails { Ok(()) } else { Err(Error::NoRail { lab: self.name.clone(), rail, rails }) }
    }

    fn host_index(&self, host: &str) -> Result<usize> {
        self.topology.host_index(host).ok_or_else(|| Error::NoHost {
            lab: self.name.clone(),
            host: host.to_owned(),
            known: self.hosts().map(str::to_owned).collect(),
        })
    }

    /// The index of a host that must be on the rail.
    pub(crate) fn host_on(&self, host: &str, rail: usize) -> Result<usize> {
        self.check_rail(rail)?;
        let index = self.host_index(host)?;
        if self.topology.hosts_on(rail).contains(&index) {
            return Ok(index);
        }
        Err(Error::NotOnRail { lab: self.name.clone(), rail, host: host.to_owned() })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.taken_down_on_drop {
            // A drop cannot report an error. The next `up` removes what remains.
            let _ = Self::take_down(&self.name);
        }
    }
}

/// The topology with IPv4 only where the kernel has no IPv6.
fn without_missing_ipv6(topology: &Topology) -> Topology {
    let mut topology = topology.clone();
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        topology.rails.iter_mut().for_each(|rail| rail.ipv6 = false);
    }
    topology
}
