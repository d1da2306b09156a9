//! A lab that is up: what can be done with it, and how it comes and goes.

use crate::error::{Error, Result};
use crate::kernel::Batch;
use crate::plan::Plan;
use crate::rate::Rate;
use crate::shared::{Shared, WanCounters};
use crate::state::{self, Process, State};
use crate::topology::{Rail, Topology};
use crate::wan::{Delay, Wan};
use crate::{kernel, lifecycle, mesh, names, netns, tap};
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
        Self::supported()?;
        let topology = without_missing_ipv6(topology);
        let _lock = state::lock()?;
        lifecycle::take_down_stale()?;
        if state::names().iter().any(|there| there == name) || lifecycle::namespaces_of(name).next().is_some() {
            return Err(Error::AlreadyUp(name.to_owned()));
        }
        let links = vec![LinkState::Up; topology.rails.len()];
        let wan_by = lifecycle::wan_by(&topology)?;
        let owner = Some(Process::this_process());
        let mut state = State { topology: topology.clone(), links, port_links: Vec::new(), owner, wan_by, relay: None };
        state::write(name, &state)?;
        if let Err(error) = lifecycle::make(name, &mut state) {
            // The first error is the one to report; what this one leaves, the next `up` removes.
            let _ = lifecycle::take_down(name);
            return Err(error);
        }
        Ok(Self { name: name.to_owned(), topology, taken_down_on_drop: true })
    }

    /// Whether labs can be made here: by root, who may make namespaces, with `ip` and `tc`. Tests that need a lab skip
    /// where this is an error, and print it.
    pub fn supported() -> Result<()> {
        kernel::check_commands()?;
        netns::check_permitted()
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
        self.change(|state| {
            if let Some(shared) = self.shared(state)? {
                shared.head().is_kept.store(1, Ordering::Relaxed);
            }
            state.owner = None;
            Ok(())
        })?;
        self.taken_down_on_drop = false;
        Ok(self)
    }

    /// Takes down the lab of this name, its leftovers if it is half-made, nothing if there is none.
    ///
    /// Processes that are still in it are cut off from each other, and not ended.
    pub fn take_down(name: &str) -> Result<Removed> {
        names::check_lab(name)?;
        let _lock = state::lock()?;
        lifecycle::take_down(name)
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

    /// The names of the hosts, in the order of their addresses. Routers of clusters are none.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.topology.hosts.iter().map(|host| host.name.as_str()).filter(|name| !names::is_router(name))
    }

    /// How many rails there are.
    pub fn rails(&self) -> usize {
        self.topology.rails.len()
    }

    /// Rates and links as they are now, whoever set them.
    pub fn summary(&self) -> Result<Summary> {
        let state = self.state()?;
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

    /// A host's IPv4 address on a rail: 10.77.rail.(host + 1), or of its port: 10.(90 + port).0.(host + 1).
    ///
    /// Errors if the port has none.
    pub fn address(&self, host: &str, rail: usize) -> Result<Ipv4Addr> {
        let address = self.topology.ipv4(rail, self.host_on(host, rail)?);
        address.ok_or_else(|| Error::NoAddress { lab: self.name.clone(), host: host.to_owned(), port: rail })
    }

    /// A host's IPv6 address on a rail: fd77:0:0:rail::(host + 1), or of its port: fd90:0:0:port::(host + 1). None if it has
    /// none.
    pub fn address_v6(&self, host: &str, rail: usize) -> Result<Option<Ipv6Addr>> {
        let host = self.host_on(host, rail)?;
        Ok(self.topology.ipv6(rail, host))
    }

    /// The name of a rail's port, the same on each of its hosts.
    pub fn port(&self, rail: usize) -> Result<String> {
        self.check_rail(rail)?;
        Ok(names::port_of(&self.topology, rail))
    }

    /// The name of a host's namespace, for use with `ip netns exec`.
    pub fn namespace(&self, host: &str) -> Result<String> {
        self.host_index(host)?;
        Ok(names::host_namespace(&self.name, host))
    }

    /// Gives all ports of a rail a new rate, or none. Connections live on.
    ///
    /// A connection made while the rail had no rate keeps sending GSO packets, which HTB passes a whole at a time:
    /// its mean rate is right, its bursts are not. Of a relayed rail, what is queued leaves at the rate at which it came.
    pub fn set_rate(&self, rail: usize, rate: Option<Rate>) -> Result<()> {
        self.change_rail(rail, |rail| {
            rail.rate = rate;
            rail.rates.clear();
        })
    }

    /// Gives a rail another delay, jitter, loss and queue, in place of those that it has ([`Rail::wan`]). Connections
    /// live on. What is on the way stays so.
    ///
    /// Errors if the rail is no WAN and this would make it one. A rail that is one stays one, of a delay of zero.
    pub fn set_wan(&self, rail: usize, wan: Wan) -> Result<()> {
        self.check_rail(rail)?;
        let was_wan = self.topology.rails[rail].wan().is_wan();
        if wan.is_wan() && !was_wan {
            return Err(Error::NotWan { lab: self.name.clone(), rail });
        }
        let stays = Wan { delay: wan.delay.or(was_wan.then_some(Delay::ZERO)), ..wan };
        self.change_rail(rail, |rail| rail.set_wan(stays))
    }

    /// What the lab's WANs have carried, lost and dropped. Empty where there are none, and where the kernel makes them.
    pub fn wan_counters(&self) -> Result<Vec<WanCounters>> {
        let state = self.state()?;
        let Some(shared) = self.shared(&state)? else { return Ok(Vec::new()) };
        let plan = Plan::new(&self.name, &state);
        let directions = plan.directions().into_iter().zip(shared.directions());
        Ok(directions
            .map(|(d, shared)| shared.counters(d.rail, &state.topology.hosts[d.host].name, d.to_host))
            .collect())
    }

    /// The process that carries the packets of the lab's WANs, for who wants to know what it costs. None: there is none.
    pub fn relay_pid(&self) -> Result<Option<u32>> {
        let state = self.state()?;
        Ok(state.relay.map(|relay| relay.pid()))
    }

    fn change_rail(&self, rail: usize, change: impl FnOnce(&mut Rail)) -> Result<()> {
        self.check_rail(rail)?;
        self.change_rails(&BTreeSet::from([rail]), |rails| change(&mut rails[rail]))
    }

    /// Changes those of the rails that are named. All ports of a namespace change by one command.
    pub(crate) fn change_rails(&self, named: &BTreeSet<usize>, change: impl FnOnce(&mut [Rail])) -> Result<()> {
        self.change(|state| {
            let ports = |state: &State| {
                let plan = Plan::new(&self.name, state);
                let of_rail = |&rail| plan.ports(rail).into_iter().map(move |port| (port, plan.is_relayed(rail)));
                named.iter().flat_map(of_rail).collect::<Vec<_>>()
            };
            let before = ports(state);
            change(&mut state.topology.rails);
            state.topology.check()?;
            let after = ports(state);
            let mut batches = BTreeMap::new();
            for ((before, _), (after, _)) in before.iter().zip(&after) {
                if before.egress != after.egress {
                    let batch =
                        batches.entry(&after.namespace).or_insert_with(|| Batch::in_namespace(&after.namespace));
                    batch.set_egress(&after.name, before.egress.as_ref(), after.egress.as_ref());
                }
            }
            kernel::run_all(batches.values())?;
            for ((before, _), (after, is_relayed)) in before.iter().zip(&after) {
                if before.egress.is_some() != after.egress.is_some() {
                    lifecycle::set_offloads(&after.namespace, &[&after.name], after.egress.is_none())?;
                }
                if *is_relayed && before.rate != after.rate {
                    // Only said, never kept to: where it cannot be said, nothing is lost.
                    let _ = netns::run_in(&after.namespace, || tap::set_speed_here(&after.name, after.rate))?;
                }
            }
            if let Some(shared) = self.shared(state)? {
                let plan = Plan::new(&self.name, state);
                let directions = plan.directions().into_iter().zip(shared.directions());
                directions
                    .filter(|(d, _)| named.contains(&d.rail))
                    .for_each(|(d, shared)| shared.set(&plan.params(&d)));
            }
            Ok(())
        })
    }

    /// As it was made.
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What the lab's relay shares. None: there is no relay.
    pub(crate) fn shared(&self, state: &State) -> Result<Option<Shared>> {
        if state.relay.is_none() {
            return Ok(None);
        }
        let path = state::relay_path(&self.name);
        let directions = Plan::new(&self.name, state).directions().len();
        Shared::open(&path, directions).map(Some).map_err(|e| state::failed(&path, e))
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
        if self.topology.ports.is_some() {
            let ports: Vec<_> = (0..self.topology.hosts.len()).map(|host| (host, rail)).collect();
            return self.set_port_links(&ports, link);
        }
        self.change(|state| {
            let before = std::mem::replace(&mut state.links[rail], link);
            let ports = Plan::new(&self.name, state).ports(rail);
            for port in &ports {
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
            // Only when both ends of each pair are up.
            if before == LinkState::Down && link != LinkState::Down {
                for port in &ports {
                    lifecycle::wait_ready(&port.namespace, &[&port.name])?;
                }
                mesh::restore_routes(&Plan::new(&self.name, state), rail)?;
            }
            Ok(())
        })
    }

    /// The state as it is now, whoever changed it.
    pub(crate) fn state(&self) -> Result<State> {
        state::read(&self.name)?.ok_or_else(|| Error::NotUp(self.name.clone()))
    }

    /// Changes the lab while nobody else does. A change that failed is not written down, so that it can be tried again.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let _lock = state::lock()?;
        let mut state = self.state()?;
        change(&mut state)?;
        state::write(&self.name, &state)
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
            // Nobody is left to tell. What stays, the next `up` removes.
            let _ = Self::take_down(&self.name);
        }
    }
}

/// Where the machine has no IPv6, rails have IPv4 alone.
fn without_missing_ipv6(topology: &Topology) -> Topology {
    let mut topology = topology.clone();
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        topology.rails.iter_mut().for_each(|rail| rail.ipv6 = false);
    }
    topology
}
