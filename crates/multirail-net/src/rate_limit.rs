//! Limits of the rate at which sessions move bytes.

use crate::sync::lock;
use multirail_proto::pacer::Pacer;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// The longest wait before the limit is read again, so that a change shows soon.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A shorter sleep costs more than it saves.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// A limit of the rate at which all sessions that have it move bytes together, in both directions.
///
/// Clones are the same limit. It can be changed while sessions run.
///
/// ```
/// use multirail_net::{Config, RateLimit};
///
/// let limit = RateLimit::new(Some(10 << 20));
/// let config = Config::new().rate_limit(limit.clone());
/// limit.set(None);
/// assert_eq!(config.rate_limits[0].bytes_s(), None);
/// ```
#[derive(Clone)]
pub struct RateLimit(Arc<(Mutex<Pacer>, Instant)>);

impl RateLimit {
    /// A limit in bytes a second; `None`: none for now.
    pub fn new(bytes_s: Option<u64>) -> Self {
        Self(Arc::new((Mutex::new(Pacer::new(bytes_s)), Instant::now())))
    }

    /// Changes the limit, also for sessions that run.
    pub fn set(&self, bytes_s: Option<u64>) {
        self.with(|pacer, now| pacer.set(now, bytes_s));
    }

    /// The limit in bytes a second.
    pub fn bytes_s(&self) -> Option<u64> {
        self.with(|pacer, _| pacer.bytes_s())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Pacer, Duration) -> T) -> T {
        let (pacer, origin) = &*self.0;
        work(&mut lock(pacer), origin.elapsed())
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimit").field(&self.bytes_s()).finish()
    }
}

/// The limits of one session, and its wait for them.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    limits: Vec<RateLimit>,
    sleep: Option<std::pin::Pin<Box<Sleep>>>,
    /// The directions that have had to wait since they last moved bytes: sending and receiving.
    waits: [bool; 2],
    /// The direction that has moved bytes last.
    last: Option<Direction>,
}

/// A direction in which a session moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

impl Throttle {
    pub(crate) fn new(limits: Vec<RateLimit>) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds a limit.
    pub(crate) fn add(&mut self, limit: RateLimit) {
        self.limits.push(limit);
    }

    /// Ready with the most bytes that may move now in one step. `Pending` wakes the task. The directions
    /// take turns, since replies travel against the data.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>, direction: Direction) -> Poll<u64> {
        if self.limits.is_empty() {
            return Poll::Ready(u64::MAX);
        }
        loop {
            if let Some(sleep) = &mut self.sleep {
                if sleep.as_mut().poll(cx).is_pending() {
                    self.waits[direction as usize] = true;
                    return Poll::Pending;
                }
                self.sleep = None;
            }
            let asked = self.limits.iter().map(|limit| limit.with(|pacer, now| (pacer.wait(now), pacer.step_bytes())));
            let (wait, step_bytes) =
                asked.fold((Duration::ZERO, u64::MAX), |(wait, step), (w, s)| (wait.max(w), step.min(s)));
            if wait.is_zero() {
                let other = 1 - direction as usize;
                if self.last == Some(direction) && std::mem::take(&mut self.waits[other]) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.waits[direction as usize] = false;
                return Poll::Ready(step_bytes);
            }
            self.sleep = Some(Box::pin(tokio::time::sleep(wait.clamp(MIN_SLEEP, LOOK_AGAIN))));
        }
    }

    /// Counts bytes that have moved.
    pub(crate) fn count(&mut self, bytes: usize, direction: Direction) {
        self.last = Some(direction);
        for limit in &self.limits {
            limit.with(|pacer, now| pacer.count(now, bytes as u64));
        }
    }

    /// Whether the session waits for a limit.
    pub(crate) fn is_waiting(&self) -> bool {
        self.sleep.is_some()
    }

    /// Forgets the timer of a runtime that ends.
    pub(crate) fn forget_timer(&mut self) {
        self.sleep = None;
    }
}
