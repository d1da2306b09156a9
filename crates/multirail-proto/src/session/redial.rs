//! When the dialler dials lost connections again.

use super::action::{Action, Redial};
use super::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// The first pause between two attempts; it doubles with each ...
const REDIAL_FIRST: Duration = Duration::from_millis(100);
/// ... up to this one: a rail that is back is used within three seconds.
const REDIAL_MOST: Duration = Duration::from_secs(2);
/// A host that has refused connections for this long has no server any more. A network that has just
/// come up may refuse some for a moment.
const REFUSED_FOR: Duration = Duration::from_secs(3);

/// When the next attempt is made, and the pause after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BackOff {
    /// `None` while an attempt is under way.
    due: Option<Time>,
    pause: Duration,
}

impl BackOff {
    fn new(now: Time) -> Self {
        Self { due: Some(now), pause: REDIAL_FIRST }
    }

    /// Whether an attempt begins at `now`.
    fn start(&mut self, now: Time) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    fn failed(&mut self, now: Time) {
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(REDIAL_MOST);
    }
}

/// Lost connections that the dialler opens again, for as long as the session lives.
#[derive(Debug, Default)]
pub(super) struct Redials {
    /// Lost channels: id, rail and back-off.
    channels: Vec<(u32, u32, BackOff)>,
    control: Option<BackOff>,
    /// Since when each attempt was refused by the peer's host.
    refused_since: Option<Time>,
    /// Id of the next channel that this side opens.
    next_id: u32,
}

impl Redials {
    /// An id for a new channel.
    pub(super) fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// A channel was lost.
    pub(super) fn channel_lost(&mut self, id: u32, rail: u32, now: Time) {
        self.channels.push((id, rail, BackOff::new(now)));
    }

    /// A channel was replaced, or need not be.
    pub(super) fn forget_channel(&mut self, id: u32) {
        self.channels.retain(|(lost, ..)| *lost != id);
    }

    /// There is a new channel.
    pub(super) fn channel_connected(&mut self) {
        self.refused_since = None;
    }

    /// Whether the peer's host has answered for [`REFUSED_FOR`], and refused each attempt. A network that is
    /// down does not answer, and one attempt without an answer begins the time again.
    pub(super) fn is_refused(&self, now: Time) -> bool {
        self.refused_since.is_some_and(|since| now.since(since) >= REFUSED_FOR)
    }

    fn failed(&mut self, refused: bool, now: Time) {
        self.refused_since = refused.then(|| self.refused_since.unwrap_or(now));
    }

    /// An attempt to replace this channel has failed; whether the peer's host refused it.
    pub(super) fn channel_failed(&mut self, id: u32, refused: bool, now: Time) {
        self.failed(refused, now);
        if let Some((.., back_off)) = self.channels.iter_mut().find(|(lost, ..)| *lost == id) {
            back_off.failed(now);
        }
    }

    /// The control connection is missing.
    pub(super) fn control_missing(&mut self, now: Time) {
        self.control.get_or_insert(BackOff::new(now));
    }

    /// There is a control connection.
    pub(super) fn control_connected(&mut self) {
        self.control = None;
    }

    /// An attempt to open the control connection has failed; whether the peer's host refused it.
    pub(super) fn control_failed(&mut self, refused: bool, now: Time) {
        self.failed(refused, now);
        if let Some(back_off) = &mut self.control {
            back_off.failed(now);
        }
    }

    /// Starts the attempts that are due.
    pub(super) fn start(&mut self, actions: &mut VecDeque<Action>, now: Time) {
        for (replaces, rail, back_off) in &mut self.channels {
            if back_off.start(now) {
                actions.push_back(Action::Redial(Redial { id: self.next_id, rail: *rail, replaces: *replaces }));
                self.next_id += 1;
            }
        }
        if self.control.as_mut().is_some_and(|back_off| back_off.start(now)) {
            actions.push_back(Action::RedialControl);
        }
    }

    /// When the next attempt is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.channels.iter().map(|(.., b)| b).chain(&self.control).filter_map(|b| b.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_two_seconds() {
        let mut redials = Redials::default();
        let (mut now, mut pauses) = (Time::ZERO, Vec::new());
        redials.channel_lost(7, 1, now);
        for _ in 0..7 {
            let mut actions = VecDeque::new();
            redials.start(&mut actions, now);
            assert!(matches!(actions.pop_front(), Some(Action::Redial(Redial { rail: 1, replaces: 7, .. }))));
            redials.start(&mut actions, now + REDIAL_MOST);
            assert!(actions.is_empty() && redials.next().is_none(), "an attempt is under way");
            redials.channel_failed(7, false, now);
            let next = redials.next().expect("another attempt");
            pauses.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
        redials.forget_channel(7);
        assert_eq!(redials.next(), None);
    }

    #[test]
    fn an_attempt_is_made_when_it_is_due_and_not_before() {
        let (mut redials, mut actions) = (Redials::default(), VecDeque::new());
        redials.control_missing(Time::ZERO);
        redials.start(&mut actions, Time::ZERO);
        assert_eq!(actions.pop_front(), Some(Action::RedialControl));
        redials.control_failed(false, Time::ZERO);
        redials.control_missing(Time::ZERO);
        redials.start(&mut actions, Time::after(REDIAL_FIRST - Duration::from_nanos(1)));
        assert!(actions.is_empty());
        redials.start(&mut actions, Time::after(REDIAL_FIRST));
        assert_eq!(actions.pop_front(), Some(Action::RedialControl));
    }

    #[test]
    fn ids_are_never_used_twice() {
        let (mut redials, mut actions) = (Redials::default(), VecDeque::new());
        assert_eq!((redials.new_id(), redials.new_id()), (0, 1));
        redials.channel_lost(0, 0, Time::ZERO);
        redials.start(&mut actions, Time::ZERO);
        assert_eq!(actions.pop_front(), Some(Action::Redial(Redial { id: 2, rail: 0, replaces: 0 })));
        assert_eq!(redials.new_id(), 3);
    }
}
