//! What is simulated: hosts, links between clusters, and their changes.

use multirail_proto::multicast::members::{MemberId, Members, MembersError};
use multirail_proto::multicast::pieces::Pieces;
use multirail_proto::multicast::plan::bound::{Rates, bound_time_us};
use multirail_proto::rng::Rng;
use std::sync::Arc;

/// The smallest rate of a link, so that time moves on and nothing is divided by zero.
pub const MIN_RATE_BYTES_S: f64 = 1000.0;

/// The links of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostLinks {
    /// Its port, which everything it sends and receives passes, each way, in bytes/s.
    pub lan_bytes_s: f64,
    /// Its limit for sending out of its cluster; infinite: none.
    pub wan_out_bytes_s: f64,
    /// Its limit for receiving from outside.
    pub wan_in_bytes_s: f64,
}

impl HostLinks {
    /// A port of `lan_bytes_s`, without other limits.
    pub fn lan(lan_bytes_s: f64) -> Self {
        Self { lan_bytes_s, wan_out_bytes_s: f64::INFINITY, wan_in_bytes_s: f64::INFINITY }
    }
}

/// A change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The link from one cluster to another has this rate from now on.
    WanRate {
        /// The sending cluster.
        from: u32,
        /// The receiving cluster.
        to: u32,
        /// Bytes/s, at least [`MIN_RATE_BYTES_S`].
        bytes_s: f64,
    },
    /// A host dies. At time 0, the host joins late, when it returns.
    Die(MemberId),
    /// A dead host returns with the pieces that it held.
    Return(MemberId),
    /// A host learns the true clusters.
    Regroup(MemberId),
}

/// A change at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct At {
    /// The time since the beginning.
    pub at_us: u64,
    /// The change.
    pub change: Change,
}

/// When a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Every host that lives or will return holds every piece.
    Complete,
    /// Every host that lives or will return has given
    /// [`Finished`](multirail_proto::multicast::Output::Finished).
    Finished,
}

/// Everything that a run needs, except the nodes.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The hosts.
    pub members: Arc<Members>,
    /// The clusters that the hosts believe in until they learn the true ones; `None`: the true ones.
    pub believed: Option<Arc<Members>>,
    /// The data.
    pub pieces: Pieces,
    /// The links of each host.
    pub hosts: Vec<HostLinks>,
    /// `wan_bytes_s[i][j]`: the rate of the link from cluster `i` to cluster `j`, in bytes/s.
    pub wan_bytes_s: Vec<Vec<f64>>,
    /// The one-way delay between clusters.
    pub wan_delay_us: u64,
    /// The one-way delay within a cluster.
    pub lan_delay_us: u64,
    /// The changes, in any order.
    pub schedule: Vec<At>,
    /// The unit in which links are shared. Smaller units are fairer and slower to simulate.
    pub chunk_bytes: u32,
    /// The time from a host's death until its peers notice, and the time of a failed attempt to
    /// connect to a dead host.
    pub detect_us: u64,
    /// When the run is over.
    pub until: Until,
    /// The limit of simulated time.
    pub max_us: u64,
    /// The limit of events.
    pub max_steps: u64,
}

/// A LAN of 1 Gbit/s.
pub const GIGABIT_BYTES_S: f64 = 125e6;

impl Scenario {
    /// Clusters of these sizes; the root is the first host of the first cluster. Links of
    /// `wan_bytes_s` with a round trip of 20 ms join every pair of clusters; hosts have gigabit
    /// ports.
    pub fn new(sizes: &[u32], wan_bytes_s: Vec<Vec<f64>>, pieces: Pieces) -> Result<Self, MembersError> {
        let cluster_of: Vec<u32> =
            sizes.iter().enumerate().flat_map(|(cluster, size)| (0..*size).map(move |_| cluster as u32)).collect();
        let members = Arc::new(Members::new(cluster_of, 0)?);
        Ok(Self {
            hosts: vec![HostLinks::lan(GIGABIT_BYTES_S); members.count()],
            members,
            believed: None,
            pieces,
            wan_bytes_s,
            wan_delay_us: 10_000,
            lan_delay_us: 50,
            schedule: Vec::new(),
            chunk_bytes: 64 << 10,
            detect_us: 200_000,
            until: Until::Complete,
            max_us: 3_600_000_000,
            max_steps: 2_000_000_000,
        })
    }

    /// As [`Scenario::new`], with one rate for all links between clusters.
    pub fn uniform(sizes: &[u32], wan_bytes_s: f64, pieces: Pieces) -> Result<Self, MembersError> {
        Self::new(sizes, vec![vec![wan_bytes_s; sizes.len()]; sizes.len()], pieces)
    }

    /// The set-up of the paper (MOB, figure 3): clusters A, B, C, D, with the root in A.
    pub fn four_clusters(sizes: [u32; 4], wan: Wan, scale: f64, pieces: Pieces) -> Result<Self, MembersError> {
        Self::new(&sizes, wan.bytes_s(scale), pieces)
    }

    /// The links become those of `wan` at `at_us` (scenarios 3 and 4 of the paper).
    pub fn then(mut self, at_us: u64, wan: Wan, scale: f64) -> Self {
        for (from, row) in wan.bytes_s(scale).into_iter().enumerate() {
            for (to, bytes_s) in row.into_iter().enumerate().filter(|(to, _)| *to != from) {
                let change = Change::WanRate { from: from as u32, to: to as u32, bytes_s };
                self.schedule.push(At { at_us, change });
            }
        }
        self
    }

    /// Every `every_us`, all links get between 10 % and 100 % of their rates, the same in both
    /// directions (scenario 5 of the paper, "mayhem").
    pub fn mayhem(mut self, seed: u64, every_us: u64, until_us: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clusters = self.wan_bytes_s.len();
        let every_us = every_us.max(1);
        for at_us in (1..).map(|k| k * every_us).take_while(|at| *at < until_us) {
            for from in 0..clusters {
                for to in from + 1..clusters {
                    let part = 0.1 + 0.9 * rng.unit();
                    for (from, to) in [(from, to), (to, from)] {
                        let bytes_s = self.wan_bytes_s[from][to] * part;
                        let change = Change::WanRate { from: from as u32, to: to as u32, bytes_s };
                        self.schedule.push(At { at_us, change });
                    }
                }
            }
        }
        self
    }

    /// Sets the round trip between clusters.
    pub fn round_trip_us(mut self, wan_us: u64) -> Self {
        self.wan_delay_us = wan_us / 2;
        self
    }

    /// The rates between clusters from each time on, for [`bound_time_us`].
    pub fn rates(&self) -> Vec<Rates> {
        let mut rates = vec![Rates { from_us: 0, link_bytes_s: self.wan_bytes_s.clone() }];
        let mut changes: Vec<&At> = self.schedule.iter().collect();
        changes.sort_by_key(|at| at.at_us);
        for at in changes {
            let Change::WanRate { from, to, bytes_s } = at.change else { continue };
            let last = rates[rates.len() - 1].clone();
            if last.from_us < at.at_us {
                rates.push(Rates { from_us: at.at_us, ..last });
            }
            if let Some(now) = rates.last_mut() {
                now.link_bytes_s[from as usize][to as usize] = bytes_s.max(MIN_RATE_BYTES_S);
            }
        }
        rates
    }

    /// The time that no method can beat, by the links between clusters and their delay; 0 for one
    /// cluster.
    pub fn bound_us(&self) -> Option<u64> {
        let root_cluster = self.members.cluster(self.members.root()) as usize;
        let bound_us = bound_time_us(root_cluster, &self.rates(), self.pieces.total_bytes as f64)?;
        Some(if self.wan_bytes_s.len() > 1 { bound_us + self.wan_delay_us } else { 0 })
    }

    /// `share` of the hosts, never the root, die for good at random times before `until_us`.
    pub fn deaths(mut self, seed: u64, share: f64, until_us: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut others: Vec<MemberId> =
            (0..self.members.count() as MemberId).filter(|m| *m != self.members.root()).collect();
        for _ in 0..(self.members.count() as f64 * share).round() as usize {
            if others.is_empty() {
                break;
            }
            let victim = others.swap_remove(rng.below(others.len() as u64) as usize);
            self.schedule.push(At { at_us: rng.below(until_us), change: Change::Die(victim) });
        }
        self
    }
}

/// The links between four clusters. The paper shows their rates only in a picture (figure 3); these
/// are the project's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wan {
    /// A–B 10, A–C 4, A–D 3, B–C 6, B–D 8, C–D 5 MB/s.
    Fast,
    /// The same, but A–D and B–C 0.8 MB/s.
    Slow,
}

impl Wan {
    /// The rate from each cluster to each other in bytes/s, times `scale`.
    pub fn bytes_s(self, scale: f64) -> Vec<Vec<f64>> {
        let (ad, bc) = if self == Wan::Fast { (3.0, 6.0) } else { (0.8, 0.8) };
        let mb = [[0.0, 10.0, 4.0, ad], [10.0, 0.0, bc, 8.0], [4.0, bc, 0.0, 5.0], [ad, 8.0, 5.0, 0.0]];
        mb.iter().map(|row| row.iter().map(|rate| rate * 1e6 * scale).collect()).collect()
    }
}
