//! The receiving half: decides where arriving bytes go.

use super::channel_rx::{Incoming, RxChannel, Sequence};
use super::early::{Announced, EarlyMessages, Piece};
use super::failure::{MAX_PIECES, Violation};
use super::limits::MAX_HELD_MESSAGES;
use super::report::ReportSchedule;
use super::serial::{serial_less, serial_near};
use super::spin::SpinPolicy;
use super::time::Time;
use crate::ledger::Ledger;
use crate::wire::Frame;

/// What a receiver does next on a channel.
#[derive(Debug)]
pub enum ReceiveStep<'a> {
    /// The length of the message that is due is known. Prepare room for it, then call
    /// [`Machine::handle_begun`](super::Machine::handle_begun); or refuse it by calling nothing,
    /// and it stays where it is.
    Begin {
        /// Length of the message.
        total_bytes: u64,
    },
    /// Copy these bytes, or the first of them, to `offset` of the message that is due, then call
    /// [`Machine::handle_copied`](super::Machine::handle_copied).
    Copy {
        /// Offset in the message.
        offset: u64,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// Read from the socket, then call [`Machine::handle_read`](super::Machine::handle_read) or
    /// [`Machine::handle_read_blocked`](super::Machine::handle_read_blocked).
    Read {
        /// Where the next bytes belong in the message that is due; `None` if they belong into the
        /// staging buffer.
        direct: Option<Direct>,
        /// The staging buffer. It may be filled by the same system call, but only behind all of
        /// `direct`.
        staging: &'a mut [u8],
    },
    /// The message that is due is complete. Call
    /// [`Machine::finish_message`](super::Machine::finish_message).
    Complete,
}

/// Bytes that are read straight into the receiver's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direct {
    /// Offset in the message.
    pub offset: u64,
    /// How many bytes the run still has; at least one.
    pub left: u64,
}

/// The next step, without the buffers that [`ReceiveStep`] borrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Begin { total_bytes: u64 },
    Copy { offset: u64, want: usize },
    Read { direct: Option<Direct> },
    Complete,
}

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiving {
    /// Serial number of the message that is due.
    pub(super) next_message: u32,
    announced: Announced,
    /// The receiver has room for the message.
    begun: bool,
    ledger: Ledger,
    early: EarlyMessages,
    pub(super) reports: ReportSchedule,
    /// Payload bytes that arrived more than once.
    pub(super) duplicate_bytes: u64,
    pub(super) spin: SpinPolicy,
}

impl Receiving {
    pub(super) fn new(now: Time) -> Self {
        Self {
            next_message: 0,
            announced: Announced::default(),
            begun: false,
            ledger: Ledger::default(),
            early: EarlyMessages::default(),
            reports: ReportSchedule::new(now),
            duplicate_bytes: 0,
            spin: SpinPolicy::default(),
        }
    }

    /// Whether bytes of the message that is due may have been placed, so that it cannot be
    /// received anew.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether bytes of an unfinished message have arrived.
    pub(super) fn has_part(&self) -> bool {
        self.ledger.bytes() > 0 || self.early.has_pieces()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.begun && self.announced.total_bytes == Some(self.ledger.bytes())
    }

    /// The length of the message that is due, if it is known and the receiver has no room yet.
    pub(super) fn due_to_begin(&self) -> Option<u64> {
        self.announced.total_bytes.filter(|_| !self.begun)
    }

    /// The receiver has room for the message.
    pub(super) fn begin(&mut self) {
        self.begun = self.announced.total_bytes.is_some();
    }

    /// Ends the message that is due, which is complete; returns its length and whether the sender
    /// waits for its confirmation.
    pub(super) fn finish_message(&mut self) -> (u64, bool) {
        let (total_bytes, confirm) = (self.ledger.bytes(), self.announced.confirm);
        self.next_message = self.next_message.wrapping_add(1);
        while self.early.forget_taken(self.next_message) {
            self.next_message = self.next_message.wrapping_add(1);
        }
        self.announced = self.early.announced(self.next_message);
        self.begun = false;
        self.ledger = Ledger::default();
        self.reports.message_finished();
        (total_bytes, confirm)
    }

    /// A message that is complete before its turn.
    pub(super) fn take_overtaking(&mut self) -> Option<Vec<u8>> {
        let message = self.early.take_complete(self.next_message)?;
        self.reports.message_finished();
        Some(message)
    }

    /// A piece of the message that is due, from those that arrived early. It counts as placed.
    pub(super) fn take_early(&mut self) -> Option<Piece> {
        if !self.begun {
            return None;
        }
        let (offset, bytes) = self.early.take(self.next_message)?;
        self.note(offset, bytes.len());
        Some((offset, bytes))
    }

    /// Processes what is staged on a channel as far as that needs no one else; returns what must
    /// happen next.
    pub(super) fn advance(&mut self, rx: &mut RxChannel) -> Result<Decision, Violation> {
        loop {
            if let Some(total_bytes) = self.due_to_begin() {
                return Ok(Decision::Begin { total_bytes });
            }
            if self.is_complete() {
                return Ok(Decision::Complete);
            }
            if let Some(run) = rx.run.filter(|run| run.left > 0) {
                if !rx.has_staged() {
                    let is_due = run.message == Some(self.next_message) && self.begun;
                    let direct = is_due.then_some(Direct { offset: run.offset, left: run.left });
                    return Ok(Decision::Read { direct });
                }
                let want = (rx.staged().len() as u64).min(run.left) as usize;
                match run.message {
                    Some(message) if message == self.next_message => {
                        return Ok(Decision::Copy { offset: run.offset, want });
                    }
                    Some(message) if serial_less(self.next_message, message) => {
                        self.early.keep(message, run.offset, &rx.staged()[..want])?;
                    }
                    // The message has arrived by other channels.
                    Some(_) => self.duplicate_bytes += want as u64,
                    // Padding.
                    None => {}
                }
                self.consume_payload(rx, want);
                continue;
            }
            let Some((frame, length)) = Frame::decode(rx.staged())? else {
                return Ok(Decision::Read { direct: None });
            };
            rx.consume_staged(length);
            self.reports.note_bytes(length as u64);
            self.apply(rx, frame)?;
        }
    }

    /// Notes that `bytes` of the staged payload were copied to the message that is due.
    pub(super) fn copied(&mut self, rx: &mut RxChannel, bytes: usize) {
        if let Some(run) = rx.run {
            self.note(run.offset, bytes);
            self.consume_payload(rx, bytes);
        }
    }

    /// Notes that `direct_bytes` were read to the message that is due.
    pub(super) fn read_direct(&mut self, rx: &mut RxChannel, direct_bytes: usize) {
        if let Some(run) = rx.run.filter(|_| direct_bytes > 0) {
            rx.consume_direct(direct_bytes);
            self.reports.note_bytes(direct_bytes as u64);
            rx.advance_run(direct_bytes);
            self.note(run.offset, direct_bytes);
        }
    }

    fn consume_payload(&mut self, rx: &mut RxChannel, bytes: usize) {
        rx.advance_run(bytes);
        rx.consume_staged(bytes);
        self.reports.note_bytes(bytes as u64);
    }

    /// Notes payload of the message that is due.
    fn note(&mut self, offset: u64, count: usize) {
        let new = self.ledger.insert(offset..offset + count as u64);
        self.duplicate_bytes += count as u64 - new;
    }

    fn apply(&mut self, rx: &mut RxChannel, frame: Frame) -> Result<(), Violation> {
        match frame {
            Frame::Pad { length } => rx.run = Some(Incoming { message: None, offset: 0, left: u64::from(length) }),
            Frame::Open { message, total_bytes, confirm } => self.open(message, total_bytes, confirm)?,
            Frame::Run { message, offset, length } => {
                self.check_run(message, offset, u64::from(length))?;
                rx.run = Some(Incoming { message: Some(message), offset, left: u64::from(length) });
            }
            Frame::Whole { message_low, length, confirm } => {
                let message = serial_near(self.next_message, message_low);
                self.open(message, u64::from(length), confirm)?;
                self.check_run(message, 0, u64::from(length))?;
                rx.run = Some(Incoming { message: Some(message), offset: 0, left: u64::from(length) });
            }
            Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm } => {
                self.open(message, total_bytes, confirm)?;
                let fragment_bytes = u64::from(fragment_bytes);
                let sequence = Sequence { message, direction, fragment_bytes, offset, total_bytes };
                self.check_pieces()?;
                rx.sequence = Some(sequence);
                rx.run = Some(sequence.fragment());
            }
            Frame::Continue => {
                let sequence = rx.sequence.as_mut().ok_or(Violation::NoStart)?;
                sequence.advance()?;
                rx.run = Some(sequence.fragment());
            }
            Frame::End { .. } => rx.sequence = None,
        }
        Ok(())
    }

    /// A channel announces `message`.
    fn open(&mut self, message: u32, total_bytes: u64, confirm: bool) -> Result<(), Violation> {
        let due = self.next_message;
        if message == due {
            return self.announced.open(message, total_bytes, confirm);
        }
        if serial_less(message, due) {
            return Ok(());
        }
        if message.wrapping_sub(due) > MAX_HELD_MESSAGES as u32 {
            return Err(Violation::TooFarAhead { message, due });
        }
        self.early.open(message, total_bytes, confirm)
    }

    /// A run must lie within its message, which was announced.
    fn check_run(&self, message: u32, offset: u64, length: u64) -> Result<(), Violation> {
        let announced = if message == self.next_message {
            self.announced
        } else if serial_less(message, self.next_message) {
            return Ok(());
        } else {
            self.early.announced(message)
        };
        self.check_pieces()?;
        let end = offset + length;
        match announced.total_bytes {
            None => Err(Violation::NotAnnounced { message }),
            Some(total_bytes) if end > total_bytes => Err(Violation::RunOutside { end, total_bytes }),
            Some(_) => Ok(()),
        }
    }

    fn check_pieces(&self) -> Result<(), Violation> {
        if self.ledger.fragments() > MAX_PIECES {
            return Err(Violation::TooManyPieces { message: self.next_message });
        }
        Ok(())
    }
}
