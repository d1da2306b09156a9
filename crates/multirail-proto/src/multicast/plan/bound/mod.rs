//! The bound that no method can beat: the smallest maximum flow from the root's cluster to any
//! other cluster. Data that reaches a cluster has crossed every cut between it and the root's
//! cluster. With coding at the clusters the flow can be reached, so that links alone give no better
//! bound. Networks within clusters are not a limit.

mod flow;

use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::Members;
use flow::Network;

/// The bound for constant bandwidths in bytes/s; infinite with one cluster. `bandwidths` must fit
/// the members ([`Bandwidths::check`]). If hosts are a limit, the hosts of a cluster count
/// together.
pub fn bound_bytes_s(members: &Members, bandwidths: &Bandwidths) -> f64 {
    let count = members.clusters().len();
    let root = members.cluster(members.root()) as usize;
    // A cluster has three nodes: its input, the cluster, its output.
    let (incoming, inside, outgoing) = (|c: usize| c, |c: usize| count + c, |c: usize| 2 * count + c);
    let mut network = Network::new(3 * count);
    for cluster in 0..count {
        let access = bandwidths.cluster_access(members, cluster);
        network.link(incoming(cluster), inside(cluster), access);
        network.link(inside(cluster), outgoing(cluster), access);
        (0..count).for_each(|to| network.link(outgoing(cluster), incoming(to), bandwidths.link(cluster, to)));
    }
    let flow = |to: usize| network.clone().max_flow(inside(root), inside(to));
    (0..count).filter(|to| *to != root).map(flow).fold(f64::INFINITY, f64::min)
}

/// The rates of links from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// Microseconds after the start.
    pub from_us: u64,
    /// As [`Bandwidths::link_bytes_s`].
    pub link_bytes_s: Vec<Vec<f64>>,
}

/// The least time in microseconds, rounded up, after which every cluster can have received
/// `total_bytes` when rates change. It is the maximum flow on the graph in which every cluster
/// occurs once for each time between changes and keeps what it has. `schedule` is in the order of
/// time; its last rates stay, and before its first, links carry nothing. `None`: never, or not
/// within 30 years.
pub fn bound_time_us(root_cluster: usize, schedule: &[Rates], total_bytes: f64) -> Option<u64> {
    const NEVER_US: u64 = 1 << 50;
    let count = schedule.first()?.link_bytes_s.len();
    if count <= 1 || total_bytes <= 0.0 {
        return Some(0);
    }
    // More time is never worse, so that bisection finds the first time that suffices.
    let enough = |end_us: u64| flow_until(root_cluster, schedule, end_us) >= total_bytes * (1.0 - 1e-12);
    let (mut too_short, mut long) = (0, NEVER_US);
    if !enough(long) {
        return None;
    }
    while long - too_short > 1 {
        let middle = too_short + (long - too_short) / 2;
        if enough(middle) { long = middle } else { too_short = middle }
    }
    Some(long)
}

/// The bytes that the cluster with the least can have received by then.
fn flow_until(root: usize, schedule: &[Rates], end_us: u64) -> f64 {
    let count = schedule.first().map_or(0, |rates| rates.link_bytes_s.len());
    let parts: Vec<&Rates> = schedule.iter().take_while(|rates| rates.from_us < end_us).collect();
    if parts.is_empty() {
        return 0.0;
    }
    let node = |part: usize, cluster: usize| part * count + cluster;
    let mut network = Network::new(parts.len() * count);
    for (part, rates) in parts.iter().enumerate() {
        let until_us = parts.get(part + 1).map_or(end_us, |next| next.from_us);
        let seconds = until_us.saturating_sub(rates.from_us) as f64 / 1e6;
        for cluster in 0..count {
            if part + 1 < parts.len() {
                network.link(node(part, cluster), node(part + 1, cluster), f64::INFINITY);
            }
            for to in (0..count).filter(|to| *to != cluster) {
                network.link(node(part, cluster), node(part, to), rates.link_bytes_s[cluster][to] * seconds);
            }
        }
    }
    let flow = |to: usize| network.clone().max_flow(node(0, root), node(parts.len() - 1, to));
    (0..count).filter(|to| *to != root).map(flow).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Clusters of one host, the first is the root.
    fn singles(count: usize) -> Members {
        Members::new((0..count as u32).collect(), 0).unwrap()
    }

    /// The four clusters, MB/s.
    fn four(slow: bool) -> Vec<Vec<f64>> {
        let (ad, bc) = if slow { (0.8, 0.8) } else { (3.0, 6.0) };
        vec![vec![0.0, 10.0, 4.0, ad], vec![10.0, 0.0, bc, 8.0], vec![4.0, bc, 0.0, 5.0], vec![ad, 8.0, 5.0, 0.0]]
    }

    #[test]
    fn the_four_clusters() {
        let bound = |slow| bound_bytes_s(&singles(4), &Bandwidths::of_links(four(slow)));
        assert!((bound(false) - 15.0).abs() < 1e-9);
        assert!((bound(true) - 9.8).abs() < 1e-9);
    }

    #[test]
    fn hosts_of_a_cluster_count_together() {
        let members = Members::new(vec![0, 0, 1, 1, 1], 0).unwrap();
        let mut bandwidths = Bandwidths::of_links(vec![vec![0.0, 100.0], vec![100.0, 0.0]]);
        assert_eq!(bound_bytes_s(&members, &bandwidths), 100.0);
        bandwidths.access_bytes_s = Some(vec![10.0; 5]);
        assert_eq!(bound_bytes_s(&members, &bandwidths), 20.0);
        assert_eq!(
            bound_bytes_s(&Members::new(vec![0, 0], 0).unwrap(), &Bandwidths::of_links(vec![vec![0.0]])),
            f64::INFINITY
        );
    }

    #[test]
    fn times_of_rates_that_stay_and_of_rates_that_change() {
        let at = |seconds: u64, slow| Rates { from_us: seconds * 1_000_000, link_bytes_s: four(slow) };
        assert_eq!(bound_time_us(0, &[at(0, false)], 150.0), Some(10_000_000));
        assert_eq!(bound_time_us(0, &[at(0, true)], 98.0), Some(10_000_000));
        assert_eq!(bound_time_us(0, &[at(2, false)], 150.0), Some(12_000_000));
        // C gets 15 a second: 4 from A, 6 over B, 5 over D. Slow, it gets 9.8.
        assert_eq!(bound_time_us(0, &[at(0, false), at(4, true)], 60.0 + 49.0), Some(9_000_000));
        assert_eq!(bound_time_us(0, &[at(0, false)], 0.0), Some(0));
        let nothing = Rates { from_us: 0, link_bytes_s: vec![vec![0.0; 2]; 2] };
        assert_eq!(bound_time_us(0, &[nothing], 1.0), None);
    }

    #[test]
    fn a_cluster_keeps_its_pieces() {
        let link = |from: usize, to: usize, rate: f64| {
            let mut links = vec![vec![0.0; 3]; 3];
            links[from][to] = rate;
            links
        };
        // Only A to B for 3 s, then only B to C: never both at once, and yet C gets all.
        let schedule = [
            Rates { from_us: 0, link_bytes_s: link(0, 1, 10.0) },
            Rates { from_us: 3_000_000, link_bytes_s: link(1, 2, 5.0) },
        ];
        assert_eq!(bound_time_us(0, &schedule, 30.0), Some(9_000_000));
        assert_eq!(bound_time_us(0, &schedule, 31.0), None);
    }

    proptest! {
        /// Against every cut of the clusters, each side of which a cluster is on may change once
        /// from far to near.
        #[test]
        fn times_are_those_of_the_worst_cut(
            count in 2usize..4,
            rates in prop::collection::vec(prop::collection::vec(0u32..8, 9), 1..4),
            gaps in prop::collection::vec(1u64..5, 4),
            total in 1u32..60,
        ) {
            let mut from_s = 0;
            let schedule: Vec<Rates> = rates.iter().zip(&gaps).map(|(rates, gap)| {
                let link_bytes_s = (0..count).map(|f| (0..count).map(|t| f64::from(rates[f * 3 + t])).collect()).collect();
                let one = Rates { from_us: from_s * 1_000_000, link_bytes_s };
                from_s += gap;
                one
            }).collect();
            let cut_bytes = |end_s: f64| {
                // A cluster is on the near side from part `joins[c]` on: what is near stays near,
                // because it keeps what it has.
                let parts = schedule.len() as u32;
                let mut least = f64::INFINITY;
                for target in 1..count {
                    for code in 0..(parts + 1).pow(count as u32) {
                        let joins = |c: usize| code / (parts + 1).pow(c as u32) % (parts + 1);
                        if joins(0) != 0 || joins(target) != parts {
                            continue;
                        }
                        let mut cut = 0.0;
                        for (part, rates) in schedule.iter().enumerate() {
                            let until = schedule.get(part + 1).map_or(end_s, |n| (n.from_us as f64 / 1e6).min(end_s));
                            let seconds = (until - rates.from_us as f64 / 1e6).max(0.0);
                            for from in 0..count {
                                for to in (0..count).filter(|to| *to != from) {
                                    if joins(from) <= part as u32 && joins(to) > part as u32 {
                                        cut += rates.link_bytes_s[from][to] * seconds;
                                    }
                                }
                            }
                        }
                        least = least.min(cut);
                    }
                }
                least
            };
            match bound_time_us(0, &schedule, f64::from(total)) {
                None => prop_assert!(cut_bytes(1e9) < f64::from(total)),
                Some(time_us) => {
                    prop_assert!(cut_bytes(time_us as f64 / 1e6) >= f64::from(total) - 1e-6);
                    prop_assert!(cut_bytes((time_us - 1) as f64 / 1e6) < f64::from(total) + 1e-6);
                    // One microsecond less is really not enough, but for rounding.
                    prop_assert!(cut_bytes((time_us.saturating_sub(3)) as f64 / 1e6) < f64::from(total));
                }
            }
        }
    }
}
