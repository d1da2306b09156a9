//! Limits the lines of the log about events that any host can cause, so that a flood of them does
//! not fill a disk.

use crate::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many events have a line of their own in each [`WINDOW`].
const LINES: u32 = 10;
/// How long it takes until events have lines of their own again.
const WINDOW: Duration = Duration::from_secs(60);
/// The time between two lines with the number of further events.
const SUMMARY_PERIOD: Duration = Duration::from_secs(1);

/// Events of one kind.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Arc<Mutex<Counter>>);

/// Decides what is logged.
#[derive(Debug, Default)]
struct Counter {
    /// When the window began.
    since: Option<Instant>,
    /// Events of the window that had a line of their own.
    lines: u32,
    /// Events since the last summary.
    counted: u64,
}

/// What happens to an event.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It has a line of its own.
    Line,
    /// It is the first one of a summary, which is due after [`SUMMARY_PERIOD`].
    Summary,
    /// A summary that is due later counts it.
    Counted,
}

impl LogLimit {
    /// Logs an event by `log(1)`, or counts it. Counted events are logged together by `log(count)`,
    /// of the first one of them, at most once a second.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn log(&self, log: impl FnOnce(u64) + Send + 'static) {
        let fate = lock(&self.0).on_event(Instant::now());
        match fate {
            Fate::Line => log(1),
            Fate::Counted => {}
            Fate::Summary => {
                let counter = self.0.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(SUMMARY_PERIOD).await;
                    let count = lock(&counter).take();
                    log(count);
                });
            }
        }
    }
}

impl Counter {
    fn on_event(&mut self, now: Instant) -> Fate {
        if self.counted > 0 {
            self.counted += 1;
            return Fate::Counted;
        }
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines < LINES {
            self.lines += 1;
            return Fate::Line;
        }
        self.counted = 1;
        Fate::Summary
    }

    /// The number of events since the last summary.
    fn take(&mut self) -> u64 {
        std::mem::take(&mut self.counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(counter: &mut Counter, now: Instant, count: usize) -> Vec<Fate> {
        (0..count).map(|_| counter.on_event(now)).collect()
    }

    #[test]
    fn ten_lines_a_minute_and_then_summaries() {
        let (mut counter, start) = (Counter::default(), Instant::now());
        assert!(fates(&mut counter, start, 10).iter().all(|fate| *fate == Fate::Line));
        assert_eq!(fates(&mut counter, start, 3), [Fate::Summary, Fate::Counted, Fate::Counted]);
        assert_eq!(counter.take(), 3);
        let just_before = start + WINDOW - Duration::from_nanos(1);
        assert_eq!(fates(&mut counter, just_before, 2), [Fate::Summary, Fate::Counted]);
        // A summary that is due counts everything, also in the next window.
        assert_eq!(counter.on_event(start + WINDOW), Fate::Counted);
        assert_eq!(counter.take(), 3);
        assert!(fates(&mut counter, start + WINDOW, 10).iter().all(|fate| *fate == Fate::Line));
        assert_eq!(counter.on_event(start + WINDOW), Fate::Summary);
    }

    #[test]
    fn every_event_is_in_one_line() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let logged = Arc::new(Mutex::new(Vec::new()));
        runtime.block_on(async {
            let limit = LogLimit::default();
            for event in 0..1000 {
                let logged = logged.clone();
                limit.log(move |count| lock(&logged).push((event, count)));
            }
            while lock(&logged).iter().map(|(_, count)| count).sum::<u64>() < 1000 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let mut expected: Vec<(u64, u64)> = (0..10).map(|event| (event, 1)).collect();
        expected.push((10, 990));
        assert_eq!(*lock(&logged), expected);
    }
}
