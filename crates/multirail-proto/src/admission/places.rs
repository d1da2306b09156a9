//! Places of authenticated peers.

use super::source::Source;
use crate::session::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A peer that has been idle for less than this keeps its place. Its request may be on its way.
pub const MIN_IDLE: Duration = Duration::from_secs(1);

/// The number of a place, never used twice.
pub type PlaceId = u64;

/// The places of sessions and connections that a server serves at the same time.
///
/// When all places are taken, a newcomer gets the place of an idle peer: of the source that holds
/// most places, the peer that has been idle for longest. It gets no place of a source that holds
/// fewer places than its own. A fixed share for each source would lock out one host that rightly
/// needs all places; this rule has the effect of a share only when there is no room. A client that knows
/// the token can take all free places, but cannot push out the idle sessions of other hosts.
#[derive(Debug)]
pub struct Places {
    limit: usize,
    taken: BTreeMap<PlaceId, Place>,
    next_id: PlaceId,
}

#[derive(Debug)]
struct Place {
    source: Source,
    /// Since when nothing has been under way; `None` while something is.
    idle_since: Option<Time>,
}

/// A newcomer has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// Its place.
    pub place: PlaceId,
    /// The place of a peer that must be ended in its favour, which no longer counts.
    pub ended: Option<PlaceId>,
}

/// A newcomer gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// How many places are taken.
    pub taken: usize,
}

impl Places {
    /// `limit` free places.
    pub fn new(limit: usize) -> Self {
        Self { limit, taken: BTreeMap::new(), next_id: 0 }
    }

    /// Whether all places are taken.
    pub fn is_full(&self) -> bool {
        self.taken.len() >= self.limit
    }

    /// Gives a place to a peer from `source`. It counts as idle until [`Places::set_idle`] says
    /// otherwise.
    ///
    /// # Errors
    /// If all places are taken, and no idle peer may be ended.
    pub fn enter(&mut self, now: Time, source: Source) -> Result<Entered, Full> {
        let ended = if self.is_full() { Some(self.to_end(now, source).ok_or(self.full())?) } else { None };
        if let Some(ended) = ended {
            self.taken.remove(&ended);
        }
        let place = self.next_id;
        self.next_id += 1;
        self.taken.insert(place, Place { source, idle_since: Some(now) });
        Ok(Entered { place, ended })
    }

    /// Sets since when a peer is idle; `None` while it is not.
    pub fn set_idle(&mut self, place: PlaceId, since: Option<Time>) {
        if let Some(place) = self.taken.get_mut(&place) {
            place.idle_since = since;
        }
    }

    /// The peer has left.
    pub fn leave(&mut self, place: PlaceId) {
        self.taken.remove(&place);
    }

    fn full(&self) -> Full {
        Full { taken: self.taken.len() }
    }

    /// The place that a newcomer from `source` may have.
    fn to_end(&self, now: Time, source: Source) -> Option<PlaceId> {
        let mut held = BTreeMap::<Source, usize>::new();
        self.taken.values().for_each(|place| *held.entry(place.source).or_default() += 1);
        let held_by = |source: &Source| held.get(source).copied().unwrap_or(0);
        let own = held_by(&source);
        let idle = self.taken.iter().filter_map(|(id, place)| {
            let idle = now.since(place.idle_since?);
            let held = held_by(&place.source);
            (idle >= MIN_IDLE && held >= own).then_some((held, idle, *id))
        });
        idle.max_by_key(|(held, idle, id)| (*held, *idle, std::cmp::Reverse(*id))).map(|(.., id)| id)
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

    #[test]
    fn there_are_as_many_places_as_the_limit_says() {
        let mut places = Places::new(2);
        let first = places.enter(at(0), source(1)).expect("free").place;
        assert_eq!(places.enter(at(0), source(1)), Ok(Entered { place: 1, ended: None }));
        assert_eq!(places.enter(at(0), source(1)), Err(Full { taken: 2 }));
        places.leave(first);
        assert_eq!(places.enter(at(0), source(1)), Ok(Entered { place: 2, ended: None }));
        assert_eq!(Places::new(0).enter(at(0), source(1)), Err(Full { taken: 0 }));
    }

    #[test]
    fn the_peer_that_was_idle_for_longest_is_ended_and_not_before_a_second() {
        let mut places = Places::new(3);
        for ms in 0..3 {
            places.enter(at(ms), source(1)).expect("free");
        }
        places.set_idle(0, None);
        assert_eq!(places.enter(at(1000), source(2)), Err(Full { taken: 3 }), "just less than a second");
        assert_eq!(places.enter(at(1001), source(2)), Ok(Entered { place: 3, ended: Some(1) }));
        places.set_idle(2, None);
        assert_eq!(places.enter(at(1500), source(2)), Err(Full { taken: 3 }), "two are busy, and one is new");
        places.set_idle(0, Some(at(2000)));
        places.set_idle(3, None);
        assert_eq!(places.enter(at(3000), source(2)), Ok(Entered { place: 4, ended: Some(0) }));
        places.leave(1);
        assert!(places.is_full(), "a place that no longer counts is given back once");
    }

    #[test]
    fn the_source_that_holds_most_ends_one_and_a_greedy_source_only_its_own() {
        let mut places = Places::new(5);
        for (ms, from) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2)] {
            places.enter(at(ms), source(from)).expect("free");
        }
        assert_eq!(places.enter(at(5000), source(3)), Ok(Entered { place: 5, ended: Some(2) }));
        assert_eq!(places.enter(at(5000), source(3)), Ok(Entered { place: 6, ended: Some(0) }), "two hold two each");
        // Source 2 holds two places, source 3 two, source 1 one.
        (3..5).for_each(|place| places.set_idle(place, None));
        (5..7).for_each(|place| places.set_idle(place, None));
        assert_eq!(places.enter(at(9000), source(2)), Err(Full { taken: 5 }), "only source 1 is idle, and has less");
        assert_eq!(places.enter(at(9000), source(4)), Ok(Entered { place: 7, ended: Some(1) }));
    }
}
