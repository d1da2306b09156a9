//! The peers that a host looks for.

use super::fetchers::{is_fetcher, most};
use super::peer::{CHORD_WINDOW, MESH_WINDOW, MIN_WINDOW};
use super::relays::{counterpart, is_relay};
use crate::multicast::members::{MemberId, Members};
use crate::multicast::method::mob::choose;
use crate::rng::Rng;

/// A cluster of at most this size is a full mesh: every host learns of every piece at once. In larger ones, peers are
/// chosen by rank ([`is_chord`]).
const FULL_MESH: usize = 8;
/// With more other clusters than this, this many are chosen at random.
const GLOBAL_PEERS: usize = 16;

/// The peers that `me` dials before there is data, so that sessions exist when it arrives. Of two
/// hosts that look for each other, the first dials. Hosts next to the root dial as if they looked
/// for the hosts that look for them.
pub(crate) fn early_calls(members: &Members, me: MemberId, seed: u64) -> Vec<MemberId> {
    let (own, root) = (members.cluster(me), members.cluster(members.root()));
    let mut found = wanted(members, me, &mut rng(me, seed));
    if own == root {
        let fetchers = members.clusters().iter().flat_map(|mob| mob.iter().take(most(members, mob.len())));
        found.extend(fetchers.filter(|m| !members.are_local(**m, me) && surely_wants(members, **m, me)));
    }
    let answers = |m: MemberId| members.cluster(m) == root && own != root && surely_wants(members, me, m);
    let calls = |m: MemberId| surely_wants(members, m, me) || answers(m);
    found.retain(|m| *m > me || !calls(*m));
    found
}

/// Whether `from` looks for `to`, whatever the random choice.
pub(super) fn surely_wants(members: &Members, from: MemberId, to: MemberId) -> bool {
    if members.are_local(from, to) {
        return is_mesh(members, from) || is_chord(members, from, to) || move_data(members, from, to);
    }
    let (root, count) = (members.cluster(members.root()), members.clusters().len());
    let cluster = members.cluster(to);
    let is_chosen = cluster == root || count <= GLOBAL_PEERS + 1;
    members.cluster(from) != root && is_fetcher(members, from) && is_chosen && counterpart(members, from, cluster) == to
}

/// The peers that `me` looks for, drawn from a new [`rng`].
pub(super) fn wanted(members: &Members, me: MemberId, rng: &mut Rng) -> Vec<MemberId> {
    let neighbours = members.mob(me).iter().copied().filter(|m| *m != me);
    let mut others: Vec<_> = neighbours.filter(|m| surely_wants(members, me, *m)).collect();
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
    clusters.into_iter().map(|c| counterpart(members, me, c)).collect()
}

/// The requests under way at a new peer.
pub(super) fn first_window(members: &Members, me: MemberId, peer: MemberId) -> usize {
    match members.are_local(me, peer) {
        true if is_mesh(members, me) => MESH_WINDOW,
        true => CHORD_WINDOW,
        false => MIN_WINDOW,
    }
}

/// Whether every host in the cluster of `me` looks for every other host there.
pub(super) fn is_mesh(members: &Members, me: MemberId) -> bool {
    members.mob(me).len() <= FULL_MESH
}

/// Whether the ranks of two hosts of a cluster, seen as a ring, are a power of two apart. Every host has twice the
/// logarithm of the cluster's size of such neighbours, and all have as many, so that no port has more to send than
/// the others. Any two hosts are a few hops apart.
fn is_chord(members: &Members, one: MemberId, other: MemberId) -> bool {
    let count = members.mob(one).len() as u32;
    let apart = members.rank(one).abs_diff(members.rank(other));
    apart.min(count - apart).is_power_of_two()
}

/// Whether two hosts of a cluster need each other: the root and a relay for pieces, and hosts that fetch from other
/// clusters because they move shares.
fn move_data(members: &Members, one: MemberId, other: MemberId) -> bool {
    let root = members.root();
    if members.are_local(one, root) {
        return one == root && is_relay(members, other) || other == root && is_relay(members, one);
    }
    is_fetcher(members, one) && is_fetcher(members, other)
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
