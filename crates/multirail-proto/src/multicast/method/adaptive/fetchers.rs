//! Which hosts of a cluster fetch from other clusters, and what.

use crate::multicast::members::{MemberId, Members};
use crate::multicast::pieces::PieceSet;
use std::ops::Range;

/// The most hosts of a cluster that fetch from other clusters. With more, each has a few pieces, every one of
/// which comes over a link that as many hosts share, so that the last one of a cluster comes late. The others
/// get everything from their neighbours.
pub(super) const MAX_FETCHERS: usize = 4;

/// Whether a host has a share, while all hosts are up: the first ones of each cluster.
pub(super) fn is_fetcher(members: &Members, member: MemberId) -> bool {
    (members.rank(member) as usize) < MAX_FETCHERS
}

/// The part of a cluster's pieces that a host would fetch from other clusters.
pub(super) fn range(members: &Members, member: MemberId, pieces: u32) -> Range<u32> {
    let fetchers = members.mob(member).len().min(MAX_FETCHERS) as u64;
    let border = |rank: u64| (rank.min(fetchers) * u64::from(pieces) / fetchers) as u32;
    let rank = u64::from(members.rank(member));
    border(rank)..border(rank + 1)
}

/// The share of a host: the pieces that it fetches for its cluster. Empty next to the root.
pub(super) fn share(members: &Members, member: MemberId, pieces: u32) -> PieceSet {
    let mut share = PieceSet::none(pieces);
    if !members.are_local(member, members.root()) {
        share.insert_range(range(members, member, pieces));
    }
    share
}
