//! `compute`: work on each byte, as the filters of "Impact of High Performance Sockets on Data
//! Intensive Applications" do (18 ns), and copies that are slower (section 5.2.3).

use super::to_all::write_to_all;
use crate::filters::Parameters;
use crate::runtime::{CopyInfo, Failure, Filter, Io};
use multirail_proto::rng::Rng;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// How often a copy checks whether the unit of work was aborted.
const ABORT_POLL: Duration = Duration::from_millis(10);
/// Bytes that are processed between two looks at the clock: a few microseconds of work.
const STEP_BYTES: usize = 4096;

/// Computes on buffers and passes them on.
pub(super) struct Compute {
    ns_per_byte: f64,
    slow: Option<Slow>,
}

/// Which copies take longer, and when.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slow {
    /// The slow copy; `None` for all copies.
    copy: Option<usize>,
    /// How many times as long a slow copy takes.
    factor: f64,
    /// For which share of the buffers, from 0 to 1.
    #[serde(default = "always")]
    probability: f64,
    /// Seed of the choice of buffers, which is the same in every run.
    #[serde(default)]
    seed: u64,
}

fn always() -> f64 {
    1.0
}

impl Compute {
    pub(super) fn new(parameters: &Value, info: &CopyInfo) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let ns_per_byte: f64 = parameters.need("ns_per_byte")?;
        let slow: Option<Slow> = parameters.take("slow")?;
        parameters.end()?;
        if !ns_per_byte.is_finite() || ns_per_byte < 0.0 {
            return Err(format!("its parameter \"ns_per_byte\" is {ns_per_byte}, and must be 0 or more").into());
        }
        if let Some(slow) = &slow {
            if !slow.factor.is_finite() || slow.factor < 0.0 {
                return Err(format!("its parameter \"slow\" has factor = {}, it must be 0 or more", slow.factor).into());
            }
            if !(0.0..=1.0).contains(&slow.probability) {
                let given = slow.probability;
                return Err(format!("its parameter \"slow\" has probability = {given}, it must be 0 to 1").into());
            }
            if let Some(copy) = slow.copy.filter(|c| *c >= info.copies) {
                let copies = info.copies;
                return Err(format!("its parameter \"slow\" has copy = {copy}, and there are {copies}, from 0").into());
            }
        }
        let slow = slow.filter(|s| s.copy.is_none_or(|c| c == info.copy));
        Ok(Self { ns_per_byte, slow })
    }

    /// The computing time of a buffer.
    fn time(&self, tag: u64, bytes: usize) -> Duration {
        let factor = self.slow.filter(|s| s.is_chosen(tag)).map_or(1.0, |s| s.factor);
        Duration::from_nanos((bytes as f64 * self.ns_per_byte * factor) as u64)
    }
}

impl Filter for Compute {
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        while let Some(received) = io.read()? {
            if !work(self.time(received.tag, received.body.len()), &received.body, || io.is_aborted()) {
                // The next read fails with the reason.
                continue;
            }
            if io.info().outputs > 0 {
                write_to_all(io, received.tag, received.body)?;
            }
        }
        Ok(())
    }
}

impl Slow {
    /// Whether a buffer is slow. It depends on the tag and the seed only, not on the order of
    /// arrival.
    fn is_chosen(self, tag: u64) -> bool {
        Rng::new(self.seed ^ tag.rotate_left(32)).unit() < self.probability
    }
}

/// Computes on `bytes` for `time` of this thread's processor time: where filters share a processor,
/// their work takes longer on the wall clock. Returns false if the unit of work was aborted.
fn work(time: Duration, bytes: &[u8], is_aborted: impl Fn() -> bool) -> bool {
    if time.is_zero() {
        return true;
    }
    let start = thread_time();
    let mut next_poll = ABORT_POLL;
    let mut sum = 0u64;
    loop {
        for step in bytes.chunks(STEP_BYTES) {
            sum = std::hint::black_box(step.iter().fold(sum, |sum, b| sum.rotate_left(5) ^ u64::from(*b)));
            let spent = thread_time().saturating_sub(start);
            if spent >= time {
                return true;
            }
            if spent >= next_poll {
                next_poll = spent + ABORT_POLL;
                if is_aborted() {
                    return false;
                }
            }
        }
    }
}

fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid. This clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec.clamp(0, 999_999_999) as u32)
}
