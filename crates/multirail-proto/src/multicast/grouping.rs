//! Which hosts are near each other, from measurements between them.
//!
//! Single linkage: hosts are joined along the shortest measured edges to a tree. The tree is cut
//! where the length of its edges jumps. Round trips decide where they can. Otherwise rates do, for
//! sites that are near, or a network that emulates only rates. If neither decides, all hosts form
//! one cluster.

use std::collections::HashSet;

/// The least factor between round trips within a cluster and between clusters. Within a cluster
/// they differ by a factor of two, because of switches and load.
pub(super) const RTT_STEP: f64 = 3.0;
/// The least difference. A factor of tens of microseconds is what schedulers cause.
pub(super) const RTT_STEP_US: f64 = 250.0;
/// The least factor between rates. Several pairs are measured at once and share links.
const RATE_STEP: f64 = 3.0;
/// The fewest hosts that measure.
const LEAST_LANDMARKS: usize = 3;

/// A measurement between two hosts, whichever of them measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// One host.
    pub from: u32,
    /// The other host.
    pub to: u32,
    /// The round-trip time in microseconds.
    pub rtt_us: f64,
    /// The achieved rate in bytes/s, if it was measured.
    pub rate_bytes_s: Option<f64>,
}

/// What told the clusters apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decided {
    /// Round-trip times.
    RoundTrips,
    /// Achieved rates.
    Rates,
    /// Nothing: all hosts are alike.
    Alike,
}

/// The cluster of each host, numbered from 0 in the order of the first host of each, and what
/// decided. A host without measurements is a cluster of its own.
pub fn clusters_from(hosts: usize, edges: &[Edge]) -> (Vec<u32>, Decided) {
    let rtts: Vec<_> = edges.iter().map(|e| (e.rtt_us.max(1.0), e.from, e.to)).collect();
    if let Some(clusters) = split(hosts, &rtts, RTT_STEP, RTT_STEP_US) {
        return (clusters, Decided::RoundTrips);
    }
    if let Some(clusters) = split(hosts, &rates(edges).collect::<Vec<_>>(), RATE_STEP, 0.0) {
        return (clusters, Decided::Rates);
    }
    // Joined as far as measurements go.
    (numbered(hosts, &tree(hosts, &rtts), f64::INFINITY), Decided::Alike)
}

/// The host to measure from next, if not all pairs can be measured: the one farthest from all hosts
/// that have measured (`done`), in a cluster without such a host. `None` if every cluster has one.
pub fn next_landmark(hosts: usize, edges: &[Edge], done: &[u32], by_rate: bool) -> Option<u32> {
    let distances: Vec<_> = match by_rate {
        false => edges.iter().map(|e| (e.rtt_us.max(1.0), e.from, e.to)).collect(),
        true => rates(edges).collect(),
    };
    let (factor, least) = if by_rate { (RATE_STEP, 0.0) } else { (RTT_STEP, RTT_STEP_US) };
    let clusters = split(hosts, &distances, factor, least);
    let clusters = clusters.unwrap_or_else(|| numbered(hosts, &tree(hosts, &distances), f64::INFINITY));
    let measured: HashSet<u32> = done.iter().copied().filter(|host| (*host as usize) < hosts).collect();
    let known: HashSet<u32> = measured.iter().map(|host| clusters[*host as usize]).collect();
    let mut nearest = vec![f64::INFINITY; hosts];
    for (distance, from, to) in distances {
        for (one, other) in [(from, to), (to, from)] {
            if measured.contains(&one)
                && let Some(near) = nearest.get_mut(other as usize)
            {
                *near = near.min(distance);
            }
        }
    }
    // With one host that has measured, all may be equally far from it. Two more show whether any
    // host is nearer.
    let wanted = |host: &u32| done.len() < LEAST_LANDMARKS || !known.contains(&clusters[*host as usize]);
    let left = (0..hosts as u32).filter(|host| !measured.contains(host) && nearest[*host as usize].is_finite());
    left.filter(wanted).max_by(|a, b| nearest[*a as usize].total_cmp(&nearest[*b as usize]).then(b.cmp(a)))
}

/// Rates as distances: the time that a byte takes.
fn rates(edges: &[Edge]) -> impl Iterator<Item = (f64, u32, u32)> {
    edges.iter().filter_map(|e| Some((1.0 / e.rate_bytes_s.filter(|r| *r > 0.0)?, e.from, e.to)))
}

/// Clusters if the edges of the tree have a step. The largest step counts.
pub(super) fn split(hosts: usize, edges: &[(f64, u32, u32)], factor: f64, least: f64) -> Option<Vec<u32>> {
    let tree = tree(hosts, edges);
    let steps = tree.windows(2).map(|pair| (pair[0].0, pair[1].0));
    let decisive = steps.filter(|(short, long)| *long >= short * factor && long - short >= least);
    let (short, _) = decisive.max_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)))?;
    Some(numbered(hosts, &tree, short))
}

/// The edges of a minimum spanning tree (a forest if edges are missing), the shortest first.
fn tree(hosts: usize, edges: &[(f64, u32, u32)]) -> Vec<(f64, u32, u32)> {
    let exists = |host: &u32| (*host as usize) < hosts;
    let mut sorted: Vec<_> =
        edges.iter().filter(|(w, a, b)| w.is_finite() && exists(a) && exists(b)).copied().collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut sets = Sets::new(hosts);
    sorted.retain(|(_, a, b)| sets.join(*a, *b));
    sorted
}

/// The clusters that the edges of the tree up to `longest` make.
fn numbered(hosts: usize, tree: &[(f64, u32, u32)], longest: f64) -> Vec<u32> {
    let mut sets = Sets::new(hosts);
    for (_, a, b) in tree.iter().take_while(|(weight, ..)| *weight <= longest) {
        sets.join(*a, *b);
    }
    let mut number_of = vec![None; hosts];
    let mut count = 0;
    let number = |host: u32| {
        let root = sets.find(host) as usize;
        *number_of[root].get_or_insert_with(|| {
            count += 1;
            count - 1
        })
    };
    (0..hosts as u32).map(number).collect()
}

/// Disjoint sets.
struct Sets(Vec<u32>);

impl Sets {
    fn new(hosts: usize) -> Self {
        Self((0..hosts as u32).collect())
    }

    fn find(&mut self, mut host: u32) -> u32 {
        while self.0[host as usize] != host {
            let above = self.0[host as usize];
            self.0[host as usize] = self.0[above as usize];
            host = above;
        }
        host
    }

    /// Joins two sets; whether they were apart.
    fn join(&mut self, one: u32, other: u32) -> bool {
        let (one, other) = (self.find(one), self.find(other));
        self.0[one.max(other) as usize] = one.min(other);
        one != other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LANDMARKS: usize = 16;

    /// A network of clusters of these sizes. Hosts are numbered in turns, so that numbers do not
    /// reveal clusters.
    #[derive(Debug, Clone)]
    struct Net {
        of: Vec<u32>,
        lan: (f64, f64),
        wan: (f64, f64),
        jitter: Vec<f64>,
    }

    impl Net {
        fn edge(&self, from: u32, to: u32) -> Edge {
            let (rtt_us, rate) = if self.of[from as usize] == self.of[to as usize] { self.lan } else { self.wan };
            let (low, high) = (from.min(to) as usize, from.max(to) as usize);
            let jitter = self.jitter[(low * 31 + high * 17) % self.jitter.len()];
            Edge { from, to, rtt_us: rtt_us * jitter, rate_bytes_s: Some(rate / jitter) }
        }

        fn hosts(&self) -> usize {
            self.of.len()
        }

        fn all_pairs(&self) -> Vec<Edge> {
            let hosts = self.hosts() as u32;
            (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| (a, b))).map(|(a, b)| self.edge(a, b)).collect()
        }

        fn by_landmarks(&self, by_rate: bool) -> (Vec<Edge>, usize) {
            let (mut edges, mut done, mut next) = (Vec::new(), Vec::new(), Some(0));
            while let Some(landmark) = next.filter(|_| done.len() < LANDMARKS) {
                edges.extend((0..self.hosts() as u32).filter(|h| *h != landmark).map(|h| self.edge(landmark, h)));
                done.push(landmark);
                next = next_landmark(self.hosts(), &edges, &done, by_rate);
            }
            (edges, done.len())
        }

        /// The clusters, numbered as the result numbers them.
        fn expected(&self) -> Vec<u32> {
            let mut seen = Vec::new();
            let number = |cluster: &u32| {
                seen.iter().position(|s| s == cluster).unwrap_or_else(|| {
                    seen.push(*cluster);
                    seen.len() - 1
                }) as u32
            };
            self.of.iter().map(number).collect()
        }
    }

    /// Clusters of two hosts or more. Without them, all hosts would be equally far from each other.
    fn sizes() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(2usize..20, 2..7)
    }

    fn net(sizes: Vec<usize>, lan: (f64, f64), wan: (f64, f64), jitter: Vec<f64>) -> Net {
        let mut of = Vec::new();
        for rank in 0..sizes.iter().copied().max().unwrap_or(0) {
            of.extend(sizes.iter().enumerate().filter(|(_, size)| rank < **size).map(|(cluster, _)| cluster as u32));
        }
        Net { of, lan, wan, jitter }
    }

    /// Factors from 1 to below 1.4, repeated over the pairs.
    fn jitter() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(1.0f64..1.4, 1..50)
    }

    proptest! {
        #[test]
        fn round_trips_tell_clusters(sizes in sizes(), jitter in jitter(), lan_us in 20.0f64..400.0, times in 8.0f64..1000.0) {
            let net = net(sizes, (lan_us, 1e8), (lan_us * times + 400.0, 1e8), jitter);
            prop_assert_eq!(clusters_from(net.hosts(), &net.all_pairs()), (net.expected(), Decided::RoundTrips));
            let (edges, landmarks) = net.by_landmarks(false);
            prop_assert_eq!(clusters_from(net.hosts(), &edges), (net.expected(), Decided::RoundTrips));
            prop_assert!(landmarks <= *net.expected().iter().max().unwrap_or(&0) as usize + 3, "{landmarks} landmarks");
        }

        #[test]
        fn rates_tell_clusters_where_round_trips_do_not(sizes in sizes(), jitter in jitter(), times in 6.0f64..500.0) {
            let net = net(sizes, (60.0, 1.25e8), (90.0, 1.25e8 / times), jitter);
            prop_assert_eq!(clusters_from(net.hosts(), &net.all_pairs()), (net.expected(), Decided::Rates));
            let (edges, _) = net.by_landmarks(true);
            prop_assert_eq!(clusters_from(net.hosts(), &edges), (net.expected(), Decided::Rates));
        }

        #[test]
        fn alike_is_one_cluster(hosts in 1usize..80, jitter in jitter(), rtt_us in 20.0f64..100_000.0) {
            let net = net(vec![hosts], (rtt_us, 1e8), (0.0, 0.0), jitter);
            prop_assert_eq!(clusters_from(hosts, &net.all_pairs()), (vec![0; hosts], Decided::Alike));
            let (edges, landmarks) = net.by_landmarks(false);
            prop_assert_eq!(clusters_from(hosts, &edges), (vec![0; hosts], Decided::Alike));
            prop_assert!(landmarks <= 3);
        }

        /// Any measurements give the same result in both directions, and numbers without gaps.
        #[test]
        fn any_edges_give_clusters(
            hosts in 1usize..20,
            edges in prop::collection::vec((0u32..22, 0u32..22, any::<f64>(), prop::option::of(any::<f64>())), 0..60),
        ) {
            let edges: Vec<_> = edges.into_iter()
                .map(|(from, to, rtt_us, rate_bytes_s)| Edge { from, to, rtt_us, rate_bytes_s }).collect();
            let (clusters, decided) = clusters_from(hosts, &edges);
            prop_assert_eq!(clusters.len(), hosts);
            let mut next = 0;
            for cluster in &clusters {
                prop_assert!(*cluster <= next);
                next = next.max(cluster + 1);
            }
            let reversed: Vec<_> = edges.iter().map(|e| Edge { from: e.to, to: e.from, ..*e }).collect();
            prop_assert_eq!(clusters_from(hosts, &reversed), (clusters, decided));
            let _ = next_landmark(hosts, &edges, &[0], false);
        }
    }

    #[test]
    fn an_unreachable_host_is_alone() {
        let edge = |from, to, rtt_us| Edge { from, to, rtt_us, rate_bytes_s: None };
        assert_eq!(clusters_from(4, &[edge(0, 1, 100.0), edge(1, 3, 120.0)]), (vec![0, 0, 1, 0], Decided::Alike));
        assert_eq!(clusters_from(0, &[]), (vec![], Decided::Alike));
        let far = [edge(0, 1, 100.0), edge(1, 3, 9000.0)];
        assert_eq!(clusters_from(4, &far), (vec![0, 0, 1, 2], Decided::RoundTrips));
    }

    #[test]
    fn steps_just_inside_and_outside_the_threshold() {
        let pairs = |near: f64, far: f64| {
            let edge = |from, to, rtt_us| Edge { from, to, rtt_us, rate_bytes_s: None };
            clusters_from(4, &[edge(0, 1, near), edge(2, 3, near), edge(0, 2, far), edge(1, 3, far)]).0
        };
        assert_eq!(pairs(1000.0, 3000.0), [0, 0, 1, 1]);
        assert_eq!(pairs(1000.0, 2999.0), [0, 0, 0, 0]);
        assert_eq!(pairs(50.0, 300.0), [0, 0, 1, 1]);
        assert_eq!(pairs(50.0, 299.0), [0, 0, 0, 0]);
    }
}
