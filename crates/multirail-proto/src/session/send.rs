//! The sending half: gives runs of messages to channels that can take bytes.

use super::channel::SessionChannel;
use super::channel_tx::TxChannel;
use super::limits::PROBE_BYTES;
use super::message::{Messages, Outgoing};
use super::path::Paths;
use super::time::Time;
use crate::striping::{Channel, ChannelView, Framing, Next, Run, Strategy, Striping};
use crate::wire::Frame;

/// A socket holds unsent what its channel sends in this time: enough to bridge a wake-up, little
/// enough to leave the rest to other channels.
const UNSENT_US: f64 = 2_000.0;
/// The least that a socket may hold unsent.
const MIN_UNSENT_BYTES: f64 = 16_384.0;
/// The most that a socket may hold unsent.
const MAX_UNSENT_BYTES: f64 = 4_194_304.0;
/// What a new channel's socket may hold unsent before its rate is known.
pub const INITIAL_UNSENT_BYTES: u32 = 64 << 10;
/// The papers' strategies balance by blocking in the socket, whose buffer was 16 KiB by default in
/// the kernels of their time. With less, channels run dry between two fragments; with more, it
/// shows less which channel is slower.
const PAPER_UNSENT_BYTES: u32 = 16 << 10;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What a channel's socket should take next.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// Headers; may be empty.
    pub head: &'a [u8],
    /// What follows them.
    pub payload: Payload<'a>,
}

/// The payload of a [`Transmit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Bytes of the current message, from `offset` on. They are in the memory of the caller that
    /// is sending; if no caller is there, nothing can be written.
    Caller {
        /// Offset in the message.
        offset: u64,
        /// How many bytes, at most 1 GiB; writing fewer is fine.
        want: usize,
    },
}

/// The sending half of a session.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) strategy: Strategy,
    pub(super) fragment_bytes: u32,
    pub(super) messages: Messages,
    /// Some held message may have bytes that were given back.
    pub(super) resend: bool,
    /// More follows the next message without a pause.
    pub(super) more_is_behind: bool,
    /// What strategies are shown of the channels, in the order of the table.
    pub(super) views: Vec<ChannelView>,
    /// When the next rescue is considered; `None` before the message is entirely claimed.
    pub(super) rescue_at: Option<Time>,
    /// Frame headers sent (two-ended: *Start* and *End* messages).
    pub(super) control_messages: u64,
    /// Bytes sent a second time.
    pub(super) resent_bytes: u64,
    /// Runs sent a second time because their first channel was late.
    pub(super) rescues: u64,
}

impl Sending {
    pub(super) fn new(strategy: Strategy, fragment_bytes: u32) -> Self {
        Self {
            strategy,
            fragment_bytes,
            messages: Messages::default(),
            resend: false,
            more_is_behind: false,
            views: Vec::new(),
            rescue_at: None,
            control_messages: 0,
            resent_bytes: 0,
            rescues: 0,
        }
    }

    /// Begins a message; see [`Machine::begin_message`](super::Machine::begin_message).
    pub(super) fn begin(
        &mut self,
        channels: &mut [SessionChannel],
        total_bytes: u64,
        copy: Option<Vec<u8>>,
        grain_bytes: u64,
        paths: &dyn Paths,
        now: Time,
    ) -> u32 {
        self.refresh_views(channels, paths, now);
        self.rescue_at = None;
        let fragment_bytes = match self.strategy {
            Strategy::SharedCounter | Strategy::TwoEnded => u64::from(self.fragment_bytes),
            _ => grain_bytes,
        };
        let mut striping = Striping::new(self.strategy, total_bytes, fragment_bytes, &self.views);
        if std::mem::take(&mut self.more_is_behind) {
            striping.more_is_behind();
        }
        self.messages.begin(total_bytes, copy, striping, fragment_bytes as u32)
    }

    /// Whether some channel has something to write that does not need the caller's memory.
    pub(super) fn is_due(&self, channels: &[SessionChannel]) -> bool {
        let copied = |c: &Outgoing| c.copy.is_some() && !c.is_claimed();
        self.resend
            || self.messages.current.as_ref().is_some_and(copied)
            || channels.iter().any(|c| c.up && (c.tx.pending.is_some() || c.tx.probe))
    }

    /// Makes `index`, whose socket can take bytes, send the next run that is meant for it; whether
    /// there was one.
    pub(super) fn claim(&mut self, channels: &mut [SessionChannel], index: Channel, now: Time) -> bool {
        let channel = &mut channels[index];
        if !channel.up {
            return false;
        }
        let tx = &mut channel.tx;
        if std::mem::take(&mut tx.probe) {
            tx.put(None, 0..u64::from(PROBE_BYTES), &[Frame::Pad { length: PROBE_BYTES }], now);
            return true;
        }
        if self.resend && self.claim_again(tx, index, now) {
            return true;
        }
        if !self.messages.window_is_open() {
            return false;
        }
        let Some(current) = &mut self.messages.current else { return false };
        match current.striping.next(index, &self.views) {
            Next::Run(run) => {
                self.control_messages += announce(tx, current, index, &run, now);
                self.views[index].backlog_bytes += run.range.end - run.range.start;
                true
            }
            Next::Wait => false,
            Next::Done => {
                let Some(owed) = current.open_ended.iter().position(|c| *c == index) else { return false };
                current.open_ended.swap_remove(owed);
                self.control_messages += 1;
                tx.put(None, 0..0, &[Frame::End { message: current.message }], now);
                true
            }
        }
    }

    /// Claims what a lost channel had of a held message.
    fn claim_again(&mut self, tx: &mut TxChannel, index: Channel, now: Time) -> bool {
        let Some(held) = self.messages.held.iter_mut().find(|h| !h.striping.is_claimed()) else {
            self.resend = false;
            return false;
        };
        let Next::Run(run) = held.striping.next(index, &self.views) else { return false };
        self.control_messages += announce(tx, held, index, &run, now);
        self.resent_bytes += run.range.end - run.range.start;
        true
    }

    /// What a channel has pending.
    pub(super) fn transmit<'a>(&'a self, channel: &'a SessionChannel) -> Option<Transmit<'a>> {
        let pending = channel.tx.pending.as_ref().filter(|_| channel.up)?;
        let want = (pending.payload.end - pending.payload.start).min(1 << 30) as usize;
        let offset = pending.payload.start;
        let payload = match self.messages.find(pending.message) {
            _ if want == 0 => Payload::Bytes(&[]),
            // Padding, or a message that has arrived by other channels meanwhile: the peer drops
            // the rest.
            None => Payload::Bytes(&ZEROS[..want.min(ZEROS.len())]),
            Some(Outgoing { copy: Some(copy), .. }) => Payload::Bytes(&copy[offset as usize..offset as usize + want]),
            Some(_) => Payload::Caller { offset, want },
        };
        Some(Transmit { head: pending.head(), payload })
    }

    /// How many unsent bytes the socket of a channel of this rate may hold.
    pub(super) fn unsent_limit(&self, rate_bytes_s: f64) -> u32 {
        match self.strategy {
            Strategy::SharedCounter | Strategy::TwoEnded => {
                self.fragment_bytes.saturating_mul(4).max(PAPER_UNSENT_BYTES)
            }
            _ if rate_bytes_s == 0.0 => INITIAL_UNSENT_BYTES,
            _ => (rate_bytes_s * UNSENT_US / 1e6).clamp(MIN_UNSENT_BYTES, MAX_UNSENT_BYTES) as u32,
        }
    }

    /// Works out anew what strategies are shown of the channels.
    pub(super) fn refresh_views(&mut self, channels: &mut [SessionChannel], paths: &dyn Paths, now: Time) {
        self.views.clear();
        let view = |(index, c): (Channel, &mut SessionChannel)| c.tx.view(index, c.up, c.latency_us, paths, now);
        self.views.extend(channels.iter_mut().enumerate().map(view));
    }
}

/// Announces `run` on a channel; returns the number of headers that took.
pub(super) fn announce(tx: &mut TxChannel, outgoing: &mut Outgoing, index: Channel, run: &Run, now: Time) -> u64 {
    let Outgoing { message, total_bytes, fragment_bytes, .. } = *outgoing;
    let length = (run.range.end - run.range.start) as u32;
    let confirm = outgoing.copy.is_none();
    outgoing.begun = true;
    tx.payload_bytes += u64::from(length);
    let mut put = |frames: &[Frame]| tx.put(Some(message), run.range.clone(), frames, now);
    match run.framing {
        // An empty message has no fragments that a Start could announce.
        framing if framing == Framing::Header || total_bytes == 0 => {
            if run.range == (0..total_bytes) {
                put(&[Frame::Whole { message_low: message as u16, length, confirm }]);
                return 1;
            }
            let frame = Frame::Run { message, offset: run.range.start, length };
            if tx.opened == Some(message) {
                tx.put(Some(message), run.range.clone(), &[frame], now);
                return 1;
            }
            tx.opened = Some(message);
            tx.put(Some(message), run.range.clone(), &[Frame::Open { message, total_bytes, confirm }, frame], now);
            2
        }
        Framing::Start(direction) => {
            if !outgoing.open_ended.contains(&index) {
                outgoing.open_ended.push(index);
            }
            let offset = run.range.start;
            put(&[Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm }]);
            1
        }
        _ => {
            put(&[Frame::Continue]);
            0
        }
    }
}
