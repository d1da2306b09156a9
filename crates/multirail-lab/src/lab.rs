//! A lab that is up: what can be done with it, and how it comes and goes.

use crate::error::{Error, Result};
use crate::kernel::{self, Batch};
use crate::rate::Rate;
use crate::shaping::Shaping;
use crate::state::{self, Owner, State};
use crate::topology::{self, Topology};
use crate::{names, netns, offload, plan};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network of hosts and rails that is up.
///
/// One made by [`Lab::up`] or [`Lab::temporary`] is taken down when dropped, also by a panic; [`Lab::keep`] lets it stay.
/// One found by [`Lab::open`] stays.
#[derive(Debug)]
pub struct Lab {
    name: String,
    /// As it was made; rates set later are only in the state.
    topology: Topology,
    taken_down_on_drop: bool,
}

/// Whether a rail carries packets, and if not, how the hosts can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// It does.
    Up,
    /// The hosts' ports are down: programs get errors at once.
    Down,
    /// Everything sent is lost on the way; the carrier stays. What a host sees when a switch behind its own fails.
    Cut,
}

/// What is known of a lab that is up.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The lab's name.
    pub name: String,
    /// Hosts and rails, with the rates as they are now. None: only leftovers are there.
    pub topology: Option<Topology>,
    /// The state of each rail.
    pub links: Vec<LinkState>,
}

/// What taking a lab down found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many namespaces were removed.
    pub namespaces: usize,
    /// How many processes were still in them. They go on without a network.
    pub processes: usize,
}

impl Lab {
    /// Makes a lab. Takes down what labs of dead processes left first.
    ///
    /// Errors if a lab of this name is up. Where anything fails on the way, what was made is removed again.
    pub fn up(name: &str, topology: &Topology) -> Result<Self> {
        names::check_lab(name)?;
        topology.check()?;
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        kernel::check_commands()?;
        let _lock = state::lock()?;
        take_down_stale()?;
        if state::names().iter().any(|there| there == name) || namespaces_of(name).next().is_some() {
            return Err(Error::AlreadyUp(name.to_owned()));
        }
        let links = vec![LinkState::Up; topology.rails.len()];
        state::write(name, &State { topology: topology.clone(), links, owner: Some(Owner::this_process()) })?;
        if let Err(error) = make(name, topology) {
            // The first error is the one to report; what this one leaves, the next `up` removes.
            let _ = take_down_locked(name);
            return Err(error);
        }
        Ok(Self { name: name.to_owned(), topology: topology.clone(), taken_down_on_drop: true })
    }

    /// Makes a lab under a name that no other has: for tests, which may run at the same time.
    pub fn temporary(topology: &Topology) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self::up(&format!("tmp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)), topology)
    }

    /// A lab that is up, made by whatever process. It stays when this is dropped.
    pub fn open(name: &str) -> Result<Self> {
        names::check_lab(name)?;
        let state = state::read(name)?.ok_or_else(|| Error::NotUp(name.to_owned()))?;
        Ok(Self { name: name.to_owned(), topology: state.topology, taken_down_on_drop: false })
    }

    /// Lets the lab stay when this process ends.
    pub fn keep(mut self) -> Result<Self> {
        let _lock = state::lock()?;
        self.change_state(|state| state.owner = None)?;
        self.taken_down_on_drop = false;
        Ok(self)
    }

    /// Takes down the lab of this name, its leftovers if it is half-made, nothing if there is none.
    ///
    /// Processes that are still in it are cut off from each other, and not ended.
    pub fn take_down(name: &str) -> Result<Removed> {
        names::check_lab(name)?;
        let _lock = state::lock()?;
        take_down_locked(name)
    }

    /// All labs that are up, and those of which only leftovers are there.
    pub fn list() -> Result<Vec<Summary>> {
        let found = netns::list();
        let names: BTreeSet<String> = state::names()
            .into_iter()
            .chain(found.iter().filter_map(|ns| Some(names::lab_of(ns)?.to_owned())))
            .collect();
        let summary = |name: String| match state::read(&name)? {
            Some(state) => Ok(Summary { name, topology: Some(state.topology), links: state.links }),
            None => Ok(Summary { name, topology: None, links: Vec::new() }),
        };
        names.into_iter().map(summary).collect()
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the hosts, in the order of their addresses.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.topology.hosts.iter().map(|host| host.name.as_str())
    }

    /// How many rails there are.
    pub fn rails(&self) -> usize {
        self.topology.rails.len()
    }

    /// Rates and links as they are now, whoever set them.
    pub fn summary(&self) -> Result<Summary> {
        let state = state::read(&self.name)?.ok_or_else(|| Error::NotUp(self.name.clone()))?;
        Ok(Summary { name: self.name.clone(), topology: Some(state.topology), links: state.links })
    }

    /// A command that will run on a host: in its network namespace, and with a /sys that shows its ports.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        netns::command(&self.namespace(host)?, program)
    }

    /// Runs a closure on a host, on a thread of its own, and waits for it. Sockets made there belong to the host
    /// for good, and threads started there are on the host too. A panic goes on in the caller.
    pub fn run_in<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
        netns::run_in(&self.namespace(host)?, work)
    }

    /// A host's IPv4 address on a rail: 10.77.rail.(host + 1).
    pub fn address(&self, host: &str, rail: usize) -> Result<Ipv4Addr> {
        Ok(topology::ipv4(rail, self.host_on(host, rail)?))
    }

    /// A host's IPv6 address on a rail: fd77:0:0:rail::(host + 1). None if the rail has no IPv6.
    pub fn address_v6(&self, host: &str, rail: usize) -> Result<Option<Ipv6Addr>> {
        let host = self.host_on(host, rail)?;
        Ok(self.topology.rails[rail].ipv6.then(|| topology::ipv6(rail, host)))
    }

    /// The name of a rail's port, the same on each of its hosts.
    pub fn port(&self, rail: usize) -> Result<String> {
        self.check_rail(rail)?;
        Ok(names::host_port(rail))
    }

    /// The name of a host's namespace, for use with `ip netns exec`.
    pub fn namespace(&self, host: &str) -> Result<String> {
        self.host_index(host)?;
        Ok(names::host_namespace(&self.name, host))
    }

    /// Gives all ports of a rail a new rate, or none. Connections live on.
    ///
    /// A connection made while the rail had no rate keeps sending GSO packets, which HTB passes a whole at a time:
    /// its mean rate is right, its bursts are not.
    pub fn set_rate(&self, rail: usize, rate: Option<Rate>) -> Result<()> {
        self.check_rail(rail)?;
        let _lock = state::lock()?;
        self.change_state(|state| {
            let before = plan::ports(&self.name, &state.topology, rail);
            let rail_now = &mut state.topology.rails[rail];
            rail_now.rate = rate;
            rail_now.rates.clear();
            for port in before {
                let shaping = rate.map(|rate| Shaping::new(rate, rail_now.mtu));
                let mut batch = Batch::in_namespace(&port.namespace);
                match (port.rate, &shaping) {
                    (Some(_), Some(shaping)) => batch.reshape(&port.name, shaping),
                    (None, Some(shaping)) => batch.shape(&port.name, shaping),
                    (Some(_), None) => batch.unshape(&port.name),
                    (None, None) => {}
                }
                batch.run()?;
                if port.rate.is_some() != shaping.is_some() {
                    set_offloads(&port.namespace, &[&port.name], shaping.is_none())?;
                }
            }
            Ok(())
        })?
    }

    /// Takes the hosts' ports of a rail down: they lose their carrier, and their routes go.
    pub fn set_down(&self, rail: usize) -> Result<()> {
        self.set_link(rail, LinkState::Down)
    }

    /// Loses everything that is sent on a rail, silently. Ports, carrier, addresses and routes stay.
    pub fn set_cut(&self, rail: usize) -> Result<()> {
        self.set_link(rail, LinkState::Cut)
    }

    /// Ends [`Lab::set_down`] or [`Lab::set_cut`]. Addresses are as before.
    pub fn set_up(&self, rail: usize) -> Result<()> {
        self.set_link(rail, LinkState::Up)
    }

    /// Brings a rail into the given state, from whichever it is in.
    pub fn set_link(&self, rail: usize, link: LinkState) -> Result<()> {
        self.check_rail(rail)?;
        let _lock = state::lock()?;
        self.change_state(|state| {
            let before = std::mem::replace(&mut state.links[rail], link);
            for port in plan::ports(&self.name, &state.topology, rail) {
                let mut batch = Batch::in_namespace(&port.namespace);
                if before == LinkState::Cut && link != LinkState::Cut {
                    batch.heal(&port.name);
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
            Ok(())
        })?
    }

    /// What the kernel should be doing is written down first, so a failed change leaves a state that `down` still knows.
    fn change_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T> {
        let mut state = state::read(&self.name)?.ok_or_else(|| Error::NotUp(self.name.clone()))?;
        let outcome = change(&mut state);
        state::write(&self.name, &state)?;
        Ok(outcome)
    }

    fn check_rail(&self, rail: usize) -> Result<()> {
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

    fn host_on(&self, host: &str, rail: usize) -> Result<usize> {
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
            // Nobody is left to tell. What stays, the next `up` removes.
            let _ = Self::take_down(&self.name);
        }
    }
}

fn make(lab: &str, topology: &Topology) -> Result<()> {
    let rails = || 0..topology.rails.len();
    let mut batch = Batch::initial();
    for namespace in plan::namespaces(lab, topology) {
        batch.add_namespace(&namespace);
    }
    batch.run()?;

    // Before the ports are made: what they are born with comes from these.
    for host in &topology.hosts {
        set_sysctls(lab, &host.name, &host.sysctl)?;
    }

    let mut batch = Batch::initial();
    for rail in rails() {
        for (one, other) in plan::pairs(lab, topology, rail) {
            let mtu_bytes = topology.rails[rail].mtu;
            batch.add_pair((&one.namespace, &one.name), (&other.namespace, &other.name), mtu_bytes);
        }
    }
    batch.run()?;

    for rail in rails() {
        if let Some(switch) = plan::switch(lab, topology, rail) {
            let mut batch = Batch::in_namespace(&switch);
            batch.add_bridge(plan::BRIDGE, topology.rails[rail].mtu);
            let pairs = plan::pairs(lab, topology, rail);
            for (_, at_switch) in &pairs {
                batch.join_bridge(&at_switch.name, plan::BRIDGE);
            }
            batch.run()?;
        }
    }
    make_ports(lab, topology)
}

/// Addresses and shaping, with one `ip` and one `tc` for each namespace.
fn make_ports(lab: &str, topology: &Topology) -> Result<()> {
    let mut by_namespace: BTreeMap<String, Vec<(usize, plan::Port)>> = BTreeMap::new();
    for rail in 0..topology.rails.len() {
        for port in plan::ports(lab, topology, rail) {
            by_namespace.entry(port.namespace.clone()).or_default().push((rail, port));
        }
    }
    for (index, host) in topology.hosts.iter().enumerate() {
        let namespace = names::host_namespace(lab, &host.name);
        let mut batch = Batch::in_namespace(&namespace);
        batch.set_up("lo");
        for (rail, port) in by_namespace.get(&namespace).into_iter().flatten() {
            batch.add_ipv4(&port.name, topology::ipv4(*rail, index));
            if topology.rails[*rail].ipv6 {
                batch.add_ipv6(&port.name, topology::ipv6(*rail, index));
            }
        }
        batch.run()?;
    }
    for (namespace, ports) in &by_namespace {
        let shaped: Vec<&str> =
            ports.iter().filter(|(_, port)| port.rate.is_some()).map(|(_, port)| port.name.as_str()).collect();
        set_offloads(namespace, &shaped, false)?;
        let mut batch = Batch::in_namespace(namespace);
        for (rail, port) in ports {
            batch.set_up(&port.name);
            if let Some(rate) = port.rate {
                batch.shape(&port.name, &Shaping::new(rate, topology.rails[*rail].mtu));
            }
        }
        batch.run()?;
    }
    Ok(())
}

fn set_offloads(namespace: &str, ports: &[&str], on: bool) -> Result<()> {
    netns::run_in(namespace, || ports.iter().try_for_each(|port| offload::set_here(port, on)))?
        .map_err(|source| Error::Namespace { namespace: namespace.to_owned(), doing: "cannot set offloads", source })
}

/// The lab's own sysctls may be missing where the kernel has no IPv6; the user's may not.
fn set_sysctls(lab: &str, host: &str, sysctl: &BTreeMap<String, String>) -> Result<()> {
    netns::run_in(&names::host_namespace(lab, host), || {
        for interfaces in ["all", "default"] {
            // A port that goes down would lose its IPv6 addresses for good.
            let _ = netns::set_sysctl_here(&format!("net.ipv6.conf.{interfaces}.keep_addr_on_down"), "1");
            // Duplicate detection would delay link-local addresses by a second; there are no duplicates.
            let _ = netns::set_sysctl_here(&format!("net.ipv6.conf.{interfaces}.accept_dad"), "0");
        }
        for (key, value) in sysctl {
            netns::set_sysctl_here(key, value).map_err(|source| Error::Sysctl {
                host: host.to_owned(),
                key: key.clone(),
                value: value.clone(),
                hint: sysctl_hint(key, &source),
                source,
            })?;
        }
        Ok(())
    })?
}

fn sysctl_hint(key: &str, error: &std::io::Error) -> &'static str {
    if key == "net.ipv4.tcp_congestion_control" && error.kind() == std::io::ErrorKind::PermissionDenied {
        return "\nhint: a namespace may use only what the machine allows to all: \
                sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'";
    }
    ""
}

fn namespaces_of(lab: &str) -> impl Iterator<Item = String> {
    netns::list().into_iter().filter(move |namespace| names::lab_of(namespace) == Some(lab))
}

/// Labs whose process is dead: tests that were killed, and an `up` that was.
fn take_down_stale() -> Result<()> {
    for name in state::names() {
        // A state that cannot be read is somebody's to look at, not ours to remove.
        if let Ok(Some(State { owner: Some(owner), .. })) = state::read(&name)
            && !owner.is_alive()
        {
            take_down_locked(&name)?;
        }
    }
    Ok(())
}

fn take_down_locked(name: &str) -> Result<Removed> {
    let mut removed = Removed::default();
    for namespace in namespaces_of(name) {
        removed.processes += netns::processes(&namespace);
        // A process that stays keeps the nameless namespace, so its ports are removed by hand. One end takes the other
        // with it, so each is its own batch, and one that has just gone is no error.
        for port in netns::ports(&namespace) {
            let mut batch = Batch::in_namespace(&namespace);
            batch.delete_link(&port);
            let _ = batch.run();
        }
        kernel::delete_namespace(&namespace)?;
        removed.namespaces += 1;
    }
    state::remove(name)?;
    Ok(removed)
}
