//! A unit of work in which nothing moves, and whose fault it is.

use multirail::pipeline::{CopyStatus, Counts};
use std::time::{Duration, Instant};

/// Copies named.
const MAX_NAMED: usize = 8;

/// Watches for buffers that move.
pub struct Stall {
    longest: Option<Duration>,
    /// When a buffer last moved, and what the copies had done then.
    since: Instant,
    then: Vec<CopyStatus>,
}

impl Stall {
    /// 0: for ever.
    pub fn new(longest_s: f64, now: Vec<CopyStatus>) -> Self {
        let longest = Duration::try_from_secs_f64(longest_s).ok().filter(|l| !l.is_zero());
        Self { longest, since: Instant::now(), then: now }
    }

    /// Why to give up, if nothing has moved for too long.
    pub fn look(&mut self, now: &[CopyStatus]) -> Option<String> {
        let moved = |all: &[CopyStatus]| all.iter().map(|c| c.counts.buffers_in + c.counts.buffers_out).sum::<u64>();
        if moved(now) != moved(&self.then) {
            self.since = Instant::now();
            self.then = now.to_vec();
        }
        let longest = self.longest?;
        let still = self.since.elapsed();
        if still < longest {
            return None;
        }
        let seconds = longest.as_secs_f64();
        Some(format!("no buffer has moved for {seconds} s (--stall): {}", self.who(now, still)))
    }

    /// Those that were at work all the time, or else those that waited.
    fn who(&self, now: &[CopyStatus], still: Duration) -> String {
        let most = (still.as_nanos() / 2) as u64;
        let long = |of: fn(&Counts) -> u64| {
            let then = |c: &CopyStatus| self.then.iter().find(|t| (&t.filter, t.copy) == (&c.filter, c.copy));
            let spent = move |c: &CopyStatus| of(&c.counts).saturating_sub(then(c).map_or(0, |t| of(&t.counts)));
            names(now.iter().filter(|c| spent(c) >= most))
        };
        if let Some(names) = long(|c| c.busy_ns) {
            return format!("the filter's own code does not go on in {names}");
        }
        match (long(|c| c.waited_out_ns), long(|c| c.waited_in_ns)) {
            (Some(names), _) => format!("nobody works, and nobody takes what these have written: {names}"),
            (None, Some(names)) => format!("nobody works; these wait for input: {names}"),
            (None, None) => "nothing is known of any copy".to_owned(),
        }
    }
}

fn names<'a>(copies: impl Iterator<Item = &'a CopyStatus>) -> Option<String> {
    let mut names: Vec<String> =
        copies.map(|c| format!("copy {} of filter {:?} on host {}", c.copy, c.filter, c.host)).collect();
    let count = names.len();
    if count > MAX_NAMED {
        names.truncate(MAX_NAMED);
        names.push(format!("{} more", count - MAX_NAMED));
    }
    (count > 0).then(|| names.join(", "))
}
