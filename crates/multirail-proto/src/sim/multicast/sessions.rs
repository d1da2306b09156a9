//! Who has a session with whom.

use super::links::{FlowId, Links};
use crate::multicast::members::MemberId;
use std::collections::HashMap;

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is none. Follows all others, by death.
    Idle,
    /// `by` has knocked. After `Idle`.
    Connecting { by: MemberId },
    /// It is up for the one who accepted, not yet for `by`. After `Connecting`.
    Accepted { by: MemberId },
    /// It is up for both. After `Accepted`.
    Up,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: State,
    /// Whether the other one asked for a session, too, while it was connecting.
    pub(super) both_ask: bool,
    /// The one who has not noticed yet that the other died.
    pub(super) stale_for: Option<MemberId>,
    /// Counts the attempts to connect: what comes of an earlier one is void.
    pub(super) attempt: u32,
    /// From the lower to the higher number, and back.
    pub(super) flows: [FlowId; 2],
}

impl Session {
    /// Whether `host` was told that it is up.
    pub(super) fn is_up_for(&self, host: MemberId) -> bool {
        match self.state {
            State::Up => true,
            State::Accepted { by } => by != host,
            State::Idle | State::Connecting { .. } => false,
        }
    }
}

/// All sessions that there ever were.
#[derive(Debug)]
pub(super) struct Sessions {
    number_of: HashMap<(MemberId, MemberId), u32>,
    sessions: Vec<Session>,
    /// Of each host, those it ever had a session with.
    peers: Vec<Vec<MemberId>>,
}

impl Sessions {
    pub(super) fn new(hosts: usize) -> Self {
        Self { number_of: HashMap::new(), sessions: Vec::new(), peers: vec![Vec::new(); hosts] }
    }

    pub(super) fn get(&mut self, one: MemberId, other: MemberId) -> Option<&mut Session> {
        let number = self.number_of.get(&(one.min(other), one.max(other)))?;
        Some(&mut self.sessions[*number as usize])
    }

    pub(super) fn get_or_make(&mut self, links: &mut Links, one: MemberId, other: MemberId) -> &mut Session {
        let (low, high) = (one.min(other), one.max(other));
        let number = *self.number_of.entry((low, high)).or_insert_with(|| {
            let flows = [links.open(low, high), links.open(high, low)];
            self.sessions.push(Session { state: State::Idle, both_ask: false, stale_for: None, attempt: 0, flows });
            self.peers[low as usize].push(high);
            self.peers[high as usize].push(low);
            self.sessions.len() as u32 - 1
        });
        &mut self.sessions[number as usize]
    }

    /// The flow from one host to another, if it is up for the sender.
    pub(super) fn flow(&mut self, from: MemberId, to: MemberId) -> Option<FlowId> {
        let session = self.get(from, to)?;
        session.is_up_for(from).then(|| session.flows[usize::from(from > to)])
    }

    /// Those a host ever had a session with.
    pub(super) fn peers(&self, host: MemberId) -> Vec<MemberId> {
        self.peers[host as usize].clone()
    }
}
