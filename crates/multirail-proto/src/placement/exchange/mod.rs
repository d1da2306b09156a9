//! How hosts learn each other's ports, and which ports lead from one host to another at the moment.
//!
//! Each host sends a hello from every port. Port *k* leads to port *k* of another host if four
//! conditions hold: this host can use its port, it receives the other's hellos there, and the other
//! host reports the same of its own port. A port without hellos for `SILENCE_US` is left out.
//!
//! A recorded hello has no effect when it is sent again. Counters only grow within an instance of
//! the sender, and a later instance has a larger number. No host counts as a peer before it has
//! named the present instance of this host, which did not exist when older hellos were recorded.
//!
//! The agent calls [`Exchange::handle_hello`] for each authentic hello, [`Exchange::set_port`] when
//! a link changes, and [`Exchange::hello`] for each port every [`INTERVAL_US`]. [`Exchange::peers`]
//! is the table of peers at a given time.

use crate::placement::hello::{Heard, Hello, HelloPort, MAX_HEARD};
use crate::placement::hosts::HostPort;
use crate::placement::{MAX_PEERS, MAX_PORTS, Mac};
use std::collections::BTreeMap;

/// Interval between the hellos of a port. Six of them must be lost in a row before a port counts as
/// silent, because a port that is full of traffic loses some.
pub const INTERVAL_US: u64 = 100_000;
/// A port without hellos for this long is left out.
pub(crate) const SILENCE_US: u64 = 600_000;
/// How long a report that another host receives this one is valid. Hellos of a host with more than
/// [`MAX_HEARD`] peers report them in turn.
const REPORT_US: u64 = 2_000_000;
/// A host without hellos for this long is forgotten, with its counters.
pub(crate) const FORGET_US: u64 = 60_000_000;

/// The state of the exchange on one host.
#[derive(Debug)]
pub struct Exchange {
    instance: u64,
    counter: u64,
    ports: Vec<HelloPort>,
    /// KnownHost hosts, by the address of the first port.
    hosts: BTreeMap<Mac, KnownHost>,
    /// The last host that the previous hello reported; the next hello starts after it.
    last_reported: Option<Mac>,
    counts: Counts,
}

/// Hellos of other hosts, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Accepted.
    pub accepted: u64,
    /// Of an old instance, or with a counter that is not new.
    pub replayed: u64,
    /// Received at a port of another number: switches are connected, or cables swapped.
    pub other_port: u64,
    /// Claims ports that belong to another host, or was not sent from the port that it names.
    pub contradictory: u64,
    /// Of a host beyond [`MAX_PEERS`].
    pub too_many: u64,
}

#[derive(Debug)]
struct KnownHost {
    instance: u64,
    ports: Vec<HelloPort>,
    /// The largest counter of each port. Hellos of different ports may overtake each other.
    counters: [u64; MAX_PORTS],
    /// When each port last received a hello of this host.
    heard_at_us: [Option<u64>; MAX_PORTS],
    /// Bit k: the host reports that its port k receives hellos of our present instance.
    hears_us: u16,
    /// When the host last reported `hears_us`.
    reported_at_us: u64,
    last_hello_us: u64,
}

/// A host to which at least one port leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachableHost {
    /// The ports of that host, in order.
    pub ports: Vec<HostPort>,
    /// Bit k: port k leads to the host.
    pub usable: u16,
}

impl Exchange {
    /// An exchange for a host with these ports, at most [`MAX_PORTS`].
    ///
    /// `instance` must be larger than that of all earlier exchanges of this host. The time of day
    /// is.
    pub fn new(ports: Vec<HelloPort>, instance: u64) -> Self {
        let ports = ports.into_iter().take(MAX_PORTS).collect();
        Self { instance, counter: 0, ports, hosts: BTreeMap::new(), last_reported: None, counts: Counts::default() }
    }

    /// Counts of the hellos that were received.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets whether this host can use its port `number`.
    pub fn set_port(&mut self, number: usize, usable: bool) {
        if let Some(port) = self.ports.get_mut(number) {
            port.usable = usable;
        }
    }

    /// The next hello to send from port `number`.
    pub fn hello(&mut self, number: usize, now_us: u64) -> Hello {
        self.counter += 1;
        let heard = |(host, known): (&Mac, &KnownHost)| {
            let ports = known.heard(now_us);
            (ports != 0).then_some(Heard { host: *host, instance: known.instance, ports })
        };
        let rest = self.last_reported.and_then(|last| self.hosts.range(last..).nth(1)).map(|(next, _)| *next);
        let from = rest.or_else(|| self.hosts.keys().next().copied()).unwrap_or_default();
        let turn = self.hosts.range(from..).chain(self.hosts.range(..from));
        let heard: Vec<Heard> = turn.filter_map(heard).take(MAX_HEARD).collect();
        self.last_reported = heard.last().map(|heard| heard.host);
        Hello { instance: self.instance, counter: self.counter, port: number, ports: self.ports.clone(), heard }
    }

    /// Handles a hello that was received at port `at` from the Ethernet address `source`. The
    /// caller has checked that the sender knows the token.
    pub fn handle_hello(&mut self, at: usize, source: Mac, hello: &Hello, now_us: u64) {
        let count = self.accept(at, source, hello, now_us);
        *count(&mut self.counts) += 1;
    }

    /// Takes over what a hello reports, unless it must be ignored. Returns the counter of the
    /// outcome.
    fn accept(&mut self, at: usize, source: Mac, hello: &Hello, now_us: u64) -> fn(&mut Counts) -> &mut u64 {
        let Some(host) = hello.ports.first().map(|port| port.mac) else { return |c| &mut c.contradictory };
        if hello.ports.get(hello.port).map(|port| port.mac) != Some(source) || self.contradicts(host, hello) {
            return |c| &mut c.contradictory;
        }
        if hello.port != at {
            return |c| &mut c.other_port;
        }
        let forgotten = |known: &KnownHost| now_us.saturating_sub(known.last_hello_us) >= FORGET_US;
        if self.hosts.get(&host).is_some_and(forgotten) {
            self.hosts.remove(&host);
        }
        if !self.hosts.contains_key(&host) && self.hosts.len() >= MAX_PEERS {
            self.hosts.retain(|_, known| !forgotten(known));
            if self.hosts.len() >= MAX_PEERS {
                return |c| &mut c.too_many;
            }
        }
        let known = self.hosts.entry(host).or_insert_with(|| KnownHost::new(hello, now_us));
        if hello.instance < known.instance {
            return |c| &mut c.replayed;
        }
        if hello.instance > known.instance {
            *known = KnownHost::new(hello, now_us);
        }
        let Some(counter) = known.counters.get_mut(at).filter(|counter| **counter < hello.counter) else {
            return |c| &mut c.replayed;
        };
        *counter = hello.counter;
        known.heard_at_us[at] = Some(now_us);
        known.last_hello_us = now_us;
        // A hello that was overtaken by one of another port reports an older state.
        if known.counters.iter().all(|&other| other <= hello.counter) {
            known.ports.clone_from(&hello.ports);
            let own = self.ports.first().map(|port| port.mac);
            let us = hello.heard.iter().find(|heard| Some(heard.host) == own);
            match us {
                Some(us) if us.instance == self.instance => (known.hears_us, known.reported_at_us) = (us.ports, now_us),
                // This hello has no room for all hosts, and reports others.
                None if hello.heard.len() == MAX_HEARD => {}
                _ => known.hears_us = 0,
            }
        }
        |c| &mut c.accepted
    }

    /// Whether a hello claims a port of this host or of a third one.
    fn contradicts(&self, host: Mac, hello: &Hello) -> bool {
        let claims = |mac: &Mac| hello.ports.iter().any(|port| port.mac == *mac);
        if self.ports.iter().any(|port| claims(&port.mac)) {
            return true;
        }
        // These ports were compared with those of all hosts when the host was first seen.
        if self.hosts.get(&host).is_some_and(|known| same_macs(&known.ports, &hello.ports)) {
            return false;
        }
        self.hosts.iter().any(|(other, known)| *other != host && known.ports.iter().any(|port| claims(&port.mac)))
    }

    /// The hosts to which a port leads, ordered by the address of the first port.
    pub fn peers(&self, now_us: u64) -> Vec<ReachableHost> {
        let ours = self.ports.iter().enumerate().filter(|(_, port)| port.usable).fold(0, |mask, (k, _)| mask | 1 << k);
        let reachable = |known: &KnownHost| ReachableHost {
            ports: known
                .ports
                .iter()
                .map(|&HelloPort { mac, speed_mbit_s, .. }| HostPort { mac, speed_mbit_s })
                .collect(),
            usable: ours & known.usable() & known.heard(now_us) & known.hears_us(now_us),
        };
        self.hosts.values().map(reachable).filter(|host| host.usable != 0).collect()
    }
}

impl KnownHost {
    fn new(hello: &Hello, now_us: u64) -> Self {
        Self {
            instance: hello.instance,
            ports: hello.ports.clone(),
            counters: [0; MAX_PORTS],
            heard_at_us: [None; MAX_PORTS],
            hears_us: 0,
            reported_at_us: now_us,
            last_hello_us: now_us,
        }
    }

    /// Bit k: port k received a hello of this host recently.
    fn heard(&self, now_us: u64) -> u16 {
        let recent = |at: &Option<u64>| at.is_some_and(|at| now_us.saturating_sub(at) < SILENCE_US);
        self.heard_at_us.iter().enumerate().filter(|(_, at)| recent(at)).fold(0, |mask, (k, _)| mask | 1 << k)
    }

    fn hears_us(&self, now_us: u64) -> u16 {
        if now_us.saturating_sub(self.reported_at_us) < REPORT_US { self.hears_us } else { 0 }
    }

    /// Bit k: the host reports that it can use its port k.
    fn usable(&self) -> u16 {
        self.ports.iter().enumerate().filter(|(_, port)| port.usable).fold(0, |mask, (k, _)| mask | 1 << k)
    }
}

fn same_macs(one: &[HelloPort], other: &[HelloPort]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.mac == b.mac)
}

#[cfg(test)]
mod tests;
