//! Time as the machine sees it: an argument, never a clock.

use std::ops::Add;
use std::time::Duration;

/// A moment, given as the time since a fixed point that the driver chooses once per session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(Duration);

impl Time {
    /// The driver's fixed point.
    pub const ZERO: Time = Time(Duration::ZERO);

    /// The moment `since_zero` after the fixed point.
    pub const fn after(since_zero: Duration) -> Self {
        Self(since_zero)
    }

    /// The time from the fixed point to this moment.
    pub const fn since_zero(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment, or zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Microseconds from the fixed point to this moment.
    pub(crate) fn as_us(self) -> u64 {
        self.0.as_micros() as u64
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(duration))
    }
}
