//! The receiving side of one channel: staged bytes, the run that is arriving, and its rate.

use super::failure::Violation;
use super::time::Time;
use crate::striping::{Direction, rate::RateEstimator};
use crate::wire::ChannelReport;
use std::ops::Range;
use std::time::Duration;

/// Headers are read through a buffer of this size, and so is payload that arrives with them. The
/// rest of a run is read straight into the receiver's memory.
const STAGING_BYTES: usize = 4 << 10;
/// In the middle of a run, a receiver sleeps until what a rail carries in this time has arrived:
/// waking up for every packet of a fast rail costs more than reading it.
const WAKE_UP_US: f64 = 200.0;
/// Waking up for less than this is not worth a system call to ask for it.
const MIN_WAKE_UP_BYTES: u64 = 64 << 10;
/// A receiver that batches its reads sleeps for this time on slower rails.
const BATCH_US: f64 = 1_000.0;
/// With more than this, reading could not keep pace with the socket's buffer.
const MAX_WAKE_UP_BYTES: u64 = 512 << 10;
/// The receiver of a session's only channel sleeps for longer, since no strategy needs its rate
/// soon ...
const ALONE_WAKE_UP_US: f64 = 50_000.0;
/// ... if that makes a difference of at least a few packets.
const MIN_ALONE_WAKE_UP_BYTES: u64 = 4 << 10;

/// The receiving side of a channel.
#[derive(Debug)]
pub(super) struct RxChannel {
    staging: Box<[u8; STAGING_BYTES]>,
    staged: Range<usize>,
    pub(super) run: Option<Incoming>,
    pub(super) sequence: Option<Sequence>,
    /// Bytes of the channel's stream that were processed. Bytes that are only staged are lost with
    /// the channel, so the peer must not be told that they have arrived.
    position: u64,
    /// The position that was last reported; `u64::MAX` if the next report must name the channel.
    reported: u64,
    /// Bytes that arrived in the middle of a run since the last report ...
    busy_bytes: u64,
    /// ... and the time they took.
    busy: Duration,
    rate: RateEstimator,
    last_read: Time,
    /// The socket was empty in the middle of a run, and data has come without a break since. What
    /// is read now has just come. Bytes that had piled up before a read say nothing about the path.
    caught_up: bool,
    /// Payload bytes that have arrived, for statistics.
    pub(super) payload_bytes: u64,
}

/// A run whose payload is arriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Incoming {
    /// The message to which it belongs; `None` for padding.
    pub(super) message: Option<u32>,
    /// Where the next byte belongs in the message.
    pub(super) offset: u64,
    /// Bytes still to come.
    pub(super) left: u64,
}

/// The counter of `two-ended` that a receiver keeps in step with the sender's (Enhanced
/// MuniSocket, section 4.1).
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    pub(super) message: u32,
    pub(super) direction: Direction,
    pub(super) fragment_bytes: u64,
    /// Where the last fragment begins.
    pub(super) offset: u64,
    pub(super) total_bytes: u64,
}

impl RxChannel {
    pub(super) fn new(now: Time) -> Self {
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
            last_read: now,
            caught_up: false,
            payload_bytes: 0,
        }
    }

    /// Bytes of the channel's stream that were processed.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Makes the next report name this channel even if there is no news.
    pub(super) fn report_again(&mut self) {
        self.reported = u64::MAX;
    }

    /// Whether bytes were read that are not processed.
    pub(super) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// The bytes that were read and are not processed.
    pub(super) fn staged(&self) -> &[u8] {
        &self.staging[self.staged.clone()]
    }

    /// Room for further bytes. What is staged is at most a part of a header at this point, and
    /// moves to the front.
    pub(super) fn staging_room(&mut self) -> &mut [u8] {
        self.staging.copy_within(self.staged.clone(), 0);
        self.staged = 0..self.staged.len();
        &mut self.staging[self.staged.end..]
    }

    /// Notes `bytes` that were read into the staging room.
    pub(super) fn stage(&mut self, bytes: usize) {
        self.staged.end = (self.staged.end + bytes).min(STAGING_BYTES);
    }

    /// Notes that `bytes` of the staged ones are processed.
    pub(super) fn consume_staged(&mut self, bytes: usize) {
        self.staged.start += bytes;
        self.position += bytes as u64;
    }

    /// Notes that `bytes` were read past the staging buffer.
    pub(super) fn consume_direct(&mut self, bytes: usize) {
        self.position += bytes as u64;
    }

    /// Notes that `bytes` of the current run were processed.
    pub(super) fn advance_run(&mut self, bytes: usize) {
        if let Some(run) = &mut self.run {
            self.payload_bytes += if run.message.is_some() { bytes as u64 } else { 0 };
            run.offset += bytes as u64;
            run.left -= bytes as u64;
        }
    }

    /// The connection is lost with all unread bytes.
    pub(super) fn lose(&mut self) {
        self.staged = 0..0;
        self.run = None;
        self.sequence = None;
    }

    /// Notes for the channel's rate that `bytes` were read at `now`.
    pub(super) fn observe(&mut self, bytes: u64, now: Time) {
        if self.caught_up && self.in_run() {
            self.busy += now.since(self.last_read);
            self.busy_bytes += bytes;
        }
        self.last_read = now;
    }

    /// The socket is empty.
    pub(super) fn set_empty(&mut self) {
        self.caught_up = self.in_run();
    }

    /// How much must have arrived before the socket should become readable.
    pub(super) fn next_wake_up(&self, alone: bool, batches: bool) -> u32 {
        let left = self.run.map_or(0, |run| run.left);
        wake_up_bytes(self.rate.rate_bytes_s(), left, alone, batches)
    }

    /// The row of the next report for this channel, which has this id; `None` if there is no news.
    pub(super) fn take_report(&mut self, channel: u32, now: Time) -> Option<ChannelReport> {
        self.observe(0, now);
        // A channel whose position has not changed in the middle of a run is news, too.
        if self.reported == self.position && self.busy.is_zero() {
            return None;
        }
        let busy_us = std::mem::take(&mut self.busy).as_micros() as u64;
        let busy_bytes = std::mem::take(&mut self.busy_bytes);
        self.rate.report(busy_bytes, busy_us);
        self.reported = self.position;
        Some(ChannelReport { channel, position: self.position, busy_bytes, busy_us })
    }

    pub(super) fn in_run(&self) -> bool {
        self.run.is_some_and(|run| run.left > 0)
    }
}

/// How many bytes are worth waking up for, in a run with `left_bytes` to come.
fn wake_up_bytes(rate_bytes_s: f64, left_bytes: u64, alone: bool, batches: bool) -> u32 {
    let brings = |time_us: f64| (rate_bytes_s * time_us / 1e6) as u64;
    let mut worth = match brings(WAKE_UP_US) {
        few if few < MIN_WAKE_UP_BYTES => 1,
        many => many.min(MAX_WAKE_UP_BYTES),
    };
    if batches && worth == 1 {
        let several = brings(BATCH_US).min(MIN_WAKE_UP_BYTES);
        // The rate varies a little, and each new limit is a system call.
        worth = several.checked_ilog2().map_or(1, |power| 1 << power);
    }
    let longer = brings(ALONE_WAKE_UP_US).min(MIN_WAKE_UP_BYTES);
    if alone && longer >= MIN_ALONE_WAKE_UP_BYTES {
        worth = worth.max(longer);
    }
    // Only the rest of the run is certain to come.
    worth.min(left_bytes).max(1) as u32
}

impl Sequence {
    /// The fragment at the current offset.
    pub(super) fn fragment(&self) -> Incoming {
        let left = self.fragment_bytes.min(self.total_bytes - self.offset);
        Incoming { message: Some(self.message), offset: self.offset, left }
    }

    /// Moves on to the next fragment.
    pub(super) fn advance(&mut self) -> Result<(), Violation> {
        let next = match self.direction {
            Direction::Increment => self.offset.checked_add(self.fragment_bytes).filter(|o| *o < self.total_bytes),
            Direction::Decrement => self.offset.checked_sub(self.fragment_bytes),
        };
        self.offset = next.ok_or(Violation::FragmentOutside)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_sleeps_for_as_long_as_it_may() {
        let long = 1 << 30;
        let every_packet = 1;
        assert_eq!(wake_up_bytes(0.0, long, true, false), every_packet, "the rate is unknown");
        // The session's other channels depend on what this one does.
        assert_eq!(wake_up_bytes(100e6, long, false, false), every_packet);
        assert_eq!(wake_up_bytes(400e6, long, false, false), 80_000);
        assert_eq!(wake_up_bytes(1e12, long, false, false), 512 << 10);
        assert_eq!(wake_up_bytes(80_000.0, long, true, false), every_packet, "4,000 bytes are three packets");
        assert_eq!(wake_up_bytes(100_000.0, long, true, false), 5_000);
        assert_eq!(wake_up_bytes(100e6, long, true, false), 64 << 10);
        assert_eq!(wake_up_bytes(400e6, long, true, false), 80_000);
        assert_eq!(wake_up_bytes(400e6, 700, true, false), 700, "nothing more may come");
    }

    #[test]
    fn a_receiver_may_batch_the_reads_of_slow_rails() {
        let long = 1 << 30;
        assert_eq!(wake_up_bytes(0.0, long, false, true), 1, "the rate is unknown");
        assert_eq!(wake_up_bytes(12e6, long, false, true), 8 << 10);
        assert_eq!(wake_up_bytes(12e6, 5_000, false, true), 5_000, "nothing more may come");
        assert_eq!(wake_up_bytes(300e6, long, false, true), 64 << 10);
        assert_eq!(wake_up_bytes(400e6, long, false, true), wake_up_bytes(400e6, long, false, false));
    }

    #[test]
    fn only_bytes_that_arrive_while_the_reader_waits_count_for_the_rate() {
        let mut rx = RxChannel::new(Time::ZERO);
        let at = |ms| Time::after(Duration::from_millis(ms));
        rx.run = Some(Incoming { message: Some(0), offset: 0, left: 1 << 20 });
        rx.observe(5000, at(10));
        assert_eq!(rx.take_report(3, at(10)), None, "it may have piled up for 10 ms");
        rx.set_empty();
        rx.observe(2000, at(12));
        let row = rx.take_report(3, at(13)).expect("news");
        assert_eq!((row.channel, row.busy_bytes, row.busy_us), (3, 2000, 3000), "and 1 ms without bytes");
        assert!(rx.take_report(3, at(14)).is_some(), "the run has not gone on");
    }
}
