//! Which hosts of a cluster fetch from other clusters, and what.

use crate::multicast::members::{MemberId, Members};
use crate::multicast::pieces::PieceSet;
use std::ops::Range;

/// The fewest hosts of a cluster that fetch from other clusters, if it has as many. The others get everything from their
/// neighbours.
const MIN_FETCHERS: usize = 4;
/// The most hosts of a cluster that fetch from other clusters. With fewer, hosts with slow links to other clusters are
/// the limit. With more, each has a few pieces, every one of which comes over a link that as many hosts share, so that
/// the last one of a cluster comes late.
const MAX_FETCHERS: usize = 8;
/// In a group of more clusters, [`MIN_FETCHERS`] hosts fetch, since there are more links with few pieces each. Measured
/// with 10 clusters, where eight hosts are better, and with 30, where four are.
const FEW_CLUSTERS: usize = 16;

/// Whether more hosts that fetch make a group slower.
pub(super) fn has_many_clusters(members: &Members) -> bool {
    members.clusters().len() > FEW_CLUSTERS
}

/// The most hosts that fetch of a cluster with `hosts`: an eighth, within the limits.
pub(super) fn most(members: &Members, hosts: usize) -> usize {
    let most = if has_many_clusters(members) { MIN_FETCHERS } else { MAX_FETCHERS };
    (hosts / 8).clamp(MIN_FETCHERS, most)
}

/// Whether a host has a share, while all hosts are up: the first ones of each cluster.
pub(super) fn is_fetcher(members: &Members, member: MemberId) -> bool {
    (members.rank(member) as usize) < most(members, members.mob(member).len())
}

/// Whether a host fetches from other clusters from the beginning. None does next to the root.
pub(super) fn fetches(members: &Members, member: MemberId) -> bool {
    !members.are_local(member, members.root()) && is_fetcher(members, member)
}

/// The part of a cluster's pieces that a host would fetch from other clusters.
pub(super) fn range(members: &Members, member: MemberId, pieces: u32) -> Range<u32> {
    let hosts = members.mob(member).len();
    let fetchers = hosts.min(most(members, hosts)) as u64;
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
