//! Who forwards a manifest to whom.
//!
//! A manifest goes from the root to one host of every other cluster, and along a binomial tree
//! inside each cluster, as MagPIe sends small data (MOB paper, section 4.1). It enters every
//! cluster once.
//!
//! A host has a *position* in its cluster: its rank, except that the root takes position 0 of its
//! own cluster. A host that receives a manifest is told the positions whose children it forwards
//! to: its own, and those of hosts that could not be reached.

use crate::multicast::members::{MemberId, Members};

/// The task to forward a manifest to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForwardTask {
    /// The receiver.
    pub to: MemberId,
    /// The positions whose children the receiver forwards to.
    pub positions: Vec<u32>,
}

/// The host at `position` in `cluster`.
fn host_at(members: &Members, cluster: u32, position: u32) -> Option<MemberId> {
    let hosts = &members.clusters()[cluster as usize];
    let root = members.root();
    if members.cluster(root) != cluster {
        return hosts.get(position as usize).copied();
    }
    match position {
        0 => Some(root),
        position if position <= members.rank(root) => hosts.get(position as usize - 1).copied(),
        position => hosts.get(position as usize).copied(),
    }
}

/// The children of `position` in a binomial tree of `count` positions: those at distances of powers
/// of two beyond it, the root of the deepest branch first.
fn children(position: u32, count: u32) -> impl Iterator<Item = u32> {
    let first = 32 - position.leading_zeros();
    (first..31).map(move |bit| position + (1 << bit)).take_while(move |p| *p < count)
}

/// The tasks of `me` if every host above it is reachable.
pub(super) fn expected(members: &Members, me: MemberId) -> Vec<ForwardTask> {
    if me == members.root() {
        return from_root(members);
    }
    let cluster = members.cluster(me);
    let position = (0..members.mob(me).len() as u32).find(|p| host_at(members, cluster, *p) == Some(me));
    onward(members, me, position.as_slice())
}

/// The tasks of the root.
pub(super) fn from_root(members: &Members) -> Vec<ForwardTask> {
    let own = members.cluster(members.root());
    let others = (0..members.clusters().len() as u32).filter(|c| *c != own);
    let heads = others.filter_map(|c| Some(ForwardTask { to: host_at(members, c, 0)?, positions: vec![0] }));
    heads.chain(onward(members, members.root(), &[0])).collect()
}

/// The tasks of a host that received a manifest with `positions`.
pub(super) fn onward(members: &Members, me: MemberId, positions: &[u32]) -> Vec<ForwardTask> {
    let cluster = members.cluster(me);
    let count = members.mob(me).len() as u32;
    // One of several positions can be below another. Its host is unreachable: only its children
    // count.
    let below = positions.iter().flat_map(|p| children(*p, count)).filter(|p| !positions.contains(p));
    let task = |position| Some(ForwardTask { to: host_at(members, cluster, position)?, positions: vec![position] });
    below.filter_map(task).filter(|task| task.to != me).collect()
}

/// The tasks that replace `task` of `me` when its receiver cannot be reached. In the own cluster,
/// `me` takes over the branch; in another cluster, the next host becomes the first.
pub(super) fn instead(members: &Members, me: MemberId, task: &ForwardTask) -> Vec<ForwardTask> {
    if members.are_local(me, task.to) {
        return onward(members, me, &task.positions);
    }
    let tried = task.positions.iter().copied().max().unwrap_or(0);
    let next = host_at(members, members.cluster(task.to), tried + 1);
    let positions = || task.positions.iter().copied().chain([tried + 1]).collect();
    next.map(|to| ForwardTask { to, positions: positions() }).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn hosts_are_reached_once_and_clusters_are_entered_once(
            sizes in prop::collection::vec(1u32..20, 1..5), root in any::<prop::sample::Index>(), dead in any::<u64>()
        ) {
            let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
            let count = cluster_of.len();
            let root = root.index(count) as u32;
            let members = Members::new(cluster_of, root).unwrap();
            let is_dead = |m: MemberId| m != root && m < 64 && dead & (1 << m) != 0;
            let mut reached = BTreeSet::from([root]);
            let mut entered = vec![0; sizes.len()];
            let mut rest: Vec<(MemberId, ForwardTask)> = from_root(&members).into_iter().map(|t| (root, t)).collect();
            while let Some((from, task)) = rest.pop() {
                if is_dead(task.to) {
                    rest.extend(instead(&members, from, &task).into_iter().map(|t| (from, t)));
                    continue;
                }
                prop_assert!(reached.insert(task.to), "{} twice", task.to);
                if !members.are_local(from, task.to) {
                    entered[members.cluster(task.to) as usize] += 1;
                }
                rest.extend(onward(&members, task.to, &task.positions).into_iter().map(|t| (task.to, t)));
            }
            let alive: BTreeSet<u32> = (0..count as u32).filter(|m| !is_dead(*m)).collect();
            prop_assert_eq!(reached, alive);
            for (cluster, hosts) in members.clusters().iter().enumerate() {
                let foreign = members.cluster(root) != cluster as u32 && hosts.iter().any(|h| !is_dead(*h));
                prop_assert_eq!(entered[cluster], u32::from(foreign));
            }
        }
    }
}
