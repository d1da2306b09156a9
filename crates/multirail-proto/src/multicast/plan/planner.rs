//! A plan: trees over all hosts, and the part of the data that each tree carries.

use super::balanced;
use super::fpfr;
use super::shapes;
use super::tree::{MAX_PLANNED_CLUSTERS, MAX_TREES, PlanError, Tree};
use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::Members;
use crate::multicast::method_name::Method;
use serde::{Deserialize, Serialize};

/// Trees, each for a part of the data in proportion to its rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// At least one tree. Hosts synchronize at the end over the first.
    pub trees: Vec<Tree>,
}

impl Plan {
    /// The plan of `method` for these hosts. Only `fpfr` and `balanced` use `bandwidths`.
    ///
    /// # Errors
    ///
    /// [`PlanError`], if the bandwidths are missing or do not fit the hosts.
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
            Method::Flat => vec![shapes::flat(members)],
            Method::Chain => vec![shapes::chain(members)],
            Method::Magpie => vec![shapes::magpie(members)],
            Method::Fpfr => fpfr::trees(members, known()?)?,
            Method::Balanced => balanced::trees(members, known()?)?,
            Method::Adaptive | Method::Mob | Method::Bittorrent => return Err(PlanError::NoTrees(method)),
        };
        let plan = Self { trees };
        debug_assert_eq!(plan.check(members), Ok(()));
        Ok(plan)
    }

    /// Checks that every tree leads from the root to every host.
    ///
    /// # Errors
    ///
    /// [`PlanError`], if no plan fits these hosts.
    pub fn check(&self, members: &Members) -> Result<(), PlanError> {
        if self.trees.is_empty() || self.trees.len() > MAX_TREES {
            return Err(PlanError::Tree { tree: self.trees.len(), problem: "a plan has 1 to 256 trees" });
        }
        for (tree, of) in self.trees.iter().enumerate() {
            of.check(members).map_err(|problem| PlanError::Tree { tree, problem })?;
        }
        Ok(())
    }

    /// The rate of all trees together in bytes/s; `None` if one is unlimited.
    pub fn rate_bytes_s(&self) -> Option<f64> {
        self.trees.iter().map(|tree| tree.rate_bytes_s).sum()
    }

    /// The tree of each piece, by smooth weighted round-robin: every part of the data is spread by
    /// the rates.
    pub(crate) fn tree_of(&self, pieces: u32) -> Vec<u16> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multicast::bandwidths::BandwidthsError;

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
        assert_eq!(problem(tree(&[Some(1), None, Some(4), Some(2)])), "a sender is not one of the hosts");
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
