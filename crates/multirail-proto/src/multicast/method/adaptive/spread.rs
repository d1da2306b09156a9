//! How the pieces that a host fetches spread in its cluster.
//!
//! Every neighbour of a fetcher lacks a new piece at the same time. If all of them got it from the fetcher, its port
//! would have to send its share as often as it has neighbours. So each gets another part of the share from the
//! fetcher, and the rest from the others, as hosts next to the root do with the root's pieces.

use super::fetchers::{is_fetcher, share};
use super::find::{is_mesh, surely_wants};
use crate::multicast::members::{MemberId, Members};
use crate::multicast::pieces::PieceSet;

/// The pieces that `me` is not to get from its neighbour `from`, since other neighbours of `from` do. None in a small
/// cluster, where a fetcher has few neighbours.
pub(super) fn for_others(members: &Members, me: MemberId, from: MemberId, pieces: u32) -> PieceSet {
    let none = PieceSet::none(pieces);
    if !members.are_local(me, from) || is_mesh(members, me) || !is_fetcher(members, from) {
        return none;
    }
    let mut neighbours = members.mob(me).iter().filter(|m| **m != from && surely_wants(members, from, **m));
    let count = neighbours.clone().count();
    let Some(place) = neighbours.position(|m| *m == me) else { return none };
    let mut others = share(members, from, pieces);
    for piece in (place as u32..pieces).step_by(count) {
        others.remove(piece);
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_neighbour_gets_a_piece_from_its_fetcher(size in 1u32..40, pieces in 0u32..500) {
            // The root has a cluster of its own.
            let members = Members::new((0..=size).map(|m| u32::from(m > 0)).collect(), 0).unwrap();
            for from in (1..=size).filter(|m| is_fetcher(&members, *m)) {
                let neighbours: Vec<_> = (1..=size).filter(|m| *m != from && surely_wants(&members, from, *m)).collect();
                for piece in share(&members, from, pieces).iter() {
                    let gets = |m: &&MemberId| !for_others(&members, **m, from, pieces).contains(piece);
                    let count = neighbours.iter().filter(gets).count();
                    prop_assert_eq!(count, if is_mesh(&members, from) { neighbours.len() } else { 1 });
                }
            }
        }
    }
}
