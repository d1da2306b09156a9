//! A channel's receiving side: what is staged, the run that is arriving, and how fast it does.

use super::receive::protocol;
use crate::error::Result;
use crate::socket::ChannelSocket;
use multirail_proto::striping::{Direction, rate::RateEstimator};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Headers are read through a buffer of this size, and so is the payload that arrives with them; the rest of a run is read
/// straight into the sink.
const STAGING_BYTES: usize = 4 << 10;
/// In the middle of a run, a receiver sleeps until what a rail brings in this time has arrived: waking up for every packet of a
/// fast one costs more than reading it. Below the first size that is not worth a system call; above the second, reading
/// could no longer keep pace with the socket's buffer.
const WAKE_UP_US: f64 = 200.0;
const MIN_WAKE_UP_BYTES: u64 = 64 << 10;
const MAX_WAKE_UP_BYTES: u64 = 512 << 10;
/// A channel that is the only one of its session has nobody who must know soon how fast it is. Its receiver sleeps for longer, if that
/// makes a difference of at least a few packets.
const ALONE_WAKE_UP_US: f64 = 50_000.0;
const MIN_ALONE_WAKE_UP_BYTES: u64 = 4 << 10;

/// Whether it pays to spin for the next message instead of sleeping.
///
/// Being put to sleep and woken costs tens of microseconds where the peer sits on another core or is as quick as this
/// side, which is more than all the rest of a small message's way. So a receiver whose messages come that soon spins for
/// them, giving way to whoever wants the core, and sleeps like everyone else as soon as they do not.
#[derive(Debug)]
pub(crate) struct Patience {
    /// How long messages let themselves be waited for lately.
    usual_wait_us: f64,
    messages: u32,
}

impl Patience {
    /// Longest spin for one message: what waiting in vain costs.
    pub const SPIN: Duration = Duration::from_micros(50);
    /// Messages that come later than this are slept for: spinning would end in vain too often.
    const WORTH_US: f64 = 25.0;
    /// Of so many messages, one is slept for, so that the runtime's other tasks get their turn, and one is spun for in any case:
    /// who sleeps waits longer, and would never find out.
    const ROUND: u32 = 32;
    /// With more channels, asking each takes longer than being woken.
    const MAX_CHANNELS: usize = 4;

    /// Sleeps until a trial tells otherwise.
    pub fn none() -> Self {
        Self { usual_wait_us: f64::from(u16::MAX), messages: 0 }
    }

    /// The message's first bytes took `wait`.
    pub fn learn(&mut self, wait: Duration) {
        let wait_us = wait.as_secs_f64() * 1e6;
        let weight = if self.is_trial() && wait_us < Self::WORTH_US { 1.0 } else { 1.0 / 8.0 };
        self.usual_wait_us += (wait_us - self.usual_wait_us) * weight;
    }

    /// Whether to spin for the next one.
    pub fn spin(&mut self, channels: usize) -> bool {
        self.messages = (self.messages + 1) % Self::ROUND;
        let worth_it = self.is_trial() || (self.messages != 0 && self.usual_wait_us < Self::WORTH_US);
        worth_it && channels <= Self::MAX_CHANNELS
    }

    fn is_trial(&self) -> bool {
        self.messages == 1
    }
}

/// A channel's receiving side.
#[derive(Debug)]
pub(crate) struct RxChannel {
    pub(super) staging: Box<[u8; STAGING_BYTES]>,
    pub(super) staged: Range<usize>,
    pub(super) run: Option<Incoming>,
    pub(super) sequence: Option<Sequence>,
    /// Bytes of the channel's stream that are worked off. What is only staged goes with the channel, so the peer must not
    /// be told that it is here.
    pub(super) position: u64,
    pub(super) reported: u64,
    pub(super) busy_bytes: u64,
    pub(super) busy: Duration,
    pub(super) rate: RateEstimator,
    /// The socket wakes us when so much has arrived.
    pub(super) wake_up_bytes: u32,
    pub(super) last_read: Instant,
    /// The socket was empty in the middle of a run, and data has come without a break since: what is read now came just now. What
    /// had piled up before anyone read it says nothing about the path.
    pub(super) caught_up: bool,
    /// Payload bytes that arrived, for people.
    pub payload_bytes: u64,
}

/// A run whose payload is arriving. `None`: padding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Incoming {
    pub(super) message: Option<u32>,
    pub(super) offset: u64,
    pub(super) left: u64,
}

/// Two-ended: the counter that this side keeps in step with the sender's (paper, section 4.1).
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    pub(super) message: u32,
    pub(super) direction: Direction,
    pub(super) fragment_bytes: u64,
    /// The last fragment's place.
    pub(super) offset: u64,
    pub(super) total_bytes: u64,
}

impl Default for RxChannel {
    fn default() -> Self {
        Self {
            staging: Box::new([0; STAGING_BYTES]),
            staged: 0..0,
            run: None,
            sequence: None,
            position: 0,
            reported: 0,
            busy_bytes: 0,
            busy: Duration::ZERO,
            rate: RateEstimator::default(),
            wake_up_bytes: 1,
            last_read: Instant::now(),
            caught_up: false,
            payload_bytes: 0,
        }
    }
}

impl RxChannel {
    /// Has the next report name this channel, whether there is news or not.
    pub(crate) fn report_again(&mut self) {
        self.reported = u64::MAX;
    }

    /// Whether something was read that is not worked off.
    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// The connection is gone, and with it the rest of what it was carrying.
    pub(crate) fn lost(&mut self) {
        self.staged = 0..0;
        self.run = None;
        self.sequence = None;
    }

    /// Notes `count` bytes read at `now`, for the channel's rate.
    pub(super) fn observe(&mut self, count: u64, now: Instant) {
        if self.caught_up && self.in_run() {
            self.busy += now.duration_since(self.last_read);
            self.busy_bytes += count;
        }
        self.last_read = now;
    }

    /// Has the kernel wake us when there is something worth it: on a fast rail not for every packet.
    pub(super) fn set_wake_up(&mut self, socket: &ChannelSocket, alone: bool) {
        let left = self.run.map_or(0, |r| r.left);
        let bytes = wake_up_bytes(self.rate.rate_bytes_s(), left, alone);
        if bytes != self.wake_up_bytes && socket.set_wake_up(bytes).is_ok() {
            self.wake_up_bytes = bytes;
        }
    }

    pub(super) fn in_run(&self) -> bool {
        self.run.is_some_and(|r| r.left > 0)
    }
}

/// How much of a run of which `left_bytes` are to come is worth waking up for.
fn wake_up_bytes(rate_bytes_s: f64, left_bytes: u64, alone: bool) -> u32 {
    let brings = |time_us: f64| (rate_bytes_s * time_us / 1e6) as u64;
    let mut worth = match brings(WAKE_UP_US) {
        few if few < MIN_WAKE_UP_BYTES => 1,
        many => many.min(MAX_WAKE_UP_BYTES),
    };
    let patient = brings(ALONE_WAKE_UP_US).min(MIN_WAKE_UP_BYTES);
    if alone && patient >= MIN_ALONE_WAKE_UP_BYTES {
        worth = worth.max(patient);
    }
    // The run's end is all that will surely come.
    worth.min(left_bytes).max(1) as u32
}

impl Incoming {
    pub(super) fn advanced(self, count: usize) -> Self {
        Self { offset: self.offset + count as u64, left: self.left - count as u64, ..self }
    }
}

impl Sequence {
    pub(super) fn fragment(&self) -> Incoming {
        let left = self.fragment_bytes.min(self.total_bytes - self.offset);
        Incoming { message: Some(self.message), offset: self.offset, left }
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        let next = match self.direction {
            Direction::Increment => self.offset.checked_add(self.fragment_bytes).filter(|o| *o < self.total_bytes),
            Direction::Decrement => self.offset.checked_sub(self.fragment_bytes),
        };
        self.offset = next.ok_or_else(|| protocol("a fragment beyond the end of its message"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_sleeps_for_as_long_as_it_may() {
        let long = 1 << 30;
        let a_packet_a_time = 1;
        assert_eq!(wake_up_bytes(0.0, long, true), a_packet_a_time, "of a rate that nobody knows");
        // What others of the session carry depends on what this one does.
        assert_eq!(wake_up_bytes(100e6, long, false), a_packet_a_time);
        assert_eq!(wake_up_bytes(400e6, long, false), 80_000);
        assert_eq!(wake_up_bytes(1e12, long, false), 512 << 10);
        assert_eq!(wake_up_bytes(80_000.0, long, true), a_packet_a_time, "4,000 bytes are three packets");
        assert_eq!(wake_up_bytes(100_000.0, long, true), 5_000);
        assert_eq!(wake_up_bytes(100e6, long, true), 64 << 10);
        assert_eq!(wake_up_bytes(400e6, long, true), 80_000);
        assert_eq!(wake_up_bytes(400e6, 700, true), 700, "more may never come");
    }
}
