//! When the receiver reports.

use super::limits::WINDOW_BYTES;
use super::time::Time;
use std::time::Duration;

/// While the application receives, a report is due this long after the last one ...
const REPORT_EVERY: Duration = Duration::from_millis(10);
/// ... if this much has arrived. On a slow path, a report every 10 ms would be about a few packets.
const REPORT_WORTH_BYTES: u64 = 32 << 10;
/// While the application receives, a report is due this long after the last one in any case.
const REPORT_LATEST: Duration = Duration::from_millis(50);
/// A report is due for this much ...
const REPORT_BYTES: u64 = 128 << 10;
/// ... if the last one is at least this old.
const REPORT_GAP: Duration = Duration::from_millis(1);
/// A report is due for this much in any case: the sender may be waiting for room in its window.
const REPORT_AT_ONCE_BYTES: u64 = WINDOW_BYTES / 4;
/// A report is due for this many messages, however short they are: the sender keeps each of them
/// until then, and few of them stay in its processor's cache.
const REPORT_MESSAGES: u32 = 64;

/// What has arrived since the last report.
#[derive(Debug)]
pub(super) struct ReportSchedule {
    last_at: Time,
    unreported_bytes: u64,
    unreported_messages: u32,
    /// A report should go out as soon as possible.
    pub(super) requested: bool,
}

impl ReportSchedule {
    pub(super) fn new(now: Time) -> Self {
        Self { last_at: now, unreported_bytes: 0, unreported_messages: 0, requested: false }
    }

    pub(super) fn note_bytes(&mut self, bytes: u64) {
        self.unreported_bytes += bytes;
    }

    pub(super) fn message_finished(&mut self) {
        self.unreported_messages += 1;
    }

    /// Whether anything has arrived since the last report.
    pub(super) fn has_news(&self) -> bool {
        self.unreported_bytes > 0 || self.unreported_messages > 0
    }

    /// Whether a report is due. `in_message`: some of the message that is due has arrived.
    pub(super) fn is_due(&self, in_message: bool, now: Time) -> bool {
        if !self.has_news() {
            return false;
        }
        let (bytes, age) = (self.unreported_bytes, now.since(self.last_at));
        let many = self.unreported_messages >= REPORT_MESSAGES;
        let much = bytes >= REPORT_BYTES && age >= REPORT_GAP;
        let late = age >= REPORT_EVERY && bytes >= REPORT_WORTH_BYTES || age >= REPORT_LATEST;
        bytes >= REPORT_AT_ONCE_BYTES || much || many || (late && in_message)
    }

    /// A report is on its way.
    pub(super) fn reported(&mut self, now: Time) {
        *self = Self::new(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_due_at_their_limits_and_not_before() {
        let due = |bytes: u64, messages: u32, age_us: u64, in_message: bool| {
            let mut schedule = ReportSchedule::new(Time::ZERO);
            schedule.note_bytes(bytes);
            (0..messages).for_each(|_| schedule.message_finished());
            schedule.is_due(in_message, Time::after(Duration::from_micros(age_us)))
        };
        assert!(!due(0, 0, 1_000_000, true), "no news");
        assert!(due(1 << 20, 0, 0, false) && !due((1 << 20) - 1, 0, 999, false));
        assert!(due(128 << 10, 0, 1_000, false) && !due((128 << 10) - 1, 0, 9_999, true));
        assert!(due(32 << 10, 0, 10_000, true) && !due((32 << 10) - 1, 0, 49_999, true));
        assert!(due(1, 0, 50_000, true) && !due(1, 0, 50_000, false));
        assert!(due(0, 64, 0, false) && !due(0, 63, 0, false));
    }
}
