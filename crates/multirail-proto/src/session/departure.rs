//! Whether the peer has left without ending the session.

use super::time::Time;
use std::time::Duration;

/// The peer may open a connection again for this long after it has closed the last one. A dialler
/// begins at once, and maintenance adds a tenth of a second.
const LEFT_AFTER: Duration = Duration::from_millis(800);
/// A peer that has not answered for this long may have lost its rails ...
const DOUBT_AFTER: Duration = Duration::from_millis(300);
/// ... until it has answered for this long. Connections that a dialler gave up during an outage end
/// when the rail is back, and the dialler comes back up to three seconds later.
const DOUBT_LASTS: Duration = Duration::from_secs(5);

/// What distinguishes a peer that has left from one that has lost its rails. Both close or reset all
/// connections, the latter after an outage.
#[derive(Debug, Default)]
pub(super) struct Departure {
    /// When the peer closed the control connection, if it did and has not opened another one.
    control_ended_at: Option<Time>,
    /// When the control connection failed, if it did and there is no other one.
    control_lost_at: Option<Time>,
    /// Since when some channel has had no answer.
    unanswered_since: Option<Time>,
    /// When the peer was last in doubt.
    doubted_at: Option<Time>,
}

impl Departure {
    /// There is a control connection.
    pub(super) fn control_connected(&mut self) {
        (self.control_ended_at, self.control_lost_at) = (None, None);
    }

    /// The peer has closed the control connection.
    pub(super) fn control_ended(&mut self, now: Time) {
        self.control_ended_at = Some(now);
    }

    /// The control connection has failed.
    pub(super) fn control_lost(&mut self, now: Time) {
        self.control_lost_at = Some(now);
    }

    /// Notes whether some channel that is up waits for an answer.
    pub(super) fn observe(&mut self, unanswered: bool, now: Time) {
        if !unanswered {
            self.unanswered_since = None;
            return;
        }
        let since = *self.unanswered_since.get_or_insert(now);
        if now.since(since) >= DOUBT_AFTER {
            self.doubted_at = Some(now);
        }
    }

    /// Whether the peer has left. There has been no channel since `dark_since`.
    pub(super) fn has_left(&self, dark_since: Time, now: Time) -> bool {
        let Some(control_ended_at) = self.control_ended_at else { return false };
        let all_ended_at = control_ended_at.max(dark_since);
        !self.is_in_doubt(all_ended_at) && now.since(all_ended_at) >= LEFT_AFTER
    }

    /// Whether a peer that sends nothing more will not come back for what it lacks. A peer that lacks
    /// nothing closes the control connection. A peer that has lost its rails opens another one, which
    /// takes no longer than [`DOUBT_LASTS`].
    pub(super) fn is_final(&self, now: Time) -> bool {
        match (self.control_ended_at, self.control_lost_at) {
            (Some(ended_at), _) if !self.is_in_doubt(ended_at) => true,
            (Some(at), _) | (None, Some(at)) => now.since(at) >= DOUBT_LASTS,
            (None, None) => false,
        }
    }

    /// Whether the peer may have lost its rails shortly before `at`.
    fn is_in_doubt(&self, at: Time) -> bool {
        self.doubted_at.is_some_and(|doubted| at.since(doubted) < DOUBT_LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::after(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_peer_has_left_some_time_after_its_last_connection() {
        let mut departure = Departure::default();
        assert!(!departure.has_left(at(0), at(100_000)), "the control connection was not closed by the peer");
        departure.control_ended(at(500));
        assert!(!departure.has_left(at(0), at(1299)) && departure.has_left(at(0), at(1300)));
        assert!(!departure.has_left(at(1000), at(1799)) && departure.has_left(at(1000), at(1800)));
        departure.control_connected();
        assert!(!departure.has_left(at(0), at(100_000)), "it is back");
    }

    #[test]
    fn a_peer_that_had_an_outage_is_waited_for() {
        let silent_for = |milliseconds: u64| {
            let mut departure = Departure::default();
            departure.observe(true, at(1000));
            departure.observe(true, at(1000 + milliseconds));
            departure.observe(false, at(1001 + milliseconds));
            departure
        };
        let mut brief = silent_for(299);
        brief.control_ended(at(2000));
        assert!(brief.has_left(at(2000), at(2800)));
        let mut outage = silent_for(300);
        outage.control_ended(at(6299));
        assert!(!outage.has_left(at(6299), at(20_000)));
        outage.control_ended(at(6300));
        assert!(outage.has_left(at(6300), at(20_000)), "the outage is long over");
    }
}
