//! Connections that have proven nothing yet.

use super::bucket::TokenBucket;
use super::source::Source;
use crate::session::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Limit of sources that are counted one by one. Further ones are counted as one source until there
/// is room again.
const MAX_SOURCES: usize = 4096;
/// How often sources that are quiet again are looked for, which takes time with many of them.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Connections a second of one source. With a limit of 2048, a flood replaces those of its source
/// once a second, which is enough for a handshake over a round trip of some hundred milliseconds.
const RATE: u32 = 1024;
/// Connections of one source at once, after a pause.
const BURST: u32 = 2 * RATE;
/// Of these, the ones for connections that have sent a greeting.
const KEPT_FOR_GREETINGS: u32 = BURST / 2;

/// Limits unauthenticated connections: those that exist at the same time, and those that are let in
/// in a second.
///
/// - A source may hold half of all unauthenticated connections. Beyond its share, its own oldest
///   connection is ended. A flood from one source therefore ends no connection of another one.
/// - A source gets 1024 connections a second, and 2048 after a pause.
/// - Half of them are for connections that have sent a greeting. A flood of silent connections from
///   the address of an honest client leaves it that half.
#[derive(Debug)]
pub struct Gate {
    limit: usize,
    /// `None` stands for all sources that find no room.
    sources: BTreeMap<Option<Source>, Counted>,
    held: usize,
    next_number: u64,
    swept_at: Time,
}

/// What is known of a source.
#[derive(Debug)]
struct Counted {
    bucket: TokenBucket,
    /// The numbers of its connections, oldest first.
    held: VecDeque<u64>,
}

impl Counted {
    fn new(now: Time) -> Self {
        Self { bucket: TokenBucket::new(BURST, RATE, now), held: VecDeque::new() }
    }
}

/// Stands for a connection that was let in and has proven nothing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    source: Option<Source>,
    number: u64,
}

impl Gate {
    /// A gate that lets in at most `limit` unauthenticated connections, at least 2.
    pub fn new(limit: usize, now: Time) -> Self {
        Self { limit: limit.max(2), sources: BTreeMap::new(), held: 0, next_number: 0, swept_at: now }
    }

    /// The most unauthenticated connections of one source.
    pub fn share(&self) -> usize {
        self.limit / 2
    }

    /// Whether a connection of `source` may be let in now. `greeted`: it has sent the beginning of a
    /// handshake.
    pub fn allows(&mut self, now: Time, source: Source, greeted: bool) -> bool {
        let key = self.key(now, source);
        let keep = if greeted { 0 } else { KEPT_FOR_GREETINGS };
        self.sources.entry(key).or_insert_with(|| Counted::new(now)).bucket.take(now, keep)
    }

    /// Lets a connection in, after [`Gate::allows`]. Returns its ticket, and that of a connection
    /// that must be ended in its favour.
    pub fn enter(&mut self, now: Time, source: Source) -> (Ticket, Option<Ticket>) {
        let key = self.key(now, source);
        let (share, full) = (self.share(), self.held >= self.limit);
        let ended = match self.sources.get(&key) {
            Some(counted) if counted.held.len() >= share => self.end_oldest_of(key),
            _ if full => self.end_one(),
            _ => None,
        };
        let ticket = Ticket { source: key, number: self.next_number };
        self.next_number += 1;
        self.held += 1;
        self.sources.entry(key).or_insert_with(|| Counted::new(now)).held.push_back(ticket.number);
        (ticket, ended)
    }

    /// Picks a connection that must be ended because something has run out: the oldest one of the
    /// source that has most.
    pub fn end_one(&mut self) -> Option<Ticket> {
        let (most, _) = self.sources.iter().max_by_key(|(_, counted)| counted.held.len())?;
        let most = *most;
        self.end_oldest_of(most)
    }

    /// The connection has ended, or is authenticated.
    pub fn leave(&mut self, ticket: Ticket) {
        let Some(counted) = self.sources.get_mut(&ticket.source) else { return };
        if let Some(at) = counted.held.iter().position(|number| *number == ticket.number) {
            counted.held.remove(at);
            self.held -= 1;
        }
    }

    fn end_oldest_of(&mut self, key: Option<Source>) -> Option<Ticket> {
        let number = self.sources.get_mut(&key)?.held.pop_front()?;
        self.held -= 1;
        Some(Ticket { source: key, number })
    }

    /// The entry that counts for `source`.
    fn key(&mut self, now: Time, source: Source) -> Option<Source> {
        if self.sources.contains_key(&Some(source)) {
            return Some(source);
        }
        if self.sources.len() >= MAX_SOURCES && now.since(self.swept_at) >= SWEEP_EVERY {
            self.swept_at = now;
            self.sources.retain(|_, counted| !counted.held.is_empty() || !counted.bucket.is_full(now));
        }
        (self.sources.len() < MAX_SOURCES).then_some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn source(number: u32) -> Source {
        IpAddr::from(Ipv4Addr::from(number)).into()
    }

    fn at(milliseconds: u64) -> Time {
        Time::after(Duration::from_millis(milliseconds))
    }

    fn allowed(gate: &mut Gate, now: Time, from: Source, greeted: bool, tries: usize) -> usize {
        (0..tries).filter(|_| gate.allows(now, from, greeted)).count()
    }

    #[test]
    fn silent_connections_leave_half_to_those_that_greet() {
        let mut gate = Gate::new(200, at(0));
        assert_eq!(allowed(&mut gate, at(0), source(1), false, 5000), 1024);
        assert_eq!(allowed(&mut gate, at(0), source(1), true, 5000), 1024);
        assert_eq!(allowed(&mut gate, at(1000), source(1), false, 5000), 0, "the kept half is filled first");
        assert_eq!(allowed(&mut gate, at(1000), source(1), true, 5000), 1024);
        assert_eq!(allowed(&mut gate, at(1000), source(2), false, 5000), 1024, "another source");
    }

    #[test]
    fn a_source_ends_its_own_oldest_beyond_its_share() {
        let mut gate = Gate::new(8, at(0));
        let (other, none) = gate.enter(at(0), source(2));
        assert_eq!(none, None);
        let own: Vec<Ticket> = (0..4).map(|_| gate.enter(at(0), source(1))).map(|(ticket, _)| ticket).collect();
        for oldest in &own[..3] {
            assert_eq!(gate.enter(at(0), source(1)).1, Some(*oldest));
        }
        gate.leave(own[0]);
        gate.leave(other);
        gate.leave(own[3]);
        assert_eq!(gate.enter(at(0), source(1)).1, None, "one has left");
    }

    #[test]
    fn at_the_limit_the_source_that_has_most_ends_one() {
        let mut gate = Gate::new(8, at(0));
        let first = gate.enter(at(0), source(1)).0;
        let second = (0..4).map(|_| gate.enter(at(0), source(2)).0).collect::<Vec<_>>();
        for from in 3..6 {
            assert_eq!(gate.enter(at(0), source(from)).1, None);
        }
        assert_eq!(gate.enter(at(0), source(6)).1, Some(second[0]));
        gate.leave(first);
        assert_eq!(gate.enter(at(0), source(7)).1, None, "the first source has left");
        assert_eq!(gate.enter(at(0), source(8)).1, Some(second[1]));
        assert_eq!(gate.end_one(), Some(second[2]));
    }

    #[test]
    fn what_is_kept_of_sources_is_limited_and_quiet_ones_are_forgotten() {
        let mut gate = Gate::new(2, at(0));
        for number in 0..MAX_SOURCES as u32 + BURST {
            gate.allows(at(0), source(number), true);
        }
        assert!(gate.sources.len() <= MAX_SOURCES + 1, "{}", gate.sources.len());
        assert!(!gate.allows(at(0), source(1 << 20), true), "those without room share one allowance");
        let (held, _) = gate.enter(at(0), source(5));
        assert!(gate.allows(at(3000), source(1 << 20), true));
        assert!(gate.sources.len() < 5, "quiet sources are forgotten");
        assert_eq!(gate.enter(at(3000), source(5)).1, Some(held), "those with connections are not");
    }
}
