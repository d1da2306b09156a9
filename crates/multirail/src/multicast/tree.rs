//! The way of a manifest: from the root to one host of every other cluster, and along a binomial tree inside each (as MagPIe
//! sends small data: MOB paper, section 4.1). It enters every cluster once.
//!
//! Hosts have *places* in their cluster: their rank, but in the root's cluster, where the root has the first place. A host that
//! gets the manifest is told whose children it shall pass it on to: its own, and those of hosts that could not be reached.

use multirail_proto::multicast::{MemberId, Members};

/// A host to pass the manifest on to, and the places whose children it shall see to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Errand {
    pub to: MemberId,
    pub duties: Vec<u32>,
}

/// The host at `place` in `cluster`.
fn at_place(members: &Members, cluster: u32, place: u32) -> Option<MemberId> {
    let hosts = &members.clusters()[cluster as usize];
    let root = members.root();
    if members.cluster(root) != cluster {
        return hosts.get(place as usize).copied();
    }
    match place {
        0 => Some(root),
        place if place <= members.rank(root) => hosts.get(place as usize - 1).copied(),
        place => hosts.get(place as usize).copied(),
    }
}

/// The places below `place` among `count` of them: those at the distances of powers of two beyond it, the longest branch first.
fn below(place: u32, count: u32) -> impl Iterator<Item = u32> {
    let first = 32 - place.leading_zeros();
    (first..31).map(move |bit| place + (1 << bit)).take_while(move |p| *p < count)
}

/// What `me` does, if nobody above it is missing.
pub(super) fn below_host(members: &Members, me: MemberId) -> Vec<Errand> {
    if me == members.root() {
        return from_root(members);
    }
    let place = (0..members.mob(me).len() as u32).find(|p| at_place(members, members.cluster(me), *p) == Some(me));
    passed_on(members, me, place.as_slice())
}

/// What the root does first.
pub(super) fn from_root(members: &Members) -> Vec<Errand> {
    let own = members.cluster(members.root());
    let others = (0..members.clusters().len() as u32).filter(|c| *c != own);
    let heads = others.filter_map(|c| Some(Errand { to: at_place(members, c, 0)?, duties: vec![0] }));
    heads.chain(passed_on(members, members.root(), &[0])).collect()
}

/// What a host does that was given `duties`.
pub(super) fn passed_on(members: &Members, me: MemberId, duties: &[u32]) -> Vec<Errand> {
    let cluster = members.cluster(me);
    let count = members.mob(me).len() as u32;
    // Of several duties, one can be below another: those hosts are not to be reached, but to be stood in for.
    let places = duties.iter().flat_map(|d| below(*d, count)).filter(|p| !duties.contains(p));
    let errand = |place| Some(Errand { to: at_place(members, cluster, place)?, duties: vec![place] });
    places.filter_map(errand).filter(|e| e.to != me).collect()
}

/// What is to be done instead, when `errand` of `me` cannot: in the same cluster its branch is taken over; of another cluster
/// the next host is made the first.
pub(super) fn instead(members: &Members, me: MemberId, errand: &Errand) -> Vec<Errand> {
    if members.are_local(me, errand.to) {
        return passed_on(members, me, &errand.duties);
    }
    let tried = errand.duties.iter().copied().max().unwrap_or(0);
    let next = at_place(members, members.cluster(errand.to), tried + 1);
    let duties = || errand.duties.iter().copied().chain([tried + 1]).collect();
    next.map(|to| Errand { to, duties: duties() }).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn everyone_is_reached_once_and_clusters_are_entered_once(
            sizes in prop::collection::vec(1u32..20, 1..5), root in any::<prop::sample::Index>(), dead in any::<u64>()
        ) {
            let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
            let count = cluster_of.len();
            let root = root.index(count) as u32;
            let members = Members::new(cluster_of, root).unwrap();
            let is_dead = |m: MemberId| m != root && m < 64 && dead & (1 << m) != 0;
            let mut reached = BTreeSet::from([root]);
            let mut entered = vec![0; sizes.len()];
            let mut rest: Vec<(MemberId, Errand)> = from_root(&members).into_iter().map(|e| (root, e)).collect();
            while let Some((from, errand)) = rest.pop() {
                if is_dead(errand.to) {
                    rest.extend(instead(&members, from, &errand).into_iter().map(|e| (from, e)));
                    continue;
                }
                prop_assert!(reached.insert(errand.to), "{} twice", errand.to);
                if !members.are_local(from, errand.to) {
                    entered[members.cluster(errand.to) as usize] += 1;
                }
                rest.extend(passed_on(&members, errand.to, &errand.duties).into_iter().map(|e| (errand.to, e)));
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
