//! The message about a unit of work in which no buffer moves.

use multirail::pipeline::CopyStatus;
use multirail_proto::pipeline::stall::{CopyActivity, StallCause, StallDetector};
use std::time::{Duration, Instant};

/// The most copies that an error names.
const MAX_NAMED: usize = 8;

/// The name of a filter, and the number of its copy.
type CopyId = (String, usize);

/// Watches the buffers of a unit of work.
pub struct Stall {
    longest: Duration,
    began: Instant,
    detector: StallDetector<CopyId>,
}

impl Stall {
    /// Creates a detector. With zero seconds it never reports a stall.
    pub fn new(longest_s: f64, now: &[CopyStatus]) -> Self {
        let longest = Duration::try_from_secs_f64(longest_s).unwrap_or_default();
        let longest_us = (!longest.is_zero()).then(|| micros(longest));
        Self { longest, began: Instant::now(), detector: StallDetector::new(longest_us, 0, activities(now)) }
    }

    /// Returns the reason to give up if no buffer has moved for too long.
    pub fn look(&mut self, now: &[CopyStatus]) -> Option<String> {
        let stall = self.detector.check(micros(self.began.elapsed()), &activities(now))?;
        let names = names(now.iter().filter(|c| stall.copies.iter().any(|id| (&id.0, id.1) == (&c.filter, c.copy))));
        let cause = match stall.cause {
            StallCause::Busy => format!("the filter's own code does not return in {names}"),
            StallCause::WaitsForOutput => format!("no copy is busy, and the output of these is not read: {names}"),
            StallCause::WaitsForInput => format!("no copy is busy; these wait for input: {names}"),
            StallCause::Unknown => "no copy has reported".to_owned(),
        };
        Some(format!("no buffer has moved for {} s (--stall): {cause}", self.longest.as_secs_f64()))
    }
}

fn activities(copies: &[CopyStatus]) -> Vec<CopyActivity<CopyId>> {
    let activity = |c: &CopyStatus| CopyActivity {
        copy: (c.filter.clone(), c.copy),
        buffers: c.counts.buffers_in + c.counts.buffers_out,
        busy_ns: c.counts.busy_ns,
        waited_in_ns: c.counts.waited_in_ns,
        waited_out_ns: c.counts.waited_out_ns,
    };
    copies.iter().map(activity).collect()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn names<'a>(copies: impl Iterator<Item = &'a CopyStatus>) -> String {
    let mut names: Vec<String> =
        copies.map(|c| format!("copy {} of filter {:?} on host {}", c.copy, c.filter, c.host)).collect();
    let count = names.len();
    if count > MAX_NAMED {
        names.truncate(MAX_NAMED);
        names.push(format!("{} more", count - MAX_NAMED));
    }
    names.join(", ")
}
