//! A tree over all hosts, and the errors of plans.

use crate::multicast::bandwidths::BandwidthsError;
use crate::multicast::members::{MemberId, Members};
use crate::multicast::method_name::Method;
use serde::{Deserialize, Serialize};

/// A tree from the root to every host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// For each host, the one it receives from; `None` for the root.
    pub parent: Vec<Option<MemberId>>,
    /// The rate limit of every sender of the tree in bytes/s; `None`: unlimited.
    pub rate_bytes_s: Option<f64>,
}

/// The most trees of a plan.
pub(crate) const MAX_TREES: usize = 256;
/// The most clusters that `fpfr` and `balanced` plan for. Their work grows with the number of
/// links.
pub(crate) const MAX_PLANNED_CLUSTERS: usize = 256;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The method has no plan.
    #[error("{0} does not plan trees; flat, chain, magpie, fpfr and balanced do")]
    NoTrees(Method),
    /// The method needs the bandwidths between clusters.
    #[error("{0} plans with the bandwidths between clusters, and none are given")]
    NoBandwidths(Method),
    /// The bandwidths do not fit the hosts.
    #[error(transparent)]
    Bandwidths(#[from] BandwidthsError),
    /// No links lead to a cluster.
    #[error("by the given bandwidths, nothing gets from the root to cluster {0}")]
    Unreachable(u32),
    /// More clusters than `MAX_PLANNED_CLUSTERS`.
    #[error("{0} clusters; fpfr and balanced plan for up to {MAX_PLANNED_CLUSTERS}")]
    Clusters(usize),
    /// The solver found no rates.
    #[error("no rates for the trees: {0}")]
    Rates(String),
    /// A tree is not a spanning tree of these hosts from the root.
    #[error("tree {tree} of the plan: {problem}")]
    Tree {
        /// The index of the tree.
        tree: usize,
        /// What is wrong with the tree.
        problem: &'static str,
    },
}

impl Tree {
    pub(super) fn check(&self, members: &Members) -> Result<(), &'static str> {
        let count = members.count();
        if self.parent.len() != count {
            return Err("not as long as the list of hosts");
        }
        if self.rate_bytes_s.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("a rate is no positive number");
        }
        // Hosts that are known to hang below the root. Every way up ends there within as many steps
        // as there are hosts.
        let mut hangs = vec![false; count];
        hangs[members.root() as usize] = true;
        if self.parent[members.root() as usize].is_some() {
            return Err("the root receives");
        }
        for host in 0..count {
            let (mut at, mut way) = (host, Vec::new());
            while !hangs[at] {
                way.push(at);
                at = match self.parent[at] {
                    Some(parent) if (parent as usize) < count => parent as usize,
                    Some(_) => return Err("a sender is not one of the hosts"),
                    None => return Err("a host does not receive"),
                };
                if way.len() > count {
                    return Err("hosts in a circle");
                }
            }
            way.into_iter().for_each(|host| hangs[host] = true);
        }
        Ok(())
    }

    /// The receivers of every host: other clusters first, since they take longest, then hosts with
    /// most hosts below.
    pub fn children(&self, members: &Members) -> Vec<Vec<MemberId>> {
        let count = self.parent.len();
        let mut children = vec![Vec::new(); count];
        for (host, parent) in self.parent.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent as usize].push(host as MemberId);
            }
        }
        // Top down, so that the reverse order counts all hosts below a host before the host.
        let mut order = vec![members.root()];
        for next in 0..count {
            let Some(host) = order.get(next) else { break };
            order.extend(&children[*host as usize]);
        }
        let mut below = vec![1u32; count];
        for host in order.iter().rev() {
            if let Some(parent) = self.parent[*host as usize] {
                below[parent as usize] += below[*host as usize];
            }
        }
        for (host, of) in children.iter_mut().enumerate() {
            let order = |child: &MemberId| {
                let local = members.are_local(*child, host as MemberId);
                (local, u32::MAX - below[*child as usize], *child)
            };
            of.sort_by_key(order);
        }
        children
    }
}
