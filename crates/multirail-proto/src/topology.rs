//! Selects the pairs of addresses of two hosts that become rails, their order, and the reasons
//! against others.
//!
//! A rail is useful if it adds a port. Every port of either host should be on at least one rail,
//! and a pair of ports that are both on rails would only compete with those. So the selection is an
//! edge cover of a bipartite graph whose vertices are *ports*, not addresses. It has phases:
//! existing rails, a maximum matching of ports that share a network, partners for the remaining
//! ports, and then the same for ports without a common network (sites with a router between them).
//! A greedy matching would let some ports share a partner needlessly.

mod filter;
mod pair;
#[cfg(test)]
mod tests;

pub use filter::{ParseFilterError, RailFilter};
pub use pair::{Pair, Skip, Unreachable, only_interface};

use crate::wire::Port;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The most addresses of one host that are considered. A peer chooses how many it sends, and all
/// pairs are formed.
pub(crate) const MAX_ADDRESSES: usize = 64;

/// The assumed speed in Mbit/s of a port without a known speed, when leftover ports are spread.
const ASSUMED_SPEED_MBIT_S: u32 = 1000;

/// All pairs of addresses of two hosts: first the rails by preference, then the others with the
/// reason.
///
/// `connected` has the addresses of the first connection (local, remote). It works, so it is the
/// first rail even if neither list has its addresses; only `filter` can exclude it. Within one host
/// it is the only rail.
pub fn pair(local: &[Port], remote: &[Port], connected: Option<(IpAddr, IpAddr)>, filter: &RailFilter) -> Vec<Pair> {
    pair_excluding(local, remote, connected.as_slice(), filter, &[])
}

/// As [`pair`], after some pairs have been dialled. Those in `standing` (the first connection
/// first) stay rails, those in `unreachable` are excluded, and the ports that lost theirs get the
/// next best partner.
pub fn pair_excluding(
    local: &[Port],
    remote: &[Port],
    standing: &[(IpAddr, IpAddr)],
    filter: &RailFilter,
    unreachable: &[Unreachable],
) -> Vec<Pair> {
    let standing: Vec<_> =
        standing.iter().take(MAX_ADDRESSES).map(|(l, r)| (l.to_canonical(), r.to_canonical())).collect();
    let local = Side::new(local, standing.iter().map(|s| s.0));
    let remote = Side::new(remote, standing.iter().map(|s| s.1));
    let mut choice = Choice::new(local, remote, &standing, filter, unreachable);
    choice.take_standing();
    for class in [Class::CommonNetwork, Class::Routed] {
        choice.match_free_ports(class);
        choice.cover_rest(class);
    }
    choice.into_pairs()
}

/// The quality of a pair; lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It already works: its index in the list of existing rails.
    Standing(usize),
    /// Neighbours in one network.
    CommonNetwork,
    /// There is a router between the two, if they can reach each other.
    Routed,
}

/// One host: its addresses, and the ports that they are on.
struct Side {
    addresses: Vec<Port>,
    /// The port of every address, a number below `ports`.
    port_of: Vec<usize>,
    /// The rank of every port: fast ones first, then in the host's order.
    rank: Vec<usize>,
    speed_mbit_s: Vec<u32>,
    /// The rails chosen on every port.
    rails: Vec<usize>,
}

impl Side {
    fn new(all: &[Port], standing: impl Iterator<Item = IpAddr>) -> Side {
        let mut side = Side { addresses: vec![], port_of: vec![], rank: vec![], speed_mbit_s: vec![], rails: vec![] };
        let mut indices = Vec::new();
        for port in all.iter().take(MAX_ADDRESSES) {
            side.add(canonical(port), Some(port.index), &mut indices);
        }
        for address in standing {
            if let Some(port) = all.iter().find(|p| p.address.to_canonical() == address) {
                side.add(canonical(port), Some(port.index), &mut indices);
            } else {
                let prefix_bits = if address.is_ipv4() { 32 } else { 128 };
                let port = Port { name: String::new(), index: 0, address, prefix_bits, speed_mbit_s: 0 };
                side.add(port, None, &mut indices);
            }
        }
        let mut order: Vec<usize> = (0..indices.len()).collect();
        order.sort_by_key(|&p| (Reverse(side.speed_mbit_s[p]), p));
        side.rank = vec![0; order.len()];
        for (rank, port) in order.into_iter().enumerate() {
            side.rank[port] = rank;
        }
        side.rails = vec![0; indices.len()];
        side
    }

    /// `index` identifies a port. `None` is an unknown address, which counts as a separate port.
    fn add(&mut self, port: Port, index: Option<u32>, indices: &mut Vec<Option<u32>>) {
        if self.addresses.iter().any(|p| p.address == port.address) {
            return;
        }
        let at = indices.iter().position(|i| index.is_some() && *i == index).unwrap_or_else(|| {
            indices.push(index);
            self.speed_mbit_s.push(0);
            indices.len() - 1
        });
        self.speed_mbit_s[at] = self.speed_mbit_s[at].max(port.speed_mbit_s);
        self.port_of.push(at);
        self.addresses.push(port);
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|p| p.address == address)
    }

    /// Ports without a rail, the best first.
    fn free(&self) -> Vec<usize> {
        let mut free: Vec<usize> = (0..self.rails.len()).filter(|&p| self.rails[p] == 0).collect();
        free.sort_by_key(|&p| self.rank[p]);
        free
    }

    /// The share of a port that one more rail could get, in bit/s, so that integers can be
    /// compared.
    fn share(&self, port: usize) -> u64 {
        let speed = match self.speed_mbit_s[port] {
            0 => ASSUMED_SPEED_MBIT_S,
            known => known,
        };
        u64::from(speed) * 1_000_000 / (self.rails[port] as u64 + 1)
    }
}

/// The best pair of addresses between two ports. It prefers two private or two public addresses,
/// then the family that is known to work on one of the ports, then IPv4. The order of the fields is
/// the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    class: Class,
    other_scope: bool,
    other_family: bool,
    local: usize,
    remote: usize,
}

struct Choice {
    local: Side,
    remote: Side,
    /// Why a pair of addresses cannot be a rail, for each pair, row by row of local addresses.
    refused: Vec<Option<Skip>>,
    /// The best addresses of every pair of ports that could be a rail.
    edges: BTreeMap<(usize, usize), Edge>,
    /// Pairs of ports, the best first.
    chosen: Vec<(usize, usize)>,
}

impl Choice {
    fn new(
        local: Side,
        remote: Side,
        standing: &[(IpAddr, IpAddr)],
        filter: &RailFilter,
        unreachable: &[Unreachable],
    ) -> Choice {
        let mut choice = Choice { local, remote, refused: vec![], edges: BTreeMap::new(), chosen: vec![] };
        // The family that is known to work on the ports of the first connection.
        let first = standing.first().map(|&(l, r)| {
            let at = |side: &Side, a| side.addresses.iter().position(|p| p.address == a).map(|i| side.port_of[i]);
            (at(&choice.local, l), at(&choice.remote, r), l.is_ipv6())
        });
        let stays_here = |l: IpAddr, r: IpAddr| l.is_loopback() || r.is_loopback() || choice.local.has(r);
        let only = standing.first().filter(|&&(l, r)| stays_here(l, r));
        for (l, local) in choice.local.addresses.iter().enumerate() {
            for (r, remote) in choice.remote.addresses.iter().enumerate() {
                let stands = standing.iter().position(|&s| s == (local.address, remote.address));
                let verdict = match only {
                    _ if !filter.admits(local, remote.address) => Err(Skip::FilteredOut),
                    Some(&(a, b)) if (a, b) != (local.address, remote.address) => {
                        Err(Skip::SameHost { by: format!("{a} -> {b}") })
                    }
                    _ => judge(local, remote, stands, choice.local.has(remote.address), unreachable),
                };
                match verdict {
                    Ok(class) => {
                        let ports = (choice.local.port_of[l], choice.remote.port_of[r]);
                        let prefer_ipv6 =
                            first.is_some_and(|(fl, fr, ipv6)| ipv6 && (fl == Some(ports.0) || fr == Some(ports.1)));
                        let edge = Edge {
                            class,
                            other_family: local.address.is_ipv6() != prefer_ipv6,
                            other_scope: is_private(local.address) != is_private(remote.address),
                            local: l,
                            remote: r,
                        };
                        choice.edges.entry(ports).and_modify(|e| *e = edge.min(*e)).or_insert(edge);
                        choice.refused.push(None);
                    }
                    Err(skip) => choice.refused.push(Some(skip)),
                }
            }
        }
        choice
    }

    fn choose(&mut self, ports: (usize, usize)) {
        self.local.rails[ports.0] += 1;
        self.remote.rails[ports.1] += 1;
        self.chosen.push(ports);
    }

    fn take_standing(&mut self) {
        let mut standing: Vec<_> =
            self.edges.iter().filter(|(_, e)| matches!(e.class, Class::Standing(_))).map(|(&p, &e)| (e, p)).collect();
        standing.sort_unstable();
        standing.into_iter().for_each(|(_, ports)| self.choose(ports));
    }

    /// Gives as many free ports as possible a free partner each, by augmenting paths. They start
    /// from the best ports, so that the i-th gets the i-th unless another port would lose its
    /// partner.
    fn match_free_ports(&mut self, class: Class) {
        let (rows, columns) = (self.local.free(), self.remote.free());
        let partners: BTreeMap<usize, Vec<usize>> = rows
            .iter()
            .map(|&l| {
                let edge = |r: usize| self.edges.get(&(l, r)).filter(|e| e.class == class);
                let mut row: Vec<_> =
                    columns.iter().filter_map(|&r| Some((edge(r)?.other_scope, self.remote.rank[r], r))).collect();
                row.sort_unstable();
                (l, row.into_iter().map(|(_, _, r)| r).collect())
            })
            .collect();
        let mut taken_by = BTreeMap::new();
        for &l in &rows {
            augment(l, &partners, &mut taken_by, &mut vec![false; self.remote.rails.len()]);
        }
        let mut matched: Vec<_> = taken_by.into_iter().map(|(r, l)| (l, r)).collect();
        matched.sort_by_key(|&(l, r)| (self.local.rank[l], self.remote.rank[r]));
        matched.into_iter().for_each(|ports| self.choose(ports));
    }

    /// Gives every remaining free port the partner with the largest free share.
    fn cover_rest(&mut self, class: Class) {
        for l in self.local.free() {
            let row = self.edges.range((l, 0)..=(l, usize::MAX)).filter(|(_, e)| e.class == class);
            let side = &self.remote;
            let best = row.min_by_key(|((_, r), e)| (e.other_scope, Reverse(side.share(*r)), side.rank[*r]));
            best.map(|(&ports, _)| ports).into_iter().for_each(|ports| self.choose(ports));
        }
        for r in self.remote.free() {
            let column = self.edges.iter().filter(|(ports, e)| ports.1 == r && e.class == class);
            let side = &self.local;
            let best = column.min_by_key(|((l, _), e)| (e.other_scope, Reverse(side.share(*l)), side.rank[*l]));
            best.map(|(&ports, _)| ports).into_iter().for_each(|ports| self.choose(ports));
        }
    }

    fn into_pairs(self) -> Vec<Pair> {
        let edge_of = |ports: &(usize, usize)| self.edges[ports];
        let name = |e: Edge| pair::name(&self.local.addresses[e.local], &self.remote.addresses[e.remote]);
        let pair = |l: usize, r: usize, skip| Pair {
            local: self.local.addresses[l].clone(),
            remote: self.remote.addresses[r].clone(),
            skip,
        };
        let mut pairs: Vec<Pair> =
            self.chosen.iter().map(edge_of).map(|edge| pair(edge.local, edge.remote, None)).collect();
        let columns = self.remote.addresses.len();
        for (at, refused) in self.refused.iter().enumerate() {
            let (l, r) = (at / columns, at % columns);
            let ports = (self.local.port_of[l], self.remote.port_of[r]);
            let skip = match refused {
                Some(skip) => skip.clone(),
                None if self.chosen.contains(&ports) => {
                    let edge = edge_of(&ports);
                    let by = name(edge);
                    if (edge.local, edge.remote) == (l, r) {
                        continue;
                    }
                    if self.local.addresses[edge.local].address.is_ipv4() == self.local.addresses[l].address.is_ipv4() {
                        Skip::PortsServed { by }
                    } else {
                        Skip::SameAsAnotherFamily { by }
                    }
                }
                None if !in_common_network(&self.local.addresses[l], &self.remote.addresses[r]) => {
                    Skip::NoCommonNetwork
                }
                None => {
                    let on_local = self.chosen.iter().find(|c| c.0 == ports.0).map(edge_of);
                    let on_remote = self.chosen.iter().find(|c| c.1 == ports.1).map(edge_of);
                    let by: Vec<String> = [on_local, on_remote].into_iter().flatten().map(name).collect();
                    Skip::PortsServed { by: by.join(" and ") }
                }
            };
            pairs.push(pair(l, r, Some(skip)));
        }
        pairs
    }
}

/// The relation of two addresses, if they can be a rail.
fn judge(
    local: &Port,
    remote: &Port,
    stands: Option<usize>,
    remote_is_own: bool,
    unreachable: &[Unreachable],
) -> Result<Class, Skip> {
    let failed =
        |u: &&Unreachable| (u.local.to_canonical(), u.remote.to_canonical()) == (local.address, remote.address);
    if let Some(failure) = unreachable.iter().find(failed) {
        return Err(Skip::Unreachable { error: failure.error.clone() });
    }
    if let Some(place) = stands {
        return Ok(Class::Standing(place));
    }
    if local.address.is_ipv4() != remote.address.is_ipv4() {
        return Err(Skip::DifferentFamily);
    }
    for address in [local.address, remote.address] {
        if is_link_local(address) {
            return Err(Skip::LinkLocal);
        }
        if address.is_loopback() || address.is_multicast() || address.is_unspecified() {
            return Err(Skip::NotReachableAddress);
        }
    }
    if remote_is_own {
        return Err(Skip::OwnAddress);
    }
    Ok(if in_common_network(local, remote) { Class::CommonNetwork } else { Class::Routed })
}

/// Finds the best free partner for `l`. Without one, it moves other ports to their free partners.
/// `taken_by` is the matching so far.
fn augment(
    l: usize,
    partners: &BTreeMap<usize, Vec<usize>>,
    taken_by: &mut BTreeMap<usize, usize>,
    seen: &mut [bool],
) -> bool {
    let row = partners.get(&l).map_or(&[][..], Vec::as_slice);
    if let Some(&free) = row.iter().find(|r| !taken_by.contains_key(r)) {
        taken_by.insert(free, l);
        return true;
    }
    // The recursion is at most as deep as the number of ports: every level marks one as seen.
    for &r in row {
        if !std::mem::replace(&mut seen[r], true) && augment(taken_by[&r], partners, taken_by, seen) {
            taken_by.insert(r, l);
            return true;
        }
    }
    false
}

/// An IPv4-mapped IPv6 address counts as IPv4.
fn canonical(port: &Port) -> Port {
    let address = port.address.to_canonical();
    let mapped = address.is_ipv4() != port.address.is_ipv4();
    let prefix_bits = if mapped { port.prefix_bits.saturating_sub(96) } else { port.prefix_bits };
    Port { address, prefix_bits, ..port.clone() }
}

/// Whether each address is in the other's network. If the prefixes disagree, one host needs a
/// router.
fn in_common_network(a: &Port, b: &Port) -> bool {
    let covers = |p: &Port, other: IpAddr| filter::in_network(other, p.address, p.prefix_bits);
    covers(a, b.address) && covers(b, a.address)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Addresses that only hosts of the same organization reach. Of a private and a public one, at most
/// one side can dial.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}
