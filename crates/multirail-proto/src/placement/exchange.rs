//! How hosts learn each other's ports, and which of them lead from one to the other at this moment.
//!
//! A host says hello out of every port. Port k leads to another host's port k if this host can use its own, hears the other's hellos on it,
//! and the other says that it can use its port and hears ours there. What has not been heard for [`SILENCE_US`] does not lead there any more.
//!
//! A recorded hello is worth nothing: within an instance of the sender counters only grow, a later instance has a larger number, and no host is
//! believed before it has named the present instance of this one, which nobody could know before it began.
//!
//! Calls: [`Exchange::handle_hello`] for each hello that was proven to be of somebody with the token, [`Exchange::set_port`] when a link changes,
//! [`Exchange::hello`] for each port every [`INTERVAL_US`], and then [`Exchange::peers`]: the table as it is at that moment.

use super::hello::{Heard, Hello, HelloPort, MAX_HEARD};
use super::hosts::HostPort;
use super::{MAX_PEERS, MAX_PORTS, Mac};
use std::collections::BTreeMap;

/// How often a hello leaves each port. Six of them must be lost in a row before a port counts as silent: where a port is full of
/// traffic, single ones are.
pub const INTERVAL_US: u64 = 100_000;
/// A port that was not heard for so long is left out.
pub const SILENCE_US: u64 = 600_000;
/// What another host says of hearing this one holds for so long where its hellos take turns in telling of hosts.
const HEARING_US: u64 = 2_000_000;
/// A host that was not heard for so long is forgotten, with its counters.
pub const FORGET_US: u64 = 60_000_000;

/// The state of the exchange on one host.
#[derive(Debug)]
pub struct Exchange {
    instance: u64,
    counter: u64,
    ports: Vec<HelloPort>,
    /// By the address of the first port.
    peers: BTreeMap<Mac, Known>,
    /// After whom the next hello goes on telling who is heard.
    told: Option<Mac>,
    counts: Counts,
}

/// Hellos of others, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Taken.
    pub taken: u64,
    /// Of an instance or with a counter that was already there.
    pub replayed: u64,
    /// Of a port that leads to a port of another number here: switches are joined, or cables swapped.
    pub other_port: u64,
    /// Contradicts itself or another host.
    pub contradictory: u64,
    /// There are too many hosts.
    pub too_many: u64,
}

#[derive(Debug)]
struct Known {
    instance: u64,
    ports: Vec<HelloPort>,
    /// The largest counter of each port: hellos of different ports may overtake each other.
    counters: [u64; MAX_PORTS],
    heard_at_us: [Option<u64>; MAX_PORTS],
    /// Bit k: it says that it hears our port k, of this instance.
    hears_us: u16,
    said_at_us: u64,
    last_us: u64,
}

/// A host to which at least one port leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its ports.
    pub ports: Vec<HostPort>,
    /// Bit k: port k leads there.
    pub usable: u16,
}

impl Exchange {
    /// For a host with these ports (at most [`MAX_PORTS`]). `instance` must be larger than any before: the time of day.
    pub fn new(ports: Vec<HelloPort>, instance: u64) -> Self {
        let ports = ports.into_iter().take(MAX_PORTS).collect();
        Self { instance, counter: 0, ports, peers: BTreeMap::new(), told: None, counts: Counts::default() }
    }

    /// What became of hellos so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Tells whether this host can use its own port `number`.
    pub fn set_port(&mut self, number: usize, usable: bool) {
        if let Some(port) = self.ports.get_mut(number) {
            port.usable = usable;
        }
    }

    /// The next hello to leave by port `number`.
    pub fn hello(&mut self, number: usize, now_us: u64) -> Hello {
        self.counter += 1;
        let heard = |(host, known): (&Mac, &Known)| {
            let ports = known.heard(now_us);
            (ports != 0).then_some(Heard { host: *host, instance: known.instance, ports })
        };
        let rest = self.told.and_then(|told| self.peers.range(told..).nth(1)).map(|(next, _)| *next);
        let from = rest.or_else(|| self.peers.keys().next().copied()).unwrap_or_default();
        let turn = self.peers.range(from..).chain(self.peers.range(..from));
        let heard: Vec<Heard> = turn.filter_map(heard).take(MAX_HEARD).collect();
        self.told = heard.last().map(|heard| heard.host);
        Hello { instance: self.instance, counter: self.counter, port: number, ports: self.ports.clone(), heard }
    }

    /// A hello that came in by port `at` from the Ethernet address `source`, and is of somebody who knows the token.
    pub fn handle_hello(&mut self, at: usize, source: Mac, hello: &Hello, now_us: u64) {
        let count = self.judge(at, source, hello, now_us);
        *count(&mut self.counts) += 1;
    }

    /// Takes it if it is good; says which counter it belongs to.
    fn judge(&mut self, at: usize, source: Mac, hello: &Hello, now_us: u64) -> fn(&mut Counts) -> &mut u64 {
        let Some(host) = hello.ports.first().map(|port| port.mac) else { return |c| &mut c.contradictory };
        if hello.ports.get(hello.port).map(|port| port.mac) != Some(source) || self.contradicts(host, hello) {
            return |c| &mut c.contradictory;
        }
        if hello.port != at {
            return |c| &mut c.other_port;
        }
        let forgotten = |known: &Known| now_us.saturating_sub(known.last_us) >= FORGET_US;
        if self.peers.get(&host).is_some_and(forgotten) {
            self.peers.remove(&host);
        }
        if !self.peers.contains_key(&host) && self.peers.len() >= MAX_PEERS {
            self.peers.retain(|_, known| !forgotten(known));
            if self.peers.len() >= MAX_PEERS {
                return |c| &mut c.too_many;
            }
        }
        let known = self.peers.entry(host).or_insert_with(|| Known::new(hello, now_us));
        if hello.instance < known.instance {
            return |c| &mut c.replayed;
        }
        if hello.instance > known.instance {
            *known = Known::new(hello, now_us);
        }
        let Some(counter) = known.counters.get_mut(at).filter(|counter| **counter < hello.counter) else {
            return |c| &mut c.replayed;
        };
        *counter = hello.counter;
        known.heard_at_us[at] = Some(now_us);
        known.last_us = now_us;
        // What an overtaken hello of another port says is older than what is known.
        if known.counters.iter().all(|&other| other <= hello.counter) {
            known.ports.clone_from(&hello.ports);
            let own = self.ports.first().map(|port| port.mac);
            let us = hello.heard.iter().find(|heard| Some(heard.host) == own);
            match us {
                Some(us) if us.instance == self.instance => (known.hears_us, known.said_at_us) = (us.ports, now_us),
                // It tells of others this time.
                None if hello.heard.len() == MAX_HEARD => {}
                _ => known.hears_us = 0,
            }
        }
        |c| &mut c.taken
    }

    /// Whether a hello claims ports of this host or of another one.
    fn contradicts(&self, host: Mac, hello: &Hello) -> bool {
        let claims = |mac: &Mac| hello.ports.iter().any(|port| port.mac == *mac);
        if self.ports.iter().any(|port| claims(&port.mac)) {
            return true;
        }
        // Ports that were looked at before are not looked for again.
        if self.peers.get(&host).is_some_and(|known| same_macs(&known.ports, &hello.ports)) {
            return false;
        }
        self.peers.iter().any(|(other, known)| *other != host && known.ports.iter().any(|port| claims(&port.mac)))
    }

    /// The hosts to which a port leads, by their first addresses.
    pub fn peers(&self, now_us: u64) -> Vec<Peer> {
        let ours = self.ports.iter().enumerate().filter(|(_, port)| port.usable).fold(0, |mask, (k, _)| mask | 1 << k);
        let peer = |known: &Known| Peer {
            ports: known
                .ports
                .iter()
                .map(|&HelloPort { mac, speed_mbit_s, .. }| HostPort { mac, speed_mbit_s })
                .collect(),
            usable: ours & known.usable() & known.heard(now_us) & known.hears_us(now_us),
        };
        self.peers.values().map(peer).filter(|peer| peer.usable != 0).collect()
    }
}

impl Known {
    fn new(hello: &Hello, now_us: u64) -> Self {
        Self {
            instance: hello.instance,
            ports: hello.ports.clone(),
            counters: [0; MAX_PORTS],
            heard_at_us: [None; MAX_PORTS],
            hears_us: 0,
            said_at_us: now_us,
            last_us: now_us,
        }
    }

    /// Bit k: port k is heard.
    fn heard(&self, now_us: u64) -> u16 {
        let recent = |at: &Option<u64>| at.is_some_and(|at| now_us.saturating_sub(at) < SILENCE_US);
        self.heard_at_us.iter().enumerate().filter(|(_, at)| recent(at)).fold(0, |mask, (k, _)| mask | 1 << k)
    }

    fn hears_us(&self, now_us: u64) -> u16 {
        if now_us.saturating_sub(self.said_at_us) < HEARING_US { self.hears_us } else { 0 }
    }

    /// Bit k: it says that it can use port k.
    fn usable(&self) -> u16 {
        self.ports.iter().enumerate().filter(|(_, port)| port.usable).fold(0, |mask, (k, _)| mask | 1 << k)
    }
}

fn same_macs(one: &[HelloPort], other: &[HelloPort]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.mac == b.mac)
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
