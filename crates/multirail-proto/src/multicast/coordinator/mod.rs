//! What the coordinator of a group decides: when a broadcast begins, and when no host is left to
//! wait for.
//!
//! [`Coordinator`] is a state machine without I/O. Its driver invites the hosts, and calls a
//! `handle_*` method for each answer, report and failure. All methods take `now_us` as microseconds
//! since any fixed point. Host `i` of the coordinator is member `i + 1` of the group. Member 0 is
//! the root. Hosts that join later get the next numbers ([`Coordinator::handle_added`]).
//!
//! 1. Before the first broadcast, the driver waits until [`Coordinator::begins_at_us`].
//! 2. It calls [`Coordinator::handle_broadcast`], and waits until [`Coordinator::is_settled`].

pub mod survey;
#[cfg(test)]
mod tests;

use super::member::TransferStatus;
use super::members::{MemberId, Members};
use std::sync::Arc;

/// The first broadcast begins when all hosts have answered, or when some have joined and no host
/// has reported anything for this long.
pub const ANSWER_GAP_US: u64 = 1_000_000;

/// What a coordinator knows when it begins.
#[derive(Debug, Clone)]
pub struct CoordinatorConfig {
    /// All hosts of the group; the root is member 0.
    pub members: Arc<Members>,
    /// How long a host that was lost after it had joined is waited for.
    pub wait_for_lost_us: u64,
    /// After this time without progress on any host, incomplete hosts are given up.
    pub give_up_after_us: u64,
}

/// The state of the invitation of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InviteState {
    /// The first state: the host has not answered. Then any other state.
    Pending,
    /// The host takes part. Then `Lost`, `Failed` or `Left`.
    Joined,
    /// The host could not be reached, or its session was lost. It is invited again. Then `Joined`
    /// or `Failed`.
    Lost {
        /// The latest error.
        why: String,
        /// Whether the host had joined.
        has_joined: bool,
        /// When the host was last present, or was first tried without success.
        since_us: u64,
    },
    /// The last state: the host will not take part any more, and why.
    Failed(String),
    /// The last state: the host has left of its own accord.
    Left,
}

/// What the coordinator knows of one host.
#[derive(Debug, Clone)]
pub struct InvitedHost {
    state: InviteState,
    status: Option<TransferStatus>,
    complaints: Vec<(MemberId, String)>,
    complete_after_us: Option<u64>,
}

/// The coordinator of a group. See the [module](self) for the order of calls.
#[derive(Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    hosts: Vec<InvitedHost>,
    /// When a host last answered, reported or was lost.
    heard_us: u64,
    /// The current broadcast.
    transfer: Option<u32>,
    began_us: u64,
    /// Bytes that all hosts hold, and when this number last changed.
    held_bytes: u64,
    moved_us: u64,
}

impl Coordinator {
    /// A coordinator that begins to invite all members but the root at `now_us`.
    pub fn new(config: CoordinatorConfig, now_us: u64) -> Self {
        Self {
            hosts: vec![InvitedHost::pending(); config.members.count() - 1],
            config,
            heard_us: now_us,
            transfer: None,
            began_us: now_us,
            held_bytes: 0,
            moved_us: now_us,
        }
    }

    /// The hosts in the order of their member numbers.
    pub fn hosts(&self) -> &[InvitedHost] {
        &self.hosts
    }

    /// When the first broadcast begins if no host reports anything before. `None`: not before a
    /// host has joined or all have answered.
    pub fn begins_at_us(&self) -> Option<u64> {
        if self.hosts.iter().all(|host| host.state != InviteState::Pending) {
            return Some(self.heard_us);
        }
        let has_joined = self.hosts.iter().any(|host| host.state == InviteState::Joined);
        has_joined.then(|| self.heard_us.saturating_add(ANSWER_GAP_US))
    }

    /// Broadcast `transfer` begins. What the hosts reported of earlier ones is forgotten.
    pub fn handle_broadcast(&mut self, now_us: u64, transfer: u32) {
        for host in &mut self.hosts {
            (host.status, host.complete_after_us) = (None, None);
        }
        self.transfer = Some(transfer);
        (self.began_us, self.moved_us, self.held_bytes) = (now_us, now_us, 0);
    }

    /// A host takes part.
    pub fn handle_joined(&mut self, now_us: u64, host: usize) {
        self.heard_us = now_us;
        self.hosts[host].state = InviteState::Joined;
    }

    /// A host reports its progress, and the peers that broke the rules.
    pub fn handle_status(
        &mut self,
        now_us: u64,
        host: usize,
        status: Option<TransferStatus>,
        complaints: Vec<(MemberId, String)>,
    ) {
        self.heard_us = now_us;
        (self.hosts[host].status, self.hosts[host].complaints) = (status, complaints);
        if self.is_complete(host) {
            self.hosts[host].complete_after_us.get_or_insert(now_us.saturating_sub(self.began_us));
        }
        let held_bytes = self.hosts.iter().map(InvitedHost::held_bytes).fold(0, u64::saturating_add);
        if held_bytes != self.held_bytes {
            (self.held_bytes, self.moved_us) = (held_bytes, now_us);
        }
    }

    /// A host could not be reached, or its session was lost. The driver invites it again.
    pub fn handle_lost(&mut self, now_us: u64, host: usize, why: String) {
        self.heard_us = now_us;
        let state = &mut self.hosts[host].state;
        let (has_joined, since_us) = match state {
            // The time counts from when the host was last present.
            InviteState::Lost { has_joined, since_us, .. } => (*has_joined, *since_us),
            _ => (*state == InviteState::Joined, now_us),
        };
        *state = InviteState::Lost { why, has_joined, since_us };
    }

    /// A host that was not invited joins the group; `members` has it as its last host.
    pub fn handle_added(&mut self, now_us: u64, members: Arc<Members>) {
        debug_assert_eq!(members.count(), self.hosts.len() + 2);
        self.hosts.push(InvitedHost::pending());
        self.config.members = members;
        // It is waited for as if data had just moved.
        (self.heard_us, self.moved_us) = (now_us, now_us);
    }

    /// A host has left of its own accord.
    pub fn handle_left(&mut self, now_us: u64, host: usize) {
        self.heard_us = now_us;
        self.hosts[host].state = InviteState::Left;
    }

    /// A host will not take part any more.
    pub fn handle_failed(&mut self, now_us: u64, host: usize, why: String) {
        self.heard_us = now_us;
        self.hosts[host].state = InviteState::Failed(why);
    }

    /// Whether a host has all data of the current broadcast under its final name.
    pub fn is_complete(&self, host: usize) -> bool {
        let status = self.hosts[host].status.as_ref();
        status.is_some_and(|status| status.is_done && Some(status.transfer) == self.transfer)
    }

    /// Whether the current broadcast is over: no host is left that could still become complete, or
    /// nothing has moved for too long.
    pub fn is_settled(&self, now_us: u64) -> bool {
        let may_complete = |host: &InvitedHost| match host.state {
            InviteState::Pending | InviteState::Joined => true,
            InviteState::Lost { has_joined, since_us, .. } => {
                has_joined && now_us.saturating_sub(since_us) < self.config.wait_for_lost_us
            }
            InviteState::Failed(_) | InviteState::Left => false,
        };
        let is_left = (0..self.hosts.len()).any(|host| !self.is_complete(host) && may_complete(&self.hosts[host]));
        !is_left || now_us.saturating_sub(self.moved_us) > self.config.give_up_after_us
    }

    /// The clusters of the hosts, as far as they are known.
    pub fn members(&self) -> &Arc<Members> {
        &self.config.members
    }

    /// The cluster of each member.
    pub fn clusters(&self) -> &[u32] {
        self.config.members.cluster_of()
    }

    /// The same hosts are in other clusters than was thought.
    pub fn handle_regroup(&mut self, members: Arc<Members>) {
        debug_assert_eq!(members.count(), self.config.members.count());
        self.config.members = members;
    }

    /// Payload bytes from the cluster of the row to the cluster of the column, as the receivers
    /// counted them.
    pub fn wan_bytes(&self) -> Vec<Vec<u64>> {
        let members = &self.config.members;
        let mut wan = vec![vec![0u64; members.clusters().len()]; members.clusters().len()];
        for (member, host) in (1..).zip(&self.hosts) {
            let received = host.status.iter().flat_map(|status| &status.received_bytes);
            for (sender, bytes) in received.filter(|(sender, _)| members.contains(*sender)) {
                if !members.are_local(*sender, member) {
                    let between = &mut wan[members.cluster(*sender) as usize][members.cluster(member) as usize];
                    *between = between.saturating_add(*bytes);
                }
            }
        }
        wan
    }

    /// The complaints of hosts about `member`, with the host that complains.
    pub fn complaints_about(&self, member: MemberId) -> impl Iterator<Item = (usize, &str)> {
        self.hosts.iter().enumerate().flat_map(move |(by, host)| {
            let about = host.complaints.iter().filter(move |(whom, _)| *whom == member);
            about.map(move |(_, what)| (by, what.as_str()))
        })
    }
}

impl InvitedHost {
    fn pending() -> Self {
        Self { state: InviteState::Pending, status: None, complaints: Vec::new(), complete_after_us: None }
    }

    /// The state of the invitation.
    pub fn state(&self) -> &InviteState {
        &self.state
    }

    /// The latest progress that the host reported. `None`: it knows of no broadcast.
    pub fn status(&self) -> Option<&TransferStatus> {
        self.status.as_ref()
    }

    /// Bytes of verified pieces on the host.
    pub fn held_bytes(&self) -> u64 {
        self.status.as_ref().map_or(0, |status| status.held_bytes)
    }

    /// How long after the begin of the current broadcast the host reported that it is complete.
    pub fn complete_after_us(&self) -> Option<u64> {
        self.complete_after_us
    }
}
