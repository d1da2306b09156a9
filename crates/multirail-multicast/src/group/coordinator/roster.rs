//! The hosts of a group as the coordinator lists them: those that it was given, and those that joined.

use crate::group::options::BroadcastHost;
use crate::hosts::{Clustering, Subnet};
use crate::wire::{InviteHost, ToHost};
use multirail_net::PublicKey;
use multirail_proto::multicast::MemberId;
use std::net::IpAddr;
use tokio::sync::watch;

/// The hosts of a group, by member number.
pub(super) struct Roster {
    entries: Vec<Entry>,
    /// The number of hosts that the group began with.
    first: usize,
}

struct Entry {
    /// The address, and the cluster that was known first.
    host: InviteHost,
    /// Where the coordinator reached it, or it reached the coordinator from.
    ip: Option<IpAddr>,
    /// The host in whose cluster a host that joined is. `None`: it has one of its own.
    near: Option<MemberId>,
    /// The key of a host that joined.
    key: Option<PublicKey>,
    /// The number of sessions to a host that joined, of which the last one counts.
    sessions: u32,
    /// What the host is to measure.
    measure: watch::Sender<Option<ToHost>>,
}

impl Entry {
    fn given(address: String, cluster: u32) -> Self {
        let host = InviteHost { address, cluster };
        Self { host, ip: None, near: None, key: None, sessions: 0, measure: watch::Sender::new(None) }
    }
}

impl Roster {
    pub(super) fn new(root_cluster: u32, hosts: &[BroadcastHost]) -> Self {
        let root = Entry::given(String::new(), root_cluster);
        let given = hosts.iter().map(|host| Entry::given(host.address.clone(), host.cluster));
        Self { entries: std::iter::once(root).chain(given).collect(), first: hosts.len() + 1 }
    }

    /// The number of members that the group began with, the root included.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Whether `member` joined after the group had begun.
    pub(super) fn has_joined_later(&self, member: MemberId) -> bool {
        member as usize >= self.first
    }

    /// The number of members, the root included.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// A host that joined has a session, which replaces earlier ones. Returns its number.
    pub(super) fn begin_session(&mut self, member: MemberId) -> u32 {
        let sessions = &mut self.entries[member as usize].sessions;
        *sessions += 1;
        *sessions
    }

    /// Whether a session to a host that joined is the latest.
    pub(super) fn is_current(&self, member: MemberId, session: u32) -> bool {
        self.entries[member as usize].sessions == session
    }

    pub(super) fn address(&self, member: MemberId) -> &str {
        &self.entries[member as usize].host.address
    }

    /// What the hosts are told of each other. The root's address is empty.
    pub(super) fn table(&self) -> Vec<InviteHost> {
        self.entries.iter().map(|entry| entry.host.clone()).collect()
    }

    /// The members from number `first` on.
    pub(super) fn since(&self, first: usize) -> Vec<InviteHost> {
        self.entries[first..].iter().map(|entry| entry.host.clone()).collect()
    }

    pub(super) fn measure(&self, member: MemberId) -> &watch::Sender<Option<ToHost>> {
        &self.entries[member as usize].measure
    }

    /// The coordinator has a session with this member, which is at `ip`.
    pub(super) fn reached(&mut self, member: MemberId, ip: IpAddr) {
        self.entries[member as usize].ip = Some(ip);
    }

    /// The number of the host that joined as `member` before and comes back with the same key.
    pub(super) fn returning(&self, member: Option<MemberId>, key: PublicKey) -> Option<MemberId> {
        let member = member?;
        let entry = self.entries.get(member as usize).filter(|_| self.has_joined_later(member))?;
        (entry.key == Some(key)).then_some(member)
    }

    /// A host joins: it listens at `address`, and reached the address `local` of this host from `ip`. It gets
    /// the next number, and is in the cluster of a host in its subnet, or else alone.
    pub(super) fn join(&mut self, address: String, ip: IpAddr, local: IpAddr, key: PublicKey) -> MemberId {
        let is_near = |other: IpAddr| Clustering::by_subnet(&[ip, other], Subnet { bits: None }).names.len() == 1;
        let near = match is_near(local) {
            true => Some(0),
            false => (0..).zip(&self.entries).find(|(_, e)| e.ip.is_some_and(is_near)).map(|(member, _)| member),
        };
        let clusters: Vec<u32> = self.entries.iter().map(|entry| entry.host.cluster).collect();
        let host = InviteHost { address, cluster: next_cluster(&clusters, near) };
        let measure = watch::Sender::new(None);
        self.entries.push(Entry { host, ip: Some(ip), near, key: Some(key), sessions: 0, measure });
        self.entries.len() as MemberId - 1
    }

    /// The clusters of all hosts, if those that the group began with, or more of them, are in `clusters`.
    pub(super) fn all_clusters(&self, mut clusters: Vec<u32>) -> Vec<u32> {
        for entry in &self.entries[clusters.len()..] {
            clusters.push(next_cluster(&clusters, entry.near));
        }
        clusters
    }
}

/// The cluster of the next host, which is that of `near` or a new one.
fn next_cluster(clusters: &[u32], near: Option<MemberId>) -> u32 {
    match near {
        Some(near) => clusters[near as usize],
        None => clusters.iter().max().map_or(0, |last| last + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use multirail_net::Identity;

    fn roster() -> Roster {
        let mut roster = Roster::new(0, &[BroadcastHost::new("b:1", 1), BroadcastHost::new("c:1", 1)]);
        roster.reached(1, [10, 0, 1, 2].into());
        roster
    }

    #[test]
    fn a_host_that_joins_is_in_the_cluster_of_its_subnet() {
        let key = Identity::generate().public_key();
        let mut roster = roster();
        let local: IpAddr = [10, 0, 0, 1].into();
        let mut join = |ip: [u8; 4]| roster.join("x:1".to_owned(), ip.into(), local, key);
        let joined = [[10, 0, 0, 9], [10, 0, 1, 9], [10, 0, 2, 1], [10, 0, 2, 2], [10, 0, 3, 1]].map(&mut join);
        assert_eq!(joined, [3, 4, 5, 6, 7]);
        let table: Vec<u32> = roster.table().iter().map(|host| host.cluster).collect();
        assert_eq!(table, [0, 1, 1, 0, 1, 2, 2, 3]);
        // The first three hosts turn out to be in one cluster, and then in three.
        assert_eq!(roster.all_clusters(vec![0, 0, 0]), [0, 0, 0, 0, 0, 1, 1, 2]);
        assert_eq!(roster.all_clusters(vec![0, 1, 2]), [0, 1, 2, 0, 1, 3, 3, 4]);
        assert_eq!(roster.since(6).len(), 2);
    }

    #[test]
    fn a_number_is_given_again_only_to_its_key() {
        let [key, other] = [(); 2].map(|()| Identity::generate().public_key());
        let mut roster = roster();
        let member = roster.join("x:1".to_owned(), [10, 0, 2, 1].into(), [10, 0, 0, 1].into(), key);
        assert_eq!(roster.returning(Some(member), key), Some(member));
        assert_eq!(roster.returning(Some(member), other), None);
        assert_eq!(roster.returning(Some(1), key), None, "a host that was given");
        assert_eq!(roster.returning(Some(99), key), None);
        assert_eq!(roster.returning(None, key), None);
    }
}
