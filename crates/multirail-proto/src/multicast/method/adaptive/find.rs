//! The peers that a host looks for.

use super::fetchers::is_fetcher;
use crate::multicast::members::{MemberId, Members};
use crate::multicast::method::mob::choose;
use crate::rng::Rng;

/// A cluster of at most this size is a full mesh: every host learns of every piece at once.
const FULL_MESH: usize = 8;
/// In larger clusters, a host looks for this many local peers, and is found by as many. Besides, hosts that
/// fetch from other clusters look for each other, since they move shares.
const LOCAL_PEERS: usize = 4;
/// With more other clusters than this, this many are chosen at random.
const GLOBAL_PEERS: usize = 16;

/// The peers that `me` dials before there is data, so that sessions exist when it arrives. Of two
/// hosts that look for each other, the first dials. Hosts next to the root dial as if they looked
/// for the hosts that look for them.
pub(crate) fn early_calls(members: &Members, me: MemberId, seed: u64) -> Vec<MemberId> {
    let (own, root) = (members.cluster(me), members.cluster(members.root()));
    let mut found = wanted(members, me, &mut rng(me, seed));
    if own == root {
        let others = (0..members.clusters().len() as u32).filter(|c| *c != own);
        found.extend(others.map(|c| members.counterpart(me, c)).filter(|m| surely_wants(members, *m, me)));
    }
    let calls =
        |m: MemberId| surely_wants(members, m, me) || members.cluster(m) == root && members.counterpart(m, own) == me;
    found.retain(|m| *m > me || !calls(*m));
    found
}

/// Whether `from` looks for `to`, whatever the random choice.
pub(super) fn surely_wants(members: &Members, from: MemberId, to: MemberId) -> bool {
    if members.are_local(from, to) {
        return is_mesh(members, from) || is_fetcher(members, from) && is_fetcher(members, to);
    }
    let (root, count) = (members.cluster(members.root()), members.clusters().len());
    let cluster = members.cluster(to);
    let is_chosen = cluster == root || count <= GLOBAL_PEERS + 1;
    members.cluster(from) != root && is_fetcher(members, from) && is_chosen && members.counterpart(from, cluster) == to
}

/// The peers that `me` looks for, drawn from a new [`rng`].
pub(super) fn wanted(members: &Members, me: MemberId, rng: &mut Rng) -> Vec<MemberId> {
    let mob = members.mob(me);
    let mut others: Vec<_> = mob.iter().copied().filter(|m| *m != me).collect();
    if !is_mesh(members, me) {
        let next = next_in_rank(members, me);
        let (mut sure, mut rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|m| *m == next || surely_wants(members, me, *m));
        sure.extend(choose(&mut rest, LOCAL_PEERS - 1, rng));
        others = sure;
    }
    if is_fetcher(members, me) {
        others.extend(elsewhere(members, me, rng));
    }
    others
}

/// The peers in other clusters of a host that fetches from there: one in each, and with many clusters one in
/// each of some. None next to the root.
pub(super) fn elsewhere(members: &Members, me: MemberId, rng: &mut Rng) -> Vec<MemberId> {
    let (own, root) = (members.cluster(me), members.cluster(members.root()));
    if own == root {
        return Vec::new();
    }
    let clusters = 0..members.clusters().len() as u32;
    let mut others: Vec<u32> = clusters.filter(|c| *c != own && *c != root).collect();
    let mut clusters = choose(&mut others, GLOBAL_PEERS - 1, rng);
    clusters.push(root);
    clusters.into_iter().map(|c| members.counterpart(me, c)).collect()
}

/// Whether every host in the cluster of `me` looks for every other host there.
pub(super) fn is_mesh(members: &Members, me: MemberId) -> bool {
    members.mob(me).len() <= FULL_MESH
}

/// The next host of a cluster by rank.
pub(super) fn next_in_rank(members: &Members, member: MemberId) -> MemberId {
    let mob = members.mob(member);
    mob[(members.rank(member) as usize + 1) % mob.len()]
}

/// The generator of a host.
pub(super) fn rng(me: MemberId, seed: u64) -> Rng {
    Rng::new(seed ^ u64::from(me).wrapping_mul(0x9e37_79b9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_session_is_called_for_and_once(sizes in prop::collection::vec(1u32..9, 1..9), root in any::<prop::sample::Index>(), seed: u64) {
            let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
            let root = root.index(cluster_of.len()) as u32;
            let members = Members::new(cluster_of, root).unwrap();
            let all = 0..members.count() as MemberId;
            let calls: Vec<_> = all.clone().map(|m| early_calls(&members, m, seed)).collect();
            for me in all {
                for peer in wanted(&members, me, &mut rng(me, seed)) {
                    let (one, other) = (calls[me as usize].contains(&peer), calls[peer as usize].contains(&me));
                    prop_assert!(one != other, "{me} looks for {peer}: {one}, {other}");
                }
            }
        }
    }
}
