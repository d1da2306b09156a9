//! Trees of a fixed shape, and trees over hosts that follow a tree over clusters.

use super::tree::Tree;
use crate::multicast::members::{MemberId, Members};

/// A tree over clusters: for each cluster, the one it receives from; `None` for the cluster of the
/// root.
pub(super) type ClusterTree = Vec<Option<u32>>;

/// The root sends to every host.
pub(super) fn flat(members: &Members) -> Tree {
    let parent = |host| (host != members.root()).then_some(members.root());
    unlimited((0..members.count() as MemberId).map(parent).collect())
}

/// A chain: the root, the rest of its cluster, then cluster after cluster.
pub(super) fn chain(members: &Members) -> Tree {
    let own = members.cluster(members.root());
    let others = (0..members.clusters().len() as u32).filter(|cluster| *cluster != own);
    let clusters = std::iter::once(own).chain(others);
    let hosts = clusters.flat_map(|cluster| members.clusters()[cluster as usize].iter().copied());
    let order = hosts.filter(|host| *host != members.root());
    let mut parent = vec![None; members.count()];
    hang(&mut parent, members.root(), order);
    unlimited(parent)
}

/// The root sends to the first host of every other cluster; each cluster has a binomial tree (MOB
/// paper, section 4.1, MagPIe's broadcast). The root is the first host of its own cluster.
pub(super) fn magpie(members: &Members) -> Tree {
    let mut parent = vec![None; members.count()];
    for cluster in members.clusters() {
        let home = members.are_local(cluster[0], members.root());
        let first = if home { members.rank(members.root()) as usize } else { 0 };
        let host = |place: usize| cluster[(first + place) % cluster.len()];
        if !home {
            parent[cluster[0] as usize] = Some(members.root());
        }
        for place in 1..cluster.len() {
            // The parent is the position without its lowest bit: in this binomial tree, hosts that
            // receive first send most.
            parent[host(place) as usize] = Some(host(place & (place - 1)));
        }
    }
    unlimited(parent)
}

/// Hosts for a tree over clusters: in each cluster, one host talks to other clusters, and a chain
/// leads through the rest (MOB paper, section 4.2). `turn` chooses that host, so that the trees of
/// a plan spread their load over the ports of all hosts. Turn 0 is the root itself in its own
/// cluster.
pub(super) fn over_hosts(members: &Members, clusters: &ClusterTree, turn: usize) -> Vec<Option<MemberId>> {
    let mut parent = vec![None; members.count()];
    for (cluster, hosts) in members.clusters().iter().enumerate() {
        let first = gateway_rank(members, cluster, turn);
        let ring = (0..hosts.len()).map(|place| hosts[(first + place) % hosts.len()]);
        match clusters[cluster] {
            None => hang(&mut parent, members.root(), ring.filter(|host| *host != members.root())),
            Some(from) => hang(&mut parent, gateway(members, from as usize, turn), ring),
        }
    }
    parent
}

/// The host of `cluster` that talks to other clusters in a tree of this `turn`.
pub(super) fn gateway(members: &Members, cluster: usize, turn: usize) -> MemberId {
    members.clusters()[cluster][gateway_rank(members, cluster, turn)]
}

fn gateway_rank(members: &Members, cluster: usize, turn: usize) -> usize {
    let home = members.cluster(members.root()) as usize == cluster;
    let first = if home { members.rank(members.root()) as usize } else { 0 };
    (first + turn) % members.clusters()[cluster].len()
}

/// Puts each of `hosts` below the one before, the first below `top`.
fn hang(parent: &mut [Option<MemberId>], top: MemberId, hosts: impl Iterator<Item = MemberId>) {
    let mut above = top;
    for host in hosts {
        parent[host as usize] = Some(above);
        above = host;
    }
}

fn unlimited(parent: Vec<Option<MemberId>>) -> Tree {
    Tree { parent, rate_bytes_s: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multicast::plan::Plan;
    use proptest::prelude::*;

    #[test]
    fn shapes_are_those_of_their_names() {
        let members = Members::new(vec![0, 1, 1, 1, 1, 0], 5).unwrap();
        let parent = |one: Tree| one.parent.into_iter().map(|p| p.map_or(-1, i64::from)).collect::<Vec<_>>();
        assert_eq!(parent(flat(&members)), [5, 5, 5, 5, 5, -1]);
        assert_eq!(parent(chain(&members)), [5, 0, 1, 2, 3, -1]);
        assert_eq!(parent(magpie(&members)), [5, 5, 1, 1, 3, -1]);
    }

    #[test]
    fn the_hosts_of_a_cluster_take_turns() {
        let members = Members::new(vec![0, 0, 0, 1, 1], 1).unwrap();
        let parents = |turn| over_hosts(&members, &vec![None, Some(0)], turn);
        assert_eq!(parents(0), [Some(2), None, Some(1), Some(1), Some(3)]);
        assert_eq!(parents(1), [Some(2), None, Some(1), Some(4), Some(2)]);
        assert_eq!(parents(2), [Some(1), None, Some(0), Some(0), Some(3)]);
    }

    proptest! {
        #[test]
        fn every_tree_spans(sizes in prop::collection::vec(1u32..9, 1..6), root in any::<prop::sample::Index>(), turn in 0usize..20, up in any::<u64>()) {
            let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
            let root = root.index(cluster_of.len()) as u32;
            let members = Members::new(cluster_of, root).unwrap();
            // Any tree over clusters: each in a row from the root's hangs on one before it.
            let home = members.cluster(root);
            let row: Vec<u32> = std::iter::once(home).chain((0..sizes.len() as u32).filter(|c| *c != home)).collect();
            let mut clusters = vec![None; sizes.len()];
            for place in 1..row.len() {
                clusters[row[place] as usize] = Some(row[(up >> (4 * place)) as usize % place]);
            }
            let spread = Tree { parent: over_hosts(&members, &clusters, turn), rate_bytes_s: None };
            for tree in [flat(&members), chain(&members), magpie(&members), spread] {
                let plan = Plan { trees: vec![tree] };
                prop_assert_eq!(plan.check(&members), Ok(()));
            }
        }
    }
}
