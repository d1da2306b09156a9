//! The shortest tree from one node to all others over directed links (Chu and Liu 1965, Edmonds
//! 1967).

use crate::multicast::plan::shapes::ClusterTree;

/// A link with its length, and its number in the list one level above.
#[derive(Debug, Clone, Copy)]
struct Link {
    from: usize,
    to: usize,
    length: f64,
    above: usize,
}

/// The shortest tree over `count` nodes from `root`. Links of infinite or undefined length do not
/// exist. `None` if a node is not reached.
pub(super) fn shortest_tree(count: usize, root: usize, length: impl Fn(usize, usize) -> f64) -> Option<ClusterTree> {
    let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    let links: Vec<Link> = pairs
        .filter(|(from, to)| from != to && length(*from, *to).is_finite())
        .map(|(from, to)| Link { from, to, length: length(from, to), above: 0 })
        .collect();
    let mut tree = vec![None; count];
    for chosen in choose(count, root, &links)? {
        tree[links[chosen].to] = Some(links[chosen].from as u32);
    }
    Some(tree)
}

/// The numbers of the links of the tree. Every node takes its shortest link. Each circle that
/// results becomes one node, and the same is repeated, at most once for each node.
fn choose(count: usize, root: usize, links: &[Link]) -> Option<Vec<usize>> {
    let mut best: Vec<Option<usize>> = vec![None; count];
    for (number, link) in links.iter().enumerate() {
        if link.to != root && best[link.to].is_none_or(|b| link.length < links[b].length) {
            best[link.to] = Some(number);
        }
    }
    if (0..count).any(|node| node != root && best[node].is_none()) {
        return None;
    }
    let (group, groups) = groups(count, root, &best, links);
    if groups == count {
        return Some(best.into_iter().flatten().collect());
    }
    // The cost of a link into a circle beyond that of the link it would replace.
    let contract = |(number, link): (usize, &Link)| {
        let saved = best[link.to].map_or(0.0, |b| links[b].length);
        Link { from: group[link.from], to: group[link.to], length: link.length - saved, above: number }
    };
    let smaller: Vec<Link> = links.iter().enumerate().map(contract).filter(|link| link.from != link.to).collect();
    let mut taken = best;
    for chosen in choose(groups, group[root], &smaller)? {
        let number = smaller[chosen].above;
        taken[links[number].to] = Some(number);
    }
    Some(taken.into_iter().flatten().collect())
}

/// For each node the number of its group, and the number of groups. The nodes of a circle form one
/// group; every other node is its own.
fn groups(count: usize, root: usize, best: &[Option<usize>], links: &[Link]) -> (Vec<usize>, usize) {
    const NONE: usize = usize::MAX;
    let (mut group, mut groups) = (vec![NONE; count], 0);
    let mut visit = vec![NONE; count];
    for start in 0..count {
        let mut at = start;
        while visit[at] == NONE {
            visit[at] = start;
            match best[at] {
                Some(number) if at != root => at = links[number].from,
                _ => break,
            }
        }
        // Back at a node of this walk that is in no group: a circle, unless the walk ended at the
        // root.
        if visit[at] == start && at != root && group[at] == NONE {
            while group[at] == NONE {
                group[at] = groups;
                at = best[at].map_or(root, |number| links[number].from);
            }
            groups += 1;
        }
    }
    for of in group.iter_mut().filter(|of| **of == NONE) {
        *of = groups;
        groups += 1;
    }
    (group, groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least sum over all ways to give every node a sender.
    fn brute_force(length: &[Vec<f64>], root: usize) -> Option<f64> {
        let count = length.len();
        let mut least = None;
        'trees: for code in 0..(count as u64).pow(count as u32) {
            let sender = |node: usize| (code / (count as u64).pow(node as u32)) as usize % count;
            let mut sum = 0.0;
            if sender(root) != 0 {
                continue;
            }
            for node in (0..count).filter(|node| *node != root) {
                sum += length[sender(node)][node];
                let mut at = node;
                for _ in 0..count {
                    at = if at == root { root } else { sender(at) };
                }
                if at != root || sender(node) == node {
                    continue 'trees;
                }
            }
            if sum.is_finite() && least.is_none_or(|l| sum < l) {
                least = Some(sum);
            }
        }
        least
    }

    proptest! {
        #[test]
        fn no_tree_is_shorter(count in 1usize..6, lengths in prop::collection::vec(0u32..12, 36), root in any::<prop::sample::Index>()) {
            let root = root.index(count);
            // 11 stands for no link.
            let one = |from: usize, to: usize| match lengths[from * 6 + to] {
                11 => f64::INFINITY,
                length => f64::from(length),
            };
            let length: Vec<Vec<f64>> = (0..count).map(|from| (0..count).map(|to| one(from, to)).collect()).collect();
            let tree = shortest_tree(count, root, |from, to| length[from][to]);
            let sum = |tree: ClusterTree| -> f64 {
                assert!(tree[root].is_none());
                (0..count).filter(|node| *node != root).map(|node| {
                    let way = std::iter::successors(Some(node), |at| tree[*at].map(|from| from as usize));
                    assert_eq!(way.take(count + 1).last(), Some(root), "{tree:?}");
                    length[tree[node].unwrap() as usize][node]
                }).sum()
            };
            prop_assert_eq!(tree.map(sum), brute_force(&length, root));
        }
    }
}
