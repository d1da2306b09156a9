//! The hosts of a group, their clusters, and the mob share of each host.

use std::ops::Range;

/// A host of the group, by its number in the list of hosts.
pub type MemberId = u32;

/// The hosts of a group, by cluster. All hosts have the same list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    root: MemberId,
    cluster_of: Vec<u32>,
    rank_of: Vec<u32>,
    clusters: Vec<Vec<MemberId>>,
}

/// Why a list of hosts is not a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    /// No host, or more than [`MAX_MEMBERS`].
    #[error("{0} hosts; a group has 1 to 65536")]
    Count(usize),
    /// The root is not in the list.
    #[error("the root has number {root}, but the group has {count} hosts")]
    Root {
        /// The number of the root.
        root: MemberId,
        /// The number of hosts.
        count: usize,
    },
    /// A cluster number is not used. Clusters are numbered without gaps.
    #[error("cluster {0} has no host")]
    EmptyCluster(u32),
}

/// The most hosts of a group.
pub const MAX_MEMBERS: usize = 1 << 16;

impl Members {
    /// `cluster_of[i]` is host `i`'s cluster, numbered from 0 without gaps.
    ///
    /// # Errors
    ///
    /// [`MembersError`], if there are too few or too many hosts, or no host has the number of the
    /// root.
    pub fn new(cluster_of: Vec<u32>, root: MemberId) -> Result<Self, MembersError> {
        let count = cluster_of.len();
        if count == 0 || count > MAX_MEMBERS {
            return Err(MembersError::Count(count));
        }
        if root as usize >= count {
            return Err(MembersError::Root { root, count });
        }
        let last = cluster_of.iter().copied().max().unwrap_or(0);
        if last as usize >= count {
            return Err(MembersError::EmptyCluster(last - 1));
        }
        let mut clusters = vec![Vec::new(); last as usize + 1];
        let mut rank_of = Vec::with_capacity(count);
        for (member, cluster) in cluster_of.iter().enumerate() {
            let cluster: &mut Vec<MemberId> = &mut clusters[*cluster as usize];
            rank_of.push(cluster.len() as u32);
            cluster.push(member as MemberId);
        }
        match clusters.iter().position(Vec::is_empty) {
            Some(empty) => Err(MembersError::EmptyCluster(empty as u32)),
            None => Ok(Self { root, cluster_of, rank_of, clusters }),
        }
    }

    /// The host that has the data.
    pub fn root(&self) -> MemberId {
        self.root
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.cluster_of.len()
    }

    /// Whether the group has a host `member`.
    pub fn contains(&self, member: MemberId) -> bool {
        (member as usize) < self.cluster_of.len()
    }

    /// The hosts of every cluster, by rank.
    pub fn clusters(&self) -> &[Vec<MemberId>] {
        &self.clusters
    }

    /// The cluster of each host.
    pub fn cluster_of(&self) -> &[u32] {
        &self.cluster_of
    }

    /// A host's cluster.
    pub fn cluster(&self, member: MemberId) -> u32 {
        self.cluster_of[member as usize]
    }

    /// A host's cluster rank, r(x, n) in the MOB paper (section 3.1).
    pub fn rank(&self, member: MemberId) -> u32 {
        self.rank_of[member as usize]
    }

    /// The hosts in the cluster of `member`, including `member`.
    pub fn mob(&self, member: MemberId) -> &[MemberId] {
        &self.clusters[self.cluster(member) as usize]
    }

    /// Whether two hosts are in one cluster.
    pub(crate) fn are_local(&self, one: MemberId, other: MemberId) -> bool {
        self.cluster(one) == self.cluster(other)
    }

    /// The host of `cluster` that `member` steals from: the one with rank r(x, n) mod s(y) (MOB,
    /// section 3.1, phase 2).
    pub(crate) fn counterpart(&self, member: MemberId, cluster: u32) -> MemberId {
        let hosts = &self.clusters[cluster as usize];
        hosts[self.rank(member) as usize % hosts.len()]
    }

    /// The pieces that `member` steals for its cluster, of `pieces` (MOB, section 3.1, phase 3).
    pub fn share(&self, member: MemberId, pieces: u32) -> Range<u32> {
        let (rank, size) = (u64::from(self.rank(member)), self.mob(member).len() as u64);
        let border = |rank: u64| (rank * u64::from(pieces) / size) as u32;
        border(rank)..border(rank + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cut_the_pieces_without_rest(sizes in prop::collection::vec(1u32..40, 1..6), pieces in 0u32..5000) {
            let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
            let members = Members::new(cluster_of, 0).unwrap();
            for cluster in members.clusters() {
                let mut next = 0;
                for member in cluster {
                    let share = members.share(*member, pieces);
                    prop_assert_eq!(share.start, next);
                    next = share.end;
                }
                prop_assert_eq!(next, pieces);
            }
        }
    }

    #[test]
    fn bad_lists_are_refused() {
        assert_eq!(Members::new(vec![], 0), Err(MembersError::Count(0)));
        assert_eq!(Members::new(vec![0, 2], 0), Err(MembersError::EmptyCluster(1)));
        assert_eq!(Members::new(vec![0, 2, 2], 0), Err(MembersError::EmptyCluster(1)));
        assert_eq!(Members::new(vec![0, 0], 2), Err(MembersError::Root { root: 2, count: 2 }));
    }

    #[test]
    fn counterparts_are_by_rank_modulo() {
        let members = Members::new(vec![0, 0, 1, 1, 1, 1, 1], 0).unwrap();
        assert_eq!((2..7).map(|m| members.counterpart(m, 0)).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
    }
}
