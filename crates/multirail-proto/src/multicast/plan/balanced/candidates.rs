//! The trees over clusters that Balanced Multicasting gives rates to. Up to [`MAX_ENUMERATED`]
//! clusters, these are all trees: k clusters have k^(k-2). With more clusters, they are the trees
//! that a fractional packing finds (Garg and Koenemann 1998): links have lengths, the shortest tree
//! is taken again and again, and the links it uses become longer. The packing alone is near the
//! optimum; the linear program then chooses the rates again.

use super::shortest::shortest_tree;
use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::Members;
use crate::multicast::plan::shapes::ClusterTree;
use std::collections::BTreeSet;

/// Up to this number of clusters, all trees are candidates: 125 for five clusters.
const MAX_ENUMERATED: usize = 5;
/// With more clusters, the most trees, and the most links of all trees together. The linear program
/// takes long with more.
const MAX_FOUND: usize = 400;
const MAX_FOUND_LINKS: usize = 8000;
/// Rounds of the packing for each wanted tree, since trees repeat.
const ROUNDS: usize = 3;
/// By how much the scarcest link of a tree becomes longer.
const STEP: f64 = 0.15;

/// The candidates. `simple` are the trees of FPFR, at least one, the best first.
pub(super) fn candidates(
    members: &Members,
    bandwidths: &Bandwidths,
    simple: &[(ClusterTree, f64)],
) -> Vec<ClusterTree> {
    let count = members.clusters().len();
    if count <= MAX_ENUMERATED {
        return enumerate(members, bandwidths).into_iter().collect();
    }
    let limit = MAX_FOUND.min(MAX_FOUND_LINKS / count).max(2);
    let mut found: BTreeSet<ClusterTree> = simple.iter().take(limit / 2).map(|(tree, _)| tree.clone()).collect();
    pack(members, bandwidths, &mut found, limit);
    found.into_iter().collect()
}

/// All trees over links with bandwidth.
fn enumerate(members: &Members, bandwidths: &Bandwidths) -> BTreeSet<ClusterTree> {
    let count = members.clusters().len();
    let root = members.cluster(members.root()) as usize;
    let mut trees = BTreeSet::from([vec![None; count]]);
    for to in (0..count).filter(|to| *to != root) {
        let senders: Vec<usize> = (0..count).filter(|from| bandwidths.link(*from, to) > 0.0).collect();
        let hang = |tree: &ClusterTree, from: usize| {
            let mut tree = tree.clone();
            tree[to] = Some(from as u32);
            is_without_circle(&tree, to).then_some(tree)
        };
        trees = trees.iter().flat_map(|tree| senders.iter().filter_map(move |from| hang(tree, *from))).collect();
    }
    trees
}

/// Whether the way up from `start` ends.
fn is_without_circle(tree: &ClusterTree, start: usize) -> bool {
    let mut way = std::iter::successors(tree[start], |at| tree[*at as usize]);
    way.all(|at| at as usize != start)
}

/// Adds to `found` the trees of a packing of links and of the rates of clusters' hosts, up to
/// `limit` trees.
fn pack(members: &Members, bandwidths: &Bandwidths, found: &mut BTreeSet<ClusterTree>, limit: usize) {
    let count = members.clusters().len();
    let root = members.cluster(members.root()) as usize;
    let access: Vec<f64> = (0..count).map(|cluster| bandwidths.cluster_access(members, cluster)).collect();
    let pairs = || (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    let mut links: Vec<Vec<f64>> = vec![vec![f64::INFINITY; count]; count];
    pairs().for_each(|(from, to)| links[from][to] = 1.0 / bandwidths.link(from, to));
    // A host without bandwidth has infinite length, one without limit has none.
    let (mut sends, mut receives) = (inverse(&access), inverse(&access));
    for _ in 0..ROUNDS * limit {
        let length = |from: usize, to: usize| links[from][to] + sends[from] + receives[to];
        let Some(tree) = shortest_tree(count, root, length) else { break };
        let mut children = vec![0.0; count];
        tree.iter().flatten().for_each(|from| children[*from as usize] += 1.0);
        let used = || tree.iter().enumerate().filter_map(|(to, from)| Some(((*from)? as usize, to)));
        let most =
            |(from, to): (usize, usize)| bandwidths.link(from, to).min(access[from] / children[from]).min(access[to]);
        let rate = used().map(most).fold(f64::INFINITY, f64::min);
        for (from, to) in used() {
            links[from][to] *= 1.0 + STEP * rate / bandwidths.link(from, to);
            sends[from] *= 1.0 + STEP * rate / access[from];
            receives[to] *= 1.0 + STEP * rate / access[to];
        }
        found.insert(tree);
        if found.len() >= limit {
            break;
        }
    }
}

fn inverse(capacities: &[f64]) -> Vec<f64> {
    capacities.iter().map(|capacity| 1.0 / capacity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_trees_are_found() {
        // Cayley: k^(k-2) trees over k clusters, here with a root that is not the first.
        for (count, trees) in [(2, 1), (3, 3), (4, 16), (5, 125)] {
            let members = Members::new((0..count).collect(), 1).unwrap();
            let links = Bandwidths::of_links(vec![vec![1.0; count as usize]; count as usize]);
            assert_eq!(candidates(&members, &links, &[]).len(), trees);
        }
    }

    #[test]
    fn trees_take_only_links_that_carry_something() {
        let members = Members::new(vec![0, 1, 2], 0).unwrap();
        let links = Bandwidths::of_links(vec![vec![0.0, 1.0, 0.0], vec![1.0, 0.0, 1.0], vec![1.0, 1.0, 0.0]]);
        assert_eq!(candidates(&members, &links, &[]), [vec![None, Some(0), Some(1)]]);
    }
}
