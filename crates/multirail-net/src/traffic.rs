//! What all sessions of this process have moved, and why connections were refused.
//!
//! A server shows both as metrics. The numbers are of the process, since sessions that a server dials
//! for a broadcast or a pipeline move its bytes, too.

use crate::error::Error;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// What sessions have moved. Bytes are those of messages, with what was sent a second time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Sessions that have not been dropped.
    pub sessions: u64,
    /// Rails of these sessions that have a channel.
    pub rails_up: u64,
    /// Bytes sent by these sessions and all before them.
    pub sent_bytes: u64,
    /// Bytes received by these sessions and all before them.
    pub received_bytes: u64,
}

/// The part of one session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    pub(crate) rails_up: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

/// A session that is counted.
pub(crate) trait Counted: Send + Sync {
    /// What it has moved so far; `None` while it is busy.
    fn part(&self) -> Option<Part>;
    /// Ends it at once, and tells the peer the reason.
    fn end(&self, reason: String);
}

/// The place of a session among those that are counted.
pub(crate) struct Entry {
    number: u64,
    meter: Meter,
}

/// Reads what one session has moved, also after its end. It does not keep the session alive.
#[derive(Clone)]
pub(crate) struct Meter {
    session: Weak<dyn Counted>,
    last: Arc<Mutex<Part>>,
}

struct Sessions {
    next: u64,
    live: BTreeMap<u64, Meter>,
    ended: Part,
}

static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions {
    next: 0,
    live: BTreeMap::new(),
    ended: Part { rails_up: 0, sent_bytes: 0, received_bytes: 0 },
});

impl Entry {
    /// Counts a session from now on.
    pub(crate) fn new(session: Weak<dyn Counted>) -> Self {
        let meter = Meter { session, last: Arc::default() };
        let sessions = &mut *lock(&SESSIONS);
        sessions.next += 1;
        sessions.live.insert(sessions.next, meter.clone());
        Self { number: sessions.next, meter }
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Keeps what the session has moved after its end.
    pub(crate) fn end(&self, part: Part) {
        *lock(&self.meter.last) = part;
        let sessions = &mut *lock(&SESSIONS);
        sessions.live.remove(&self.number);
        sessions.ended.sent_bytes += part.sent_bytes;
        sessions.ended.received_bytes += part.received_bytes;
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.number).finish()
    }
}

impl Meter {
    /// What the session has moved. If it is busy, what it had moved at the last call.
    pub(crate) fn read(&self) -> Part {
        if let Some(part) = self.session.upgrade().and_then(|session| session.part()) {
            *lock(&self.last) = part;
        }
        *lock(&self.last)
    }
}

/// What all sessions of this process have moved. A session that is busy at the moment counts with
/// what it had moved at the last call.
pub fn traffic() -> Traffic {
    // No session is locked, and none dropped, while the list is.
    let live: Vec<Meter> = lock(&SESSIONS).live.values().cloned().collect();
    for meter in live {
        meter.read();
    }
    let sessions = lock(&SESSIONS);
    let mut total = Traffic {
        sessions: sessions.live.len() as u64,
        rails_up: 0,
        sent_bytes: sessions.ended.sent_bytes,
        received_bytes: sessions.ended.received_bytes,
    };
    for part in sessions.live.values().map(|meter| *lock(&meter.last)) {
        total.rails_up += part.rails_up;
        total.sent_bytes += part.sent_bytes;
        total.received_bytes += part.received_bytes;
    }
    total
}

/// Ends all sessions of this process, and tells their peers the reason.
pub(crate) fn end_all(reason: &str) {
    let live: Vec<_> = lock(&SESSIONS).live.values().filter_map(|meter| meter.session.upgrade()).collect();
    for session in live {
        session.end(reason.to_owned());
    }
}

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Its source opens too many connections.
    Flood,
    /// The client does not prove that it is allowed.
    Unauthorized,
    /// The server serves as many sessions as it may.
    Busy,
    /// It belongs to a session that is over, or has channels enough.
    Session,
    /// The client speaks another protocol or version.
    Protocol,
    /// The client did not finish the handshake in time, or closed the connection.
    Incomplete,
    /// Any other reason.
    Other,
}

impl Refused {
    /// All reasons.
    pub const ALL: [Self; 7] =
        [Self::Flood, Self::Unauthorized, Self::Busy, Self::Session, Self::Protocol, Self::Incomplete, Self::Other];

    /// The reason in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::Unauthorized => "unauthorized",
            Self::Busy => "busy",
            Self::Session => "session",
            Self::Protocol => "protocol",
            Self::Incomplete => "incomplete",
            Self::Other => "other",
        }
    }

    /// How many connections this process has refused for this reason.
    pub fn count(self) -> u64 {
        REFUSED[self as usize].load(Ordering::Relaxed)
    }

    /// Counts refused connections.
    pub(crate) fn add(self, connections: u64) {
        REFUSED[self as usize].fetch_add(connections, Ordering::Relaxed);
    }
}

static REFUSED: [AtomicU64; Refused::ALL.len()] = [const { AtomicU64::new(0) }; Refused::ALL.len()];

impl From<&Error> for Refused {
    fn from(error: &Error) -> Self {
        match error {
            Error::TokenMissing { .. } | Error::TokenWrong | Error::CodeWrong | Error::KeyRefused { .. } => {
                Self::Unauthorized
            }
            Error::Busy { .. } | Error::Stopping => Self::Busy,
            Error::SessionUnknown => Self::Session,
            Error::NotMultirail { .. }
            | Error::Version { .. }
            | Error::Handshake { .. }
            | Error::PlaintextDiffers { .. }
            | Error::Protocol(_) => Self::Protocol,
            Error::HandshakeTimeout { .. } | Error::Closed => Self::Incomplete,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[derive(Default)]
    struct Session {
        busy: AtomicBool,
        sent_bytes: AtomicU64,
        ended: Mutex<Option<String>>,
    }

    impl Counted for Session {
        fn part(&self) -> Option<Part> {
            let sent_bytes = self.sent_bytes.load(Ordering::Relaxed);
            (!self.busy.load(Ordering::Relaxed)).then_some(Part { rails_up: 1, sent_bytes, received_bytes: 1 })
        }
        fn end(&self, reason: String) {
            *lock(&self.ended) = Some(reason);
        }
    }

    // One test, since the numbers are those of the process.
    #[test]
    fn bytes_are_counted_while_a_session_lives_and_afterwards() {
        let before = traffic();
        let session = Arc::<Session>::default();
        let weak = Arc::downgrade(&session);
        let entry = Entry::new(weak);
        session.sent_bytes.store(1000, Ordering::Relaxed);
        assert!(traffic().sent_bytes >= before.sent_bytes + 1000);
        session.sent_bytes.store(3000, Ordering::Relaxed);
        session.busy.store(true, Ordering::Relaxed);
        let busy = traffic();
        assert!(busy.sent_bytes >= before.sent_bytes + 1000, "the last known number counts");
        assert!(busy.sessions > 0 && busy.rails_up > 0);
        end_all("enough");
        assert_eq!(lock(&session.ended).as_deref(), Some("enough"));
        let meter = entry.meter().clone();
        entry.end(Part { rails_up: 1, sent_bytes: 3000, received_bytes: 7 });
        drop(session);
        assert_eq!(meter.read().sent_bytes, 3000);
        let after = traffic();
        assert!(after.sent_bytes >= before.sent_bytes + 3000 && after.received_bytes >= before.received_bytes + 7);
        assert!(!lock(&SESSIONS).live.contains_key(&entry.number));
    }

    #[test]
    fn each_reason_has_its_own_count() {
        for (at, reason) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
        let before = Refused::Busy.count();
        Refused::from(&Error::Busy { sessions: 1 }).add(2);
        assert!(Refused::Busy.count() >= before + 2);
    }
}
