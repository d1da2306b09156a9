//! Fast Parallel File Replication (MOB paper, section 2.3): trees by depth-first search, each with
//! the rate of its bottleneck.

use super::shapes::{ClusterTree, over_hosts};
use super::tree::{MAX_TREES, PlanError, Tree};
use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::Members;

/// The trees and their rates. As in the paper, the rates of hosts are ignored. Hosts take turns as
/// in `balanced`.
pub(super) fn trees(members: &Members, bandwidths: &Bandwidths) -> Result<Vec<Tree>, PlanError> {
    if members.clusters().len() == 1 {
        return Ok(vec![super::shapes::chain(members)]);
    }
    let found = cluster_trees(members, bandwidths)?;
    let tree = |(turn, (clusters, rate)): (usize, (ClusterTree, f64))| Tree {
        parent: over_hosts(members, &clusters, turn),
        rate_bytes_s: Some(rate),
    };
    Ok(found.into_iter().enumerate().map(tree).collect())
}

/// Searches for a tree over all clusters and reserves its bottleneck on all its links, until no
/// tree is left.
pub(super) fn cluster_trees(members: &Members, bandwidths: &Bandwidths) -> Result<Vec<(ClusterTree, f64)>, PlanError> {
    let clusters = members.clusters().len();
    let mut left: Vec<Vec<f64>> =
        (0..clusters).map(|from| (0..clusters).map(|to| bandwidths.link(from, to)).collect()).collect();
    // A link with less than this left has no bandwidth: the rest is a rounding error.
    let nothing = left.iter().flatten().fold(0.0, |most: f64, rate| most.max(*rate)) * 1e-9;
    let mut found = Vec::new();
    while found.len() < MAX_TREES {
        let tree = match depth_first(&left, members.cluster(members.root()), nothing) {
            Ok(tree) => tree,
            Err(cluster) if found.is_empty() => return Err(PlanError::Unreachable(cluster)),
            Err(_) => break,
        };
        let links = |tree: &ClusterTree| -> Vec<(usize, usize)> {
            tree.iter().enumerate().filter_map(|(to, from)| Some(((*from)? as usize, to))).collect()
        };
        let rate = links(&tree).iter().fold(f64::INFINITY, |least, (from, to)| least.min(left[*from][*to]));
        for (from, to) in links(&tree) {
            left[from][to] -= rate;
        }
        found.push((tree, rate));
    }
    Ok(found)
}

/// A spanning tree over links with more than `nothing` left, or a cluster that is not reached. From
/// each cluster, the widest link comes first; the paper does not state an order.
fn depth_first(left: &[Vec<f64>], root: u32, nothing: f64) -> Result<ClusterTree, u32> {
    let mut tree: ClusterTree = vec![None; left.len()];
    let mut seen = vec![false; left.len()];
    seen[root as usize] = true;
    let mut way = vec![root as usize];
    while let Some(at) = way.last().copied() {
        let open = (0..left.len()).filter(|to| !seen[*to] && left[at][*to] > nothing);
        // The first of the widest links: `max_by` would take the last.
        match open.rev().max_by(|one, other| left[at][*one].total_cmp(&left[at][*other])) {
            Some(to) => {
                seen[to] = true;
                tree[to] = Some(at as u32);
                way.push(to);
            }
            None => {
                way.pop();
            }
        }
    }
    match seen.iter().position(|seen| !seen) {
        Some(cluster) => Err(cluster as u32),
        None => Ok(tree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bottlenecks_are_reserved_until_no_tree_is_left() {
        let members = Members::new(vec![0, 1, 2], 0).unwrap();
        let links = vec![vec![0.0, 5.0, 5.0], vec![5.0, 0.0, 4.0], vec![5.0, 4.0, 0.0]];
        let found = cluster_trees(&members, &Bandwidths::of_links(links)).unwrap();
        // 0>1>2 with 4; then 0>2>1 with 4, because more is left from 0 to 2; then both from 0 with
        // what is left.
        let expected: [(ClusterTree, f64); 3] = [
            (vec![None, Some(0), Some(1)], 4.0),
            (vec![None, Some(2), Some(0)], 4.0),
            (vec![None, Some(0), Some(0)], 1.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn deep_trees_turn_back_where_a_way_ends() {
        let members = Members::new(vec![0, 1, 2, 3], 0).unwrap();
        // 1 is a dead end: 2 is found from 0, and 3 from 2.
        let links = vec![vec![0.0, 9.0, 2.0, 0.0], vec![0.0; 4], vec![0.0, 0.0, 0.0, 3.0], vec![0.0; 4]];
        let found = cluster_trees(&members, &Bandwidths::of_links(links)).unwrap();
        assert_eq!(found, [(vec![None, Some(0), Some(0), Some(2)], 2.0)]);
    }
}
