//! The rate of a connection that yields to other traffic.
//!
//! It is a delay-based control after LEDBAT (RFC 6817) and LEDBAT++
//! (draft-irtf-iccrg-ledbat-plus-plus): what the round trip has above its smallest value is the time that
//! packets wait in the queue of the slowest link. A loss-based connection fills that queue, so a longer
//! queue means that others send. The published rule:
//!
//! - The base is the smallest round trip of the last ten minutes; the queue is the round trip less the base.
//! - Below a quarter of [`TARGET`], the window grows by a quarter each round trip.
//! - From there on, it grows by a tenth of the square root of its packets each round trip. Above half of the
//!   target, it also shrinks by 0.15 of its share of the excess, which is the excess over the round trip.
//! - A loss halves it, once in a round trip.
//! - When the queue first appears, and then every five seconds or more, it stops for two round trips, so
//!   that the queue empties and the base can be measured. This is the periodic slowdown of LEDBAT++, without
//!   which a connection that starts later counts the queue of an earlier one as part of the base.
//! - It never goes below two packets a round trip.
//!
//! The square root lets two such connections approach the same share, as the constant gain of LEDBAT++
//! does, but within seconds on fast links.

use crate::session::PathInfo;
use std::time::Duration;

/// The queue stays below this. LEDBAT++ has 60 ms and RFC 6817 at most 100 ms. A switch at 100 Mbit/s has
/// a queue of 20 ms, in which larger targets would never be reached.
pub const TARGET: Duration = Duration::from_millis(20);
/// How often [`Background::observe`] should be called while there is something to send.
pub const OBSERVE_EVERY: Duration = Duration::from_millis(10);

const TARGET_US: f64 = TARGET.as_micros() as f64;
/// The payload of a packet.
const PACKET_BYTES: f64 = 1448.0;
const FLOOR_PACKETS: f64 = 2.0;
const INITIAL_PACKETS: f64 = 10.0;
/// More than any path holds.
const MAX_PACKETS: f64 = 1e7;
/// The growth of a round trip while there is no queue.
const RAMP_UP: f64 = 0.25;
/// The square root of the window counts this much for its growth.
const GAIN: f64 = 0.1;
/// The part of the excess that a round trip takes away. The result is seen a round trip later, so more
/// than 0.5 would swing.
const DECREASE: f64 = 0.15;
/// The window grows only if at least this part of it is used.
const USED: f64 = 0.5;
/// Slowdowns are this much apart, and this many times their own duration.
const SLOWDOWN_EVERY_US: f64 = 5e6;
const SLOWDOWN_EVERY_DURATIONS: f64 = 40.0;
const SLOWDOWN_RTTS: f64 = 2.0;
/// The base is the minimum of this many buckets, as in section 4.2 of RFC 6817.
const BUCKETS: usize = 10;
const BUCKET_US: f64 = 60e6;
/// Round trips are taken as no shorter and no longer than this.
const RTT_US: std::ops::RangeInclusive<f64> = 10.0..=60e6;

/// The rate of one connection. Time is that since any beginning.
#[derive(Debug)]
pub struct Background {
    /// The window in packets.
    window: f64,
    last_us: Option<f64>,
    /// The smallest round trips of the last minutes, in a ring.
    bases_us: [f64; BUCKETS],
    bucket: usize,
    bucket_until_us: f64,
    resent_segments: u64,
    /// Until then, losses belong to the one that was answered.
    loss_until_us: f64,
    slowdown: Slowdown,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Slowdown {
    /// There was no queue yet. To `Running`.
    First,
    /// From `First` and `Waiting`; to `Waiting`.
    Running { until_us: f64, every_us: f64 },
    /// From `Running`; to `Running`.
    Waiting { until_us: f64 },
}

impl Default for Background {
    fn default() -> Self {
        Self {
            window: INITIAL_PACKETS,
            last_us: None,
            bases_us: [f64::INFINITY; BUCKETS],
            bucket: 0,
            bucket_until_us: 0.0,
            resent_segments: 0,
            loss_until_us: 0.0,
            slowdown: Slowdown::First,
        }
    }
}

impl Background {
    /// Takes what the kernel knows of the path, and returns the rate in bytes a second.
    pub fn observe(&mut self, now: Duration, path: &PathInfo) -> u64 {
        let now_us = now.as_secs_f64() * 1e6;
        let rtt_us = f64::from(path.rtt_us).clamp(*RTT_US.start(), *RTT_US.end());
        let base_us = self.base(now_us, rtt_us, path.min_rtt_us);
        let queue_us = (rtt_us - base_us).max(0.0);
        let first = self.last_us.is_none();
        let elapsed_us = (now_us - self.last_us.unwrap_or(now_us)).clamp(0.0, rtt_us);
        self.last_us = Some(self.last_us.map_or(now_us, |last| last.max(now_us)));
        let lost = path.resent_segments > self.resent_segments && !first;
        self.resent_segments = path.resent_segments;

        match self.slowdown {
            Slowdown::Running { until_us, .. } if now_us < until_us => {
                return bytes_s(FLOOR_PACKETS, rtt_us);
            }
            Slowdown::Running { every_us, .. } => {
                self.slowdown = Slowdown::Waiting { until_us: now_us + every_us };
            }
            Slowdown::First if queue_us >= TARGET_US / 4.0 => self.slow_down(now_us, base_us, queue_us),
            Slowdown::Waiting { until_us } if now_us >= until_us => self.slow_down(now_us, base_us, queue_us),
            Slowdown::First | Slowdown::Waiting { .. } => {}
        }
        if !lost {
            self.follow(elapsed_us / rtt_us, queue_us, rtt_us, path.delivery_bytes_s * rtt_us / 1e6 / PACKET_BYTES);
        } else if now_us >= self.loss_until_us {
            self.window /= 2.0;
            self.loss_until_us = now_us + rtt_us;
        }
        self.window = self.window.clamp(FLOOR_PACKETS, MAX_PACKETS);
        bytes_s(self.window, rtt_us)
    }

    /// Changes the window for a part of a round trip, in which `used` packets were in flight.
    fn follow(&mut self, round_trips: f64, queue_us: f64, rtt_us: f64, used: f64) {
        let half_us = TARGET_US / 2.0;
        let gain = match () {
            () if used < USED * self.window => 0.0,
            () if queue_us < half_us / 2.0 => RAMP_UP * self.window,
            () => GAIN * self.window.sqrt(),
        };
        let decrease = DECREASE * self.window * (queue_us - half_us).max(0.0) / rtt_us;
        self.window += round_trips * (gain - decrease);
    }

    /// Begins a slowdown, after which the window is that of an empty queue.
    fn slow_down(&mut self, now_us: f64, base_us: f64, queue_us: f64) {
        let duration_us = SLOWDOWN_RTTS * base_us + queue_us.min(TARGET_US);
        let every_us = SLOWDOWN_EVERY_US.max(SLOWDOWN_EVERY_DURATIONS * duration_us);
        self.slowdown = Slowdown::Running { until_us: now_us + duration_us, every_us };
        self.window *= base_us / (base_us + queue_us.min(base_us));
    }

    /// The smallest round trip of the last minutes. The kernel's minimum, if it has one, is of single
    /// packets and of its last five minutes.
    fn base(&mut self, now_us: f64, rtt_us: f64, min_rtt_us: u32) -> f64 {
        if now_us >= self.bucket_until_us {
            self.bucket = (self.bucket + 1) % BUCKETS;
            self.bases_us[self.bucket] = f64::INFINITY;
            self.bucket_until_us = now_us + BUCKET_US;
        }
        let seen_us = if min_rtt_us == 0 { rtt_us } else { rtt_us.min(min_rtt_us.into()).max(*RTT_US.start()) };
        let bucket_us = &mut self.bases_us[self.bucket];
        *bucket_us = bucket_us.min(seen_us);
        self.bases_us.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

fn bytes_s(packets: f64, rtt_us: f64) -> u64 {
    (packets * PACKET_BYTES * 1e6 / rtt_us) as u64
}
