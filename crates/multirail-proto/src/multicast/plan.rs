//! A plan: trees over all hosts, and how much goes over each. Made once from what is known before the data moves; every host
//! makes the same from the same input.

use super::balanced;
use super::bandwidths::{Bandwidths, BandwidthsError};
use super::fpfr;
use super::members::{MemberId, Members};
use super::method::Method;
use super::trees;
use serde::{Deserialize, Serialize};

/// A tree from the root to every host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// Who sends to whom: by host, the one it receives from; `None` for the root.
    pub parent: Vec<Option<MemberId>>,
    /// What every sender of the tree keeps to, bytes/s; `None`: as much as goes.
    pub rate_bytes_s: Option<f64>,
}

/// Trees, each for a part of the data in proportion to its rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// At least one; hosts synchronize at the end over the first.
    pub trees: Vec<Tree>,
}

/// Most trees of a plan.
pub const MAX_TREES: usize = 256;
/// Most clusters that `fpfr` and `balanced` plan for: their work grows with the number of links.
pub const MAX_PLANNED_CLUSTERS: usize = 256;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The method has no plan.
    #[error("{0} does not plan trees; flat, chain, magpie, fpfr and balanced do")]
    NoTrees(Method),
    /// The method needs to know the bandwidths between clusters.
    #[error("{0} plans with the bandwidths between clusters, and none are given")]
    NoBandwidths(Method),
    /// They are not about these hosts.
    #[error(transparent)]
    Bandwidths(#[from] BandwidthsError),
    /// No links lead to a cluster.
    #[error("by the given bandwidths, nothing gets from the root to cluster {0}")]
    Unreachable(u32),
    /// More than [`MAX_PLANNED_CLUSTERS`].
    #[error("{0} clusters; fpfr and balanced plan for up to {MAX_PLANNED_CLUSTERS}")]
    Clusters(usize),
    /// No rates were found.
    #[error("no rates for the trees: {0}")]
    Rates(String),
    /// A tree is no spanning tree of these hosts from the root.
    #[error("tree {tree} of the plan: {problem}")]
    Tree {
        /// Which.
        tree: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Plan {
    /// What `method` does with these hosts; `bandwidths` are looked at by `fpfr` and `balanced` only.
    pub fn of(method: Method, members: &Members, bandwidths: Option<&Bandwidths>) -> Result<Self, PlanError> {
        let known = || {
            let bandwidths = bandwidths.ok_or(PlanError::NoBandwidths(method))?;
            let clusters = members.clusters().len();
            if clusters > MAX_PLANNED_CLUSTERS {
                return Err(PlanError::Clusters(clusters));
            }
            bandwidths.check(members)?;
            Ok(bandwidths)
        };
        let trees = match method {
            Method::Flat => vec![trees::flat(members)],
            Method::Chain => vec![trees::chain(members)],
            Method::Magpie => vec![trees::magpie(members)],
            Method::Fpfr => fpfr::trees(members, known()?)?,
            Method::Balanced => balanced::trees(members, known()?)?,
            Method::Adaptive | Method::Mob | Method::Bittorrent => return Err(PlanError::NoTrees(method)),
        };
        let plan = Self { trees };
        debug_assert_eq!(plan.check(members), Ok(()));
        Ok(plan)
    }

    /// Whether every tree leads from the root to every host.
    pub fn check(&self, members: &Members) -> Result<(), PlanError> {
        if self.trees.is_empty() || self.trees.len() > MAX_TREES {
            return Err(PlanError::Tree { tree: self.trees.len(), problem: "a plan has 1 to 256 trees" });
        }
        for (tree, of) in self.trees.iter().enumerate() {
            of.check(members).map_err(|problem| PlanError::Tree { tree, problem })?;
        }
        Ok(())
    }

    /// What all trees carry together, bytes/s; `None` if one is not limited.
    pub fn rate_bytes_s(&self) -> Option<f64> {
        self.trees.iter().map(|tree| tree.rate_bytes_s).sum()
    }

    /// Which tree each piece takes: smooth weighted round-robin, so that every part of the data is spread by the rates.
    pub fn tree_of(&self, pieces: u32) -> Vec<u16> {
        let weights: Vec<f64> = self.trees.iter().map(|tree| tree.rate_bytes_s.unwrap_or(1.0)).collect();
        let total: f64 = weights.iter().sum();
        let mut credit = vec![0.0; weights.len()];
        let next = |_| {
            let mut best = 0;
            for (tree, weight) in weights.iter().enumerate() {
                credit[tree] += weight;
                if credit[tree] > credit[best] {
                    best = tree;
                }
            }
            credit[best] -= total;
            best as u16
        };
        (0..pieces).map(next).collect()
    }
}

impl Tree {
    fn check(&self, members: &Members) -> Result<(), &'static str> {
        let count = members.count();
        if self.parent.len() != count {
            return Err("not as long as the list of hosts");
        }
        if self.rate_bytes_s.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("a rate is no positive number");
        }
        // Hosts that are known to hang on the root. Every way up ends there within as many steps as there are hosts.
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
                    Some(_) => return Err("a sender is none of the hosts"),
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

    /// By host, whom it sends to: other clusters first, because that takes longest, then whoever has most hosts below.
    pub fn children(&self, members: &Members) -> Vec<Vec<MemberId>> {
        let count = self.parent.len();
        let mut children = vec![Vec::new(); count];
        for (host, parent) in self.parent.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent as usize].push(host as MemberId);
            }
        }
        // Top down, so that in the reverse order all below a host are counted before it.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(parent: &[Option<u32>]) -> Plan {
        Plan { trees: vec![Tree { parent: parent.to_vec(), rate_bytes_s: None }] }
    }

    #[test]
    fn only_spanning_trees_from_the_root_pass() {
        let members = Members::new(vec![0, 0, 1, 1], 1).unwrap();
        let problem = |plan: Plan| match plan.check(&members) {
            Err(PlanError::Tree { problem, .. }) => problem,
            other => panic!("{other:?}"),
        };
        assert_eq!(tree(&[Some(1), None, Some(0), Some(2)]).check(&members), Ok(()));
        assert_eq!(problem(tree(&[Some(1), None, Some(0)])), "not as long as the list of hosts");
        assert_eq!(problem(tree(&[Some(1), Some(0), Some(0), Some(2)])), "the root receives");
        assert_eq!(problem(tree(&[Some(1), None, None, Some(2)])), "a host does not receive");
        assert_eq!(problem(tree(&[Some(1), None, Some(3), Some(2)])), "hosts in a circle");
        assert_eq!(problem(tree(&[Some(1), None, Some(2), Some(2)])), "hosts in a circle");
        assert_eq!(problem(tree(&[Some(1), None, Some(4), Some(2)])), "a sender is none of the hosts");
        assert_eq!(problem(Plan { trees: vec![] }), "a plan has 1 to 256 trees");
        let mut standing = tree(&[Some(1), None, Some(0), Some(2)]);
        standing.trees[0].rate_bytes_s = Some(0.0);
        assert_eq!(problem(standing), "a rate is no positive number");
    }

    #[test]
    fn pieces_are_spread_by_the_rates() {
        let mut plan = tree(&[None]);
        plan.trees = [5.0, 1.0, 1.0].map(|rate| Tree { parent: vec![None], rate_bytes_s: Some(rate) }).to_vec();
        // The smooth order of weights 5, 1, 1.
        assert_eq!(plan.tree_of(7), [0, 0, 1, 0, 2, 0, 0]);
        let many = plan.tree_of(7000);
        assert_eq!(many.iter().filter(|tree| **tree == 0).count(), 5000);
    }

    #[test]
    fn children_of_other_clusters_come_first_then_the_largest() {
        let members = Members::new(vec![0, 0, 1, 0, 1], 0).unwrap();
        let tree = Tree { parent: vec![None, Some(0), Some(0), Some(0), Some(3)], rate_bytes_s: None };
        assert_eq!(tree.children(&members), [vec![2, 3, 1], vec![], vec![], vec![4], vec![]]);
    }

    #[test]
    fn methods_without_trees_and_without_bandwidths_are_refused() {
        let members = Members::new(vec![0, 1], 0).unwrap();
        let of = |method, bandwidths: Option<&Bandwidths>| Plan::of(method, &members, bandwidths);
        assert_eq!(of(Method::Mob, None), Err(PlanError::NoTrees(Method::Mob)));
        assert_eq!(of(Method::Fpfr, None), Err(PlanError::NoBandwidths(Method::Fpfr)));
        let links = |rate| Bandwidths::of_links(vec![vec![0.0, rate], vec![1.0, 0.0]]);
        for method in [Method::Fpfr, Method::Balanced] {
            assert_eq!(of(method, Some(&links(0.0))), Err(PlanError::Unreachable(1)));
            assert_eq!(of(method, Some(&links(f64::NAN))), Err(PlanError::Bandwidths(BandwidthsError::NoRate)));
            let few = Bandwidths { access_bytes_s: Some(vec![1.0]), ..links(1.0) };
            assert!(matches!(of(method, Some(&few)), Err(PlanError::Bandwidths(BandwidthsError::Access { .. }))));
            assert!(matches!(
                of(method, Some(&Bandwidths::of_links(vec![]))),
                Err(PlanError::Bandwidths(BandwidthsError::Links { .. }))
            ));
        }
    }
}
