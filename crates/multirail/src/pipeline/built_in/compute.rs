//! `compute`: real work on each byte, as the paper's filters have it (18 ns), and copies that are slower (section 5.2.3).

use super::super::filter::{Failure, Filter, Place};
use super::super::io::Io;
use super::parameters::Parameters;
use super::write_to_all;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// How often it looks whether the unit of work was given up.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Bytes that are worked on between two looks at the clock; some microseconds.
const STEP_BYTES: usize = 4096;

/// Works on buffers and passes them on.
pub struct Compute {
    ns_per_byte: f64,
    slow: Option<Slow>,
}

/// A copy that takes longer.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slow {
    /// Which; none: all of them.
    copy: Option<usize>,
    /// So many times as long.
    factor: f64,
    /// For which share of the buffers.
    #[serde(default = "always")]
    probability: f64,
    /// Of the choice, which is the same in every run.
    #[serde(default)]
    seed: u64,
}

fn always() -> f64 {
    1.0
}

impl Compute {
    pub fn new(parameters: &Value, place: &Place) -> Result<Self, Failure> {
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
            if let Some(copy) = slow.copy.filter(|c| *c >= place.copies) {
                let copies = place.copies;
                return Err(format!("its parameter \"slow\" has copy = {copy}, and there are {copies}, from 0").into());
            }
        }
        let slow = slow.filter(|s| s.copy.is_none_or(|c| c == place.copy));
        Ok(Self { ns_per_byte, slow })
    }

    /// How long a buffer takes.
    fn time(&self, tag: u64, bytes: usize) -> Duration {
        let factor = self.slow.filter(|s| s.is_chosen(tag)).map_or(1.0, |s| s.factor);
        Duration::from_nanos((bytes as f64 * self.ns_per_byte * factor) as u64)
    }
}

impl Filter for Compute {
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        while let Some(received) = io.read()? {
            if !work(self.time(received.tag, received.body.len()), &received.body, || io.is_given_up()) {
                // The next call says so.
                continue;
            }
            if io.place().outputs > 0 {
                write_to_all(io, received.tag, received.body)?;
            }
        }
        Ok(())
    }
}

impl Slow {
    /// Depends on the buffer and the seed, and not on who came first.
    fn is_chosen(self, tag: u64) -> bool {
        // SplitMix64.
        let mut z = (self.seed ^ tag.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        part < self.probability
    }
}

/// Keeps the processor busy for so long: this thread's time on it, not the clock on the wall, for where filters share a processor
/// their work takes longer. False: it was given up.
fn work(time: Duration, bytes: &[u8], given_up: impl Fn() -> bool) -> bool {
    if time.is_zero() {
        return true;
    }
    let start = thread_time();
    let mut look = LOOK_EVERY;
    let mut sum = 0u64;
    loop {
        for step in bytes.chunks(STEP_BYTES) {
            sum = std::hint::black_box(step.iter().fold(sum, |sum, b| sum.rotate_left(5) ^ u64::from(*b)));
            let spent = thread_time().saturating_sub(start);
            if spent >= time {
                return true;
            }
            if spent >= look {
                look = spent + LOOK_EVERY;
                if given_up() {
                    return false;
                }
            }
        }
    }
}

fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec.clamp(0, 999_999_999) as u32)
}
