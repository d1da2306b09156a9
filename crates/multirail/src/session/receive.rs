//! The receiving half: reads channels straight into the caller's sink, keeps a ledger, and reports what arrived and how fast.

use super::rx_channel::{Incoming, Patience, Sequence};
use super::state::{Failure, State};
use super::transmit::{MAX_HELD_MESSAGES, PROBE_BYTES, WINDOW_BYTES, serial_less, serial_near};
use crate::error::{Error, Result};
use crate::payload::Sink;
use multirail_proto::ledger::Ledger;
use multirail_proto::wire::{ChannelReport, Control, Frame, Report};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Reads of one channel before the others get their turn.
const READS_A_TURN: usize = 16;
/// A report goes out this long after something arrived, while the application receives, ...
const REPORT_EVERY: Duration = Duration::from_millis(10);
/// ... if it is this much; after this long in any case. On a slow path, a report every 10 ms would be of a few packets each.
const REPORT_WORTH_BYTES: u64 = 32 << 10;
const REPORT_LATEST: Duration = Duration::from_millis(50);
/// A report goes out for this much, but not more often than [`REPORT_GAP`] ...
const REPORT_BYTES: u64 = 128 << 10;
const REPORT_GAP: Duration = Duration::from_millis(1);
/// ... unless it is this much: the sender may be waiting for room in its window.
const REPORT_AT_ONCE_BYTES: u64 = WINDOW_BYTES / 4;
/// What is kept of messages that overtook an earlier one. The sender keeps to its window; twice that is for what it sends again.
const MAX_EARLY_BYTES: u64 = 2 * WINDOW_BYTES;
/// What a kept piece of such a message costs beside its bytes.
const EARLY_PIECE_BYTES: u64 = 64;
/// Pieces of a message between which something is still missing: each costs some forty bytes. A sender's are no more than it has
/// fragments under way, a few thousand.
const MAX_PIECES: usize = 128 << 10;
/// A report goes out for this many messages, however small: the sender keeps each until then, and few stay in its cache.
const REPORT_MESSAGES: u32 = 64;

/// What a session is receiving.
#[derive(Debug)]
pub(crate) struct Rx {
    /// The message that the application gets next.
    pub next_message: u32,
    total_bytes: Option<u64>,
    /// The sink was told the length.
    begun: bool,
    /// The sender waits for the confirmation.
    confirm: bool,
    ledger: Ledger,
    early: BTreeMap<u32, Early>,
    early_bytes: u64,
    pub report_due: bool,
    last_report: Instant,
    unreported_bytes: u64,
    unreported_messages: u32,
    /// Payload bytes that came more than once.
    pub duplicate_bytes: u64,
    pub patience: Patience,
}

/// What has arrived of a later message.
#[derive(Debug, Default)]
struct Early {
    total_bytes: Option<u64>,
    confirm: bool,
    chunks: Vec<(u64, Vec<u8>)>,
}

/// Refuses every message, which leaves it where it is.
struct NoSink;

impl Sink for NoSink {
    fn begin(&mut self, message_bytes: u64) -> Result<()> {
        Err(Error::MessageTooLarge { message_bytes, buffer_bytes: 0 })
    }
    fn space(&mut self, _: usize, _: u64, _: usize) -> &mut [u8] {
        &mut []
    }
    fn filled(&mut self, _: usize, _: u64, _: usize) {}
}

enum Read {
    /// The message is complete.
    Complete,
    /// Nothing more now.
    Blocked,
    /// Its turn is over, there may be more.
    Yield,
}

impl Default for Rx {
    fn default() -> Self {
        Self {
            next_message: 0,
            total_bytes: None,
            begun: false,
            confirm: false,
            ledger: Ledger::default(),
            early: BTreeMap::new(),
            early_bytes: 0,
            report_due: false,
            last_report: Instant::now(),
            unreported_bytes: 0,
            unreported_messages: 0,
            duplicate_bytes: 0,
            patience: Patience::none(),
        }
    }
}

impl State {
    /// Goes on receiving the next message; ready with its length when it is complete. `spinning`: ask the sockets, not the
    /// runtime.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut dyn Sink,
        spinning: bool,
    ) -> Poll<Result<u64>> {
        self.check()?;
        self.take_early(sink)?;
        let mut again = false;
        for index in 0..self.channels.len() {
            match self.read_channel(index, cx, sink, spinning) {
                Ok(Read::Complete) => return Poll::Ready(Ok(self.finish_message(cx))),
                Ok(Read::Blocked) => {}
                Ok(Read::Yield) => again = true,
                Err(Error::Protocol(what)) => {
                    self.fail(Failure::Protocol(what.clone()));
                    return Poll::Ready(Err(Error::Protocol(what)));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if self.is_complete() {
            return Poll::Ready(Ok(self.finish_message(cx)));
        }
        self.report_if_due(cx);
        if self.peer_closed_at == Some(self.rx.next_message) {
            return Poll::Ready(Err(Error::Closed));
        }
        if self.peer_gone {
            return Poll::Ready(Err(Failure::gone().error()));
        }
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Takes what comes before the first message: the peer's probes. Whether all channels have had theirs.
    pub(crate) fn poll_probes(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        for index in 0..self.channels.len() {
            match self.read_channel(index, cx, &mut NoSink, false) {
                Ok(_) | Err(Error::MessageTooLarge { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.report_if_due(cx);
        let probed = self.channels.iter().all(|c| c.socket.is_none() || c.rx.position >= u64::from(PROBE_BYTES));
        Ok(probed || self.channels.len() == 1)
    }

    /// Whether the receiver should spin for the next message.
    pub(crate) fn may_spin(&mut self) -> bool {
        !self.transmit_due() && self.rx.patience.spin(self.channels.len())
    }

    /// Whether bytes of the next message have been consumed, so that it cannot be received anew.
    pub(crate) fn receive_begun(&self) -> bool {
        self.rx.begun
    }

    fn is_complete(&self) -> bool {
        self.rx.begun && self.rx.total_bytes == Some(self.rx.ledger.bytes())
    }

    fn finish_message(&mut self, cx: &mut Context<'_>) -> u64 {
        let total = self.rx.ledger.bytes();
        self.rx.next_message = self.rx.next_message.wrapping_add(1);
        self.rx.unreported_messages += 1;
        self.rx.total_bytes = None;
        self.rx.begun = false;
        self.rx.ledger = Ledger::default();
        // The last one before the peer's Close: it waits for that. One report for each before it would fill the socket, and
        // the one that counts would stay behind in it.
        if std::mem::take(&mut self.rx.confirm) || self.peer_closed_at == Some(self.rx.next_message) {
            self.queue_report();
            self.control.flush(cx);
        } else {
            self.report_if_due(cx);
        }
        total
    }

    /// Takes what has arrived of this message while an earlier one was being received.
    fn take_early(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let next = self.rx.next_message;
        let Some(early) = self.rx.early.get(&next) else { return Ok(()) };
        self.rx.total_bytes = self.rx.total_bytes.or(early.total_bytes);
        self.rx.confirm |= early.confirm;
        self.begin(sink)?;
        let Some(early) = self.rx.early.remove(&next) else { return Ok(()) };
        for (mut offset, chunk) in early.chunks {
            self.rx.early_bytes -= chunk.len() as u64 + EARLY_PIECE_BYTES;
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                // Channel 0's room: nothing is half read into it between two calls of this function.
                let room = sink.space(0, offset, rest.len());
                let n = room.len();
                room.copy_from_slice(&rest[..n]);
                sink.filled(0, offset, n);
                self.rx.note(offset, n);
                offset += n as u64;
                rest = &rest[n..];
            }
        }
        Ok(())
    }

    fn begin(&mut self, sink: &mut dyn Sink) -> Result<()> {
        if let Some(total) = self.rx.total_bytes
            && !self.rx.begun
        {
            sink.begin(total)?;
            self.rx.begun = true;
        }
        Ok(())
    }

    /// Reads one channel until it has nothing, the message is complete, or its turn is over.
    fn read_channel(
        &mut self,
        index: usize,
        cx: &mut Context<'_>,
        sink: &mut dyn Sink,
        spinning: bool,
    ) -> Result<Read> {
        for _ in 0..READS_A_TURN {
            if self.consume_staged(index, sink)? {
                return Ok(Read::Complete);
            }
            let alone = self.channels.len() == 1;
            let channel = &mut self.channels[index];
            let Some(socket) = &channel.socket else { return Ok(Read::Blocked) };
            let rx = &mut channel.rx;
            // What is staged now is at most a piece of a header; make room behind it.
            rx.staging.copy_within(rx.staged.clone(), 0);
            rx.staged = 0..rx.staged.len();
            let direct = rx.run.filter(|r| r.left > 0 && r.message == Some(self.rx.next_message) && self.rx.begun);
            let tail = &mut rx.staging[rx.staged.end..];
            let (read, room) = match direct {
                Some(run) => {
                    let room = sink.space(index, run.offset, run.left.min(1 << 30) as usize);
                    let room_bytes = room.len();
                    // Behind the run's end comes the next header: the same system call takes both.
                    let behind = if room_bytes as u64 == run.left { tail.len() } else { 0 };
                    let parts = &mut [IoSliceMut::new(room), IoSliceMut::new(&mut tail[..behind])];
                    (if spinning { socket.read_now(parts) } else { socket.poll_read(cx, parts) }, room_bytes)
                }
                None => {
                    let parts = &mut [IoSliceMut::new(tail)];
                    (if spinning { socket.read_now(parts) } else { socket.poll_read(cx, parts) }, 0)
                }
            };
            let n = match read {
                Poll::Pending => {
                    rx.caught_up = rx.in_run();
                    if !spinning {
                        rx.set_wake_up(socket, alone);
                    }
                    return Ok(Read::Blocked);
                }
                Poll::Ready(Ok(n)) if n > 0 => n,
                Poll::Ready(Ok(_)) => {
                    self.channel_lost(index, "the peer closed it");
                    return Ok(Read::Blocked);
                }
                Poll::Ready(Err(error)) => {
                    self.channel_lost(index, &error.to_string());
                    return Ok(Read::Blocked);
                }
            };
            rx.observe(n as u64, Instant::now());
            let direct_bytes = n.min(room);
            rx.position += direct_bytes as u64;
            self.rx.unreported_bytes += direct_bytes as u64;
            rx.staged.end += n - direct_bytes;
            if let Some(run) = direct {
                sink.filled(index, run.offset, direct_bytes);
                rx.payload_bytes += direct_bytes as u64;
                rx.run = Some(run.advanced(direct_bytes));
                self.rx.note(run.offset, direct_bytes);
            }
        }
        if self.consume_staged(index, sink)? { Ok(Read::Complete) } else { Ok(Read::Yield) }
    }

    /// Works off what was read into a channel's staging buffer; whether that completed the message.
    fn consume_staged(&mut self, index: usize, sink: &mut dyn Sink) -> Result<bool> {
        loop {
            self.begin(sink)?;
            if self.is_complete() {
                return Ok(true);
            }
            let next_message = self.rx.next_message;
            let rx = &mut self.channels[index].rx;
            let staged = &rx.staging[rx.staged.clone()];
            if let Some(run) = rx.run.filter(|r| r.left > 0) {
                if staged.is_empty() {
                    return Ok(false);
                }
                let want = (staged.len() as u64).min(run.left) as usize;
                let taken = match run.message {
                    Some(message) if message == next_message => {
                        let room = sink.space(index, run.offset, want);
                        let n = room.len();
                        room.copy_from_slice(&staged[..n]);
                        sink.filled(index, run.offset, n);
                        self.rx.note(run.offset, n);
                        n
                    }
                    Some(message) if serial_less(next_message, message) => {
                        self.rx.keep_early(message, run.offset, &staged[..want])?;
                        want
                    }
                    // Padding, or a message that arrived by other channels meanwhile.
                    Some(_) => {
                        self.rx.duplicate_bytes += want as u64;
                        want
                    }
                    None => want,
                };
                rx.payload_bytes += if run.message.is_some() { taken as u64 } else { 0 };
                rx.staged.start += taken;
                rx.position += taken as u64;
                self.rx.unreported_bytes += taken as u64;
                rx.run = Some(run.advanced(taken));
                continue;
            }
            let Some((frame, length)) = Frame::decode(staged)? else { return Ok(false) };
            rx.staged.start += length;
            rx.position += length as u64;
            self.rx.unreported_bytes += length as u64;
            self.apply_frame(index, frame)?;
        }
    }

    fn apply_frame(&mut self, index: usize, frame: Frame) -> Result<()> {
        let rx = &mut self.channels[index].rx;
        match frame {
            Frame::Pad { length } => rx.run = Some(Incoming { message: None, offset: 0, left: u64::from(length) }),
            Frame::Open { message, total_bytes, confirm } => self.rx.open(message, total_bytes, confirm)?,
            Frame::Run { message, offset, length } => {
                self.rx.check_run(message, offset, u64::from(length))?;
                rx.run = Some(Incoming { message: Some(message), offset, left: u64::from(length) });
            }
            Frame::Whole { message_low, length, confirm } => {
                let message = serial_near(self.rx.next_message, message_low);
                self.rx.open(message, u64::from(length), confirm)?;
                self.rx.check_run(message, 0, u64::from(length))?;
                rx.run = Some(Incoming { message: Some(message), offset: 0, left: u64::from(length) });
            }
            Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm } => {
                self.rx.open(message, total_bytes, confirm)?;
                let sequence =
                    Sequence { message, direction, fragment_bytes: u64::from(fragment_bytes), offset, total_bytes };
                rx.sequence = Some(sequence);
                rx.run = Some(sequence.fragment());
            }
            Frame::Continue => {
                let sequence = rx.sequence.as_mut().ok_or_else(|| protocol("a fragment without a Start before it"))?;
                sequence.advance()?;
                rx.run = Some(sequence.fragment());
            }
            Frame::End { .. } => rx.sequence = None,
        }
        Ok(())
    }

    fn report_if_due(&mut self, cx: &mut Context<'_>) {
        let unreported = self.rx.unreported_bytes;
        if unreported == 0 && self.rx.unreported_messages == 0 {
            return;
        }
        let age = self.rx.last_report.elapsed();
        let many = self.rx.unreported_messages >= REPORT_MESSAGES;
        let much = unreported >= REPORT_BYTES && age >= REPORT_GAP;
        let worth = age >= REPORT_EVERY && unreported >= REPORT_WORTH_BYTES || age >= REPORT_LATEST;
        if unreported >= REPORT_AT_ONCE_BYTES || much || many || (worth && self.rx.begun) {
            self.queue_report();
            self.control.flush(cx);
        }
    }

    /// For the keeper: reports what the application's calls did not.
    pub(crate) fn report_leftovers(&mut self) {
        if self.rx.unreported_bytes > 0 || self.rx.unreported_messages > 0 {
            self.queue_report();
        }
    }

    pub(crate) fn queue_report(&mut self) {
        let now = Instant::now();
        let mut channels = Vec::new();
        for channel in self.channels.iter_mut().filter(|c| c.socket.is_some()) {
            channel.rx.observe(0, now);
            let rx = &mut channel.rx;
            // A channel with nothing new is in the middle of a run that does not arrive: that is news too.
            if rx.reported != rx.position || !rx.busy.is_zero() {
                let (busy_bytes, busy_us) = (rx.busy_bytes, rx.busy.as_micros() as u64);
                rx.rate.report(busy_bytes, busy_us);
                let position = rx.position;
                channels.push(ChannelReport { channel: channel.id, position, busy_bytes, busy_us });
                (rx.reported, rx.busy_bytes, rx.busy) = (position, 0, Duration::ZERO);
            }
        }
        let close_heard = self.peer_closed_at.is_some();
        let report = Report { completed_below: self.rx.next_message, close_heard, channels };
        self.control.queue(&Control::Report(report));
        self.rx.report_due = false;
        self.rx.unreported_bytes = 0;
        self.rx.unreported_messages = 0;
        self.rx.last_report = now;
    }
}

impl Rx {
    /// Notes payload of the current message.
    fn note(&mut self, offset: u64, count: usize) {
        let new = self.ledger.insert(offset..offset + count as u64);
        self.duplicate_bytes += count as u64 - new;
    }

    /// A channel announces `message` and its length.
    fn open(&mut self, message: u32, total_bytes: u64, confirm: bool) -> Result<()> {
        let (known, flag) = if message == self.next_message {
            (&mut self.total_bytes, &mut self.confirm)
        } else if serial_less(message, self.next_message) {
            return Ok(());
        } else {
            if message.wrapping_sub(self.next_message) > MAX_HELD_MESSAGES as u32 {
                return Err(protocol(format!("message {message} while {} is awaited", self.next_message)));
            }
            let early = self.early.entry(message).or_default();
            (&mut early.total_bytes, &mut early.confirm)
        };
        if *known.get_or_insert(total_bytes) != total_bytes {
            return Err(protocol(format!("message {message} is announced with two lengths")));
        }
        *flag |= confirm;
        Ok(())
    }

    /// A run must lie within its announced message.
    fn check_run(&self, message: u32, offset: u64, length: u64) -> Result<()> {
        let total = if message == self.next_message {
            self.total_bytes
        } else if serial_less(message, self.next_message) {
            return Ok(());
        } else {
            self.early.get(&message).and_then(|e| e.total_bytes)
        };
        if self.ledger.fragments() > MAX_PIECES {
            return Err(protocol(format!("message {} in more than {MAX_PIECES} pieces at a time", self.next_message)));
        }
        match total {
            None => Err(protocol(format!("a run of message {message}, which was not announced"))),
            Some(total) if offset + length > total => {
                Err(protocol(format!("a run up to {} of a message of {total} bytes", offset + length)))
            }
            Some(_) => Ok(()),
        }
    }

    fn keep_early(&mut self, message: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.early_bytes += bytes.len() as u64 + EARLY_PIECE_BYTES;
        if self.early_bytes > MAX_EARLY_BYTES {
            return Err(protocol(format!("more than {MAX_EARLY_BYTES} bytes of messages that are not yet due")));
        }
        self.early.entry(message).or_default().chunks.push((offset, bytes.to_vec()));
        Ok(())
    }
}

pub(super) fn protocol(what: impl Into<String>) -> Error {
    Error::Protocol(what.into())
}
