//! The sessions between hosts.

use super::ids::FlowId;
use super::links::Links;
use multirail_proto::multicast::members::MemberId;

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No session. Follows every other state when a host dies.
    Idle,
    /// Host `by` has asked for a session. After `Idle`.
    Connecting { by: MemberId },
    /// Up for the host that accepted, not yet for `by`. After `Connecting`.
    Accepted { by: MemberId },
    /// Up for both hosts. After `Accepted`.
    Up,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: State,
    /// Whether the other host also asked for a session while it was connecting.
    pub(super) both_ask: bool,
    /// The host that has not noticed yet that the other one died.
    pub(super) stale_for: Option<MemberId>,
    /// Counts the attempts to connect. Events of an earlier attempt are void.
    pub(super) attempt: u32,
    /// The flows from the lower to the higher number, and back.
    pub(super) flows: [FlowId; 2],
}

impl Session {
    /// Whether `host` was told that the session is up.
    pub(super) fn is_up_for(&self, host: MemberId) -> bool {
        match self.state {
            State::Up => true,
            State::Accepted { by } => by != host,
            State::Idle | State::Connecting { .. } => false,
        }
    }
}

/// All sessions that ever existed.
#[derive(Debug)]
pub(super) struct Sessions {
    sessions: Vec<Session>,
    /// The peers of each host and the numbers of the sessions, in order. The lists are short and
    /// used all the time.
    peers: Vec<Vec<(MemberId, u32)>>,
}

impl Sessions {
    pub(super) fn new(hosts: usize) -> Self {
        Self { sessions: Vec::new(), peers: vec![Vec::new(); hosts] }
    }

    pub(super) fn get(&mut self, one: MemberId, other: MemberId) -> Option<&mut Session> {
        let peers = &self.peers[one as usize];
        let place = peers.binary_search_by_key(&other, |(peer, _)| *peer).ok()?;
        Some(&mut self.sessions[peers[place].1 as usize])
    }

    pub(super) fn get_or_make(&mut self, links: &mut Links, one: MemberId, other: MemberId) -> &mut Session {
        let number = match self.peers[one as usize].binary_search_by_key(&other, |(peer, _)| *peer) {
            Ok(place) => self.peers[one as usize][place].1,
            Err(_) => {
                let (low, high) = (one.min(other), one.max(other));
                let flows = [links.open(low, high), links.open(high, low)];
                let session = Session { state: State::Idle, both_ask: false, stale_for: None, attempt: 0, flows };
                self.sessions.push(session);
                let number = self.sessions.len() as u32 - 1;
                for (host, peer) in [(low, high), (high, low)] {
                    let peers = &mut self.peers[host as usize];
                    let place = peers.partition_point(|(other, _)| *other < peer);
                    peers.insert(place, (peer, number));
                }
                number
            }
        };
        &mut self.sessions[number as usize]
    }

    /// The hosts with which a host ever had a session.
    pub(super) fn peers(&self, host: MemberId) -> Vec<MemberId> {
        self.peers[host as usize].iter().map(|(peer, _)| *peer).collect()
    }
}
