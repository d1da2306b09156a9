//! Who gets what from the root in its cluster, and who passes it on to other clusters.
//!
//! The root's port is the only one that every piece has to leave. *Relays* are hosts next to the root. Each gets a
//! part of the pieces from the root, and the others from its neighbours, so that the root sends a piece into its
//! cluster once. Hosts of other clusters fetch from relays.

use crate::multicast::members::{MemberId, Members};
use crate::multicast::pieces::PieceSet;

/// The most relays. With fewer, the ports of relays are the limit where there are many clusters. The root has a
/// session with each.
const MAX_RELAYS: usize = 16;

/// With more hosts than this in the root's cluster, other clusters fetch from relays only.
const ENOUGH: usize = 4;

/// The number of relays.
fn count(members: &Members) -> usize {
    (members.mob(members.root()).len() - 1).min(MAX_RELAYS)
}

/// The place of a host among the relays.
fn place(members: &Members, member: MemberId) -> Option<usize> {
    let root = members.root();
    if member == root || !members.are_local(member, root) {
        return None;
    }
    let place = members.rank(member) as usize - usize::from(members.rank(member) > members.rank(root));
    (place < count(members)).then_some(place)
}

/// Whether a host is a relay.
pub(super) fn is_relay(members: &Members, member: MemberId) -> bool {
    place(members, member).is_some()
}

/// The pieces that a host gets from the root before others: every k-th one with k relays, and none for other hosts.
pub(super) fn part(members: &Members, member: MemberId, pieces: u32) -> PieceSet {
    let mut part = PieceSet::none(pieces);
    if let Some(place) = place(members, member) {
        (place as u32..pieces).step_by(count(members)).for_each(|piece| {
            part.insert(piece);
        });
    }
    part
}

/// The pieces that hosts of other clusters fetch from `member` before others: a relay's part, so that no two relays
/// get one piece from the root. None where the root has few neighbours, since hosts of several clusters would then
/// choose the same pieces.
pub(super) fn first(members: &Members, member: MemberId, pieces: u32) -> PieceSet {
    if has_enough(members) { part(members, member, pieces) } else { PieceSet::none(pieces) }
}

/// Whether the root has so many neighbours that other clusters need not fetch from the root.
fn has_enough(members: &Members) -> bool {
    members.mob(members.root()).len() > ENOUGH
}

/// The host of `cluster` from which `member`, of another cluster, fetches. Where the root has enough neighbours,
/// these are asked and not the root.
pub(super) fn counterpart(members: &Members, member: MemberId, cluster: u32) -> MemberId {
    let root = members.root();
    let mob = members.mob(root);
    if cluster != members.cluster(root) || !has_enough(members) {
        return members.counterpart(member, cluster);
    }
    // The hosts of all clusters are spread over the relays.
    let place = (members.rank(member) as usize + ENOUGH * members.cluster(member) as usize) % count(members);
    mob[place + usize::from(place >= members.rank(root) as usize)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_piece_is_in_one_part_and_no_relay_is_forgotten(
            sizes in prop::collection::vec(1u32..40, 1..6), root in any::<prop::sample::Index>(), pieces in 0u32..500,
        ) {
            let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
            let root = root.index(cluster_of.len()) as u32;
            let members = Members::new(cluster_of, root).unwrap();
            let mut times = vec![0; pieces as usize];
            for member in 0..members.count() as u32 {
                part(&members, member, pieces).iter().for_each(|piece| times[piece as usize] += 1);
            }
            let alone = members.mob(root).len() == 1;
            prop_assert!(times.iter().all(|n| *n == u32::from(!alone)), "{times:?}");
            for member in 0..members.count() as u32 {
                let source = counterpart(&members, member, members.cluster(root));
                prop_assert!(members.are_local(source, root));
                if members.mob(root).len() > ENOUGH {
                    prop_assert!(is_relay(&members, source), "{source} for {member}");
                }
            }
        }
    }
}
