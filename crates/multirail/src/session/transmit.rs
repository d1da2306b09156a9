//! The sending half: claims runs for channels that can take them, writes them, and keeps what is not confirmed.

use super::state::{Channel, Failure, State};
use super::tx_channel::put_run;
use crate::error::{Error, Result};
use crate::payload::Source;
use multirail_proto::striping::{ChannelView, Next, Strategy, Striping};
use multirail_proto::wire::{Frame, Report};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::task::{Context, Poll};
use std::time::Instant;

/// Messages up to this length are copied, so that sending returns as soon as their channels have them, as with TCP. Longer ones are
/// sent from the caller's memory, and sending returns when the peer has confirmed them: with several channels a copy would
/// cost more than the half round trip.
pub const COPY_LIMIT_BYTES: u64 = 64 << 10;
/// At most this much is copied and not confirmed; sending waits at the limit. Also the most that the peer must keep of
/// messages that overtook an earlier one. Covers 100 Mbit/s over 300 ms.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// At most so many messages are copied and not confirmed, however small.
pub const MAX_HELD_MESSAGES: usize = 4096;
/// Buffers of confirmed copies that are kept for the next ones, and how long a message must be to get one: the allocator would
/// give the memory back to the system each time, and take it page by page.
const MAX_SPARES: usize = 16;
const MIN_SPARE_BYTES: usize = 16 << 10;
/// What a new channel sends first, and an unused one now and then, so that the peer can tell its rate.
pub(crate) const PROBE_BYTES: u32 = 32 << 10;
/// A channel's socket holds unsent what it can send in this time: enough to bridge a wake-up, little enough to stay free.
const UNSENT_US: f64 = 2_000.0;
const MIN_UNSENT_BYTES: f64 = 16_384.0;
/// The papers' strategies balance by blocking in the socket. Its buffer was 16 KiB by default in the kernels of their time;
/// measured here, less makes channels run dry between two fragments, and more blurs which one is the slower.
const PAPER_UNSENT_BYTES: u32 = 16 << 10;
const MAX_UNSENT_BYTES: f64 = 4_194_304.0;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What a session is sending.
#[derive(Debug, Default)]
pub(crate) struct Tx {
    /// Serial number of the next message.
    pub next_message: u32,
    /// The message that is being claimed: the last one begun.
    pub current: Option<Outgoing>,
    /// Claimed whole, copied, and not confirmed, in order.
    held: VecDeque<Outgoing>,
    held_bytes: u64,
    /// Empty buffers with room for a long copy.
    spares: Vec<Vec<u8>>,
    /// Some held message has something given back.
    pub(super) resend: bool,
    pub(super) views: Vec<ChannelView>,
    /// Frame headers sent (two-ended: Start and End messages).
    pub control_messages: u64,
    /// Bytes sent a second time.
    pub resent_bytes: u64,
}

/// One message on its way.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub message: u32,
    pub total_bytes: u64,
    /// Its copy; `None`: it is in the memory of the caller, who waits.
    pub(super) copy: Option<Vec<u8>>,
    pub(super) striping: Striping,
    pub(super) fragment_bytes: u32,
    /// Some run was claimed: an empty message has nothing unclaimed from the start.
    pub(super) begun: bool,
    /// Channels that have sent Start and owe an End.
    pub(super) open_ended: Vec<usize>,
    /// Ranges that were sent a second time already.
    pub(super) rescued: Vec<Range<u64>>,
}

impl State {
    /// Begins a message. `copy`: its bytes where they are to be kept, else they come with every call of
    /// [`State::poll_sent`]. The caller has seen to it that no message is current.
    pub(crate) fn begin_message(&mut self, total_bytes: u64, copy: Option<Vec<u8>>, grain_bytes: u64) -> u32 {
        debug_assert!(self.tx.current.is_none());
        self.refresh_views();
        let message = self.tx.next_message;
        let fragment_bytes = match self.config.strategy {
            Strategy::SharedCounter | Strategy::TwoEnded => u64::from(self.config.fragment_bytes),
            _ => grain_bytes,
        };
        let striping = Striping::new(self.config.strategy, total_bytes, fragment_bytes, &self.tx.views);
        self.tx.next_message = message.wrapping_add(1);
        self.tx.current = Some(Outgoing {
            message,
            total_bytes,
            copy,
            striping,
            fragment_bytes: fragment_bytes as u32,
            begun: false,
            open_ended: Vec::new(),
            rescued: Vec::new(),
        });
        message
    }

    /// Whether a message of this length can begin now.
    pub(crate) fn can_begin(&self, total_bytes: u64) -> bool {
        !self.channels.is_empty()
            && self.tx.current.is_none()
            && self.tx.held.len() < MAX_HELD_MESSAGES
            && (total_bytes > COPY_LIMIT_BYTES || self.tx.held_bytes + total_bytes <= WINDOW_BYTES)
    }

    /// Goes on with `message`; ready when a copied one is claimed, or any other confirmed.
    pub(crate) fn poll_sent(
        &mut self,
        cx: &mut Context<'_>,
        message: u32,
        source: &mut dyn Source,
    ) -> Poll<Result<()>> {
        self.poll_transmit(cx, Some(source));
        self.check()?;
        let current = self.tx.current.as_ref().is_some_and(|c| c.message == message);
        if current { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Whether all of the current message is claimed, so that only waiting (or a rescue) is left.
    pub(crate) fn all_claimed(&self) -> bool {
        self.tx.current.as_ref().is_some_and(Outgoing::is_claimed)
    }

    /// Lays the current message aside when it is a copy and all of it is claimed. A socket whose buffer is full may keep the rest of
    /// a run waiting; the next message is not to wait for that, and finds other channels.
    fn hold_current(&mut self) {
        let claimed = |c: &mut Outgoing| c.copy.is_some() && c.is_claimed() && c.open_ended.is_empty();
        if let Some(current) = self.tx.current.take_if(claimed) {
            self.tx.held_bytes += current.total_bytes;
            self.tx.held.push_back(current);
        }
    }

    /// Whether everything sent is confirmed.
    pub(crate) fn all_confirmed(&self) -> bool {
        self.tx.current.is_none() && self.tx.held.is_empty()
    }

    /// Whether the kernel has all that was claimed, as far as it is to be had from channels that go on.
    pub(crate) fn all_with_kernel(&self) -> bool {
        self.channels.iter().all(|c| c.socket.is_none() || c.tx.stalled || c.tx.pending.is_none())
    }

    /// Whether some channel has something to write that does not need the caller's memory.
    pub(crate) fn transmit_due(&self) -> bool {
        let copied = |c: &Outgoing| c.copy.is_some() && !c.is_claimed();
        self.tx.resend
            || self.tx.current.as_ref().is_some_and(copied)
            || self.channels.iter().any(|c| c.socket.is_some() && (c.tx.pending.is_some() || c.tx.probe))
    }

    /// Writes on every channel that takes something, until none does.
    pub(crate) fn poll_transmit(&mut self, cx: &mut Context<'_>, mut source: Option<&mut dyn Source>) {
        self.refresh_views();
        loop {
            let mut progress = false;
            for index in 0..self.channels.len() {
                if self.channels[index].socket.is_none() {
                    continue;
                }
                if self.channels[index].tx.pending.is_none() && !self.claim(index, cx) {
                    continue;
                }
                match self.write(index, cx, &mut source) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(wrote)) => progress |= wrote,
                    Poll::Ready(Err(error)) => {
                        self.channel_lost(index, &error.to_string());
                        self.refresh_views();
                        progress = true;
                    }
                }
            }
            if !progress {
                self.hold_current();
                return;
            }
        }
    }

    /// Has `index` send the next run, if it can take one now and there is one for it.
    fn claim(&mut self, index: usize, cx: &mut Context<'_>) -> bool {
        let channel = &mut self.channels[index];
        let Some(socket) = &channel.socket else { return false };
        if socket.poll_writable(cx).is_pending() {
            return false;
        }
        if std::mem::take(&mut channel.tx.probe) {
            channel.tx.put(None, 0..u64::from(PROBE_BYTES), &[Frame::Pad { length: PROBE_BYTES }]);
            return true;
        }
        if self.tx.resend {
            match self.tx.held.iter_mut().find(|h| !h.striping.is_claimed()) {
                None => self.tx.resend = false,
                Some(held) => {
                    if let Next::Run(run) = held.striping.next(index, &self.tx.views) {
                        self.tx.control_messages += put_run(&mut self.channels[index].tx, held, index, &run);
                        self.tx.resent_bytes += run.range.end - run.range.start;
                        return true;
                    }
                }
            }
        }
        let ahead = self.tx.held_bytes;
        let Some(current) = &mut self.tx.current else { return false };
        if ahead > 0 && ahead + current.total_bytes.saturating_sub(current.striping.unclaimed_bytes()) > WINDOW_BYTES {
            return false;
        }
        match current.striping.next(index, &self.tx.views) {
            Next::Run(run) => {
                tracing::trace!(channel = index, ?run, views = ?self.tx.views, "claimed");
                let sent = put_run(&mut self.channels[index].tx, current, index, &run);
                self.tx.views[index].backlog_bytes += run.range.end - run.range.start;
                self.tx.control_messages += sent;
                true
            }
            Next::Wait => false,
            Next::Done => {
                let Some(owed) = current.open_ended.iter().position(|c| *c == index) else { return false };
                current.open_ended.swap_remove(owed);
                self.tx.control_messages += 1;
                let end = Frame::End { message: current.message };
                self.channels[index].tx.put(None, 0..0, &[end]);
                true
            }
        }
    }

    /// Writes what `index` has pending; whether anything went out. `Pending`: the socket takes nothing now.
    fn write(
        &mut self,
        index: usize,
        cx: &mut Context<'_>,
        source: &mut Option<&mut dyn Source>,
    ) -> Poll<std::io::Result<bool>> {
        let mut wrote = false;
        loop {
            let channel = &mut self.channels[index];
            let (Some(socket), Some(pending)) = (&channel.socket, &mut channel.tx.pending) else {
                return Poll::Ready(Ok(wrote));
            };
            let want = (pending.payload.end - pending.payload.start).min(1 << 30) as usize;
            let payload: &[u8] = if want == 0 {
                &[]
            } else {
                let offset = pending.payload.start;
                match self.tx.find(pending.message) {
                    // A probe, or a message that arrived by other channels meanwhile: the peer throws the rest away.
                    None => &ZEROS[..want.min(ZEROS.len())],
                    Some(Outgoing { copy: Some(copy), .. }) => &copy[offset as usize..offset as usize + want],
                    Some(_) => match source {
                        Some(source) => source.bytes(index, offset, want),
                        None => return Poll::Ready(Ok(wrote)),
                    },
                }
            };
            let head = &pending.head[pending.head_range.clone()];
            let n = match socket.poll_write(cx, &[IoSlice::new(head), IoSlice::new(payload)]) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if wrote => return Poll::Ready(Ok(true)),
                Poll::Pending => return Poll::Pending,
            };
            wrote = true;
            channel.tx.written += n as u64;
            let of_head = n.min(pending.head_range.len());
            pending.head_range.start += of_head;
            pending.payload.start += (n - of_head) as u64;
            if pending.head_range.is_empty() && pending.payload.is_empty() {
                channel.tx.pending = None;
                return Poll::Ready(Ok(true));
            }
        }
    }

    /// Takes in what the peer has got.
    pub(crate) fn apply_report(&mut self, report: &Report) -> Result<()> {
        for row in &report.channels {
            let Some(channel) = self.channels.iter_mut().find(|c| c.id == row.channel && c.socket.is_some()) else {
                continue;
            };
            if row.position > channel.tx.written {
                let what =
                    format!("it confirms {} bytes of a channel that carried {}", row.position, channel.tx.written);
                self.fail(Failure::Protocol(what.clone()));
                return Err(Error::Protocol(what));
            }
            channel.tx.confirmed = channel.tx.confirmed.max(row.position);
            while channel.tx.in_flight.front().is_some_and(|r| r.end <= channel.tx.confirmed) {
                channel.tx.in_flight.pop_front();
            }
            channel.tx.rate.report(row.busy_bytes, row.busy_us);
            let fast = channel.tx.rate.outruns_reader() && channel.tx.confirmed >= u64::from(PROBE_BYTES);
            if let Some(socket) = channel.socket.as_ref().filter(|_| fast) {
                channel.tx.rate.delivered(socket.info().delivery_bytes_s);
            }
        }
        self.follow_rates();
        self.close_heard |= report.close_heard;
        let below = report.completed_below;
        if serial_less(self.tx.next_message, below) {
            let what = format!("it confirms message {below}, and {} were sent", self.tx.next_message);
            self.fail(Failure::Protocol(what.clone()));
            return Err(Error::Protocol(what));
        }
        while let Some(held) = self.tx.held.pop_front_if(|h| serial_less(h.message, below)) {
            self.tx.held_bytes -= held.total_bytes;
            self.tx.keep_spare(held);
        }
        if let Some(current) = self.tx.current.take_if(|c| serial_less(c.message, below)) {
            self.tx.keep_spare(current);
        }
        Ok(())
    }

    /// Keeps each socket's unsent bytes in step with its rate, and runs in step with its buffer.
    pub(crate) fn follow_rates(&mut self) {
        for index in 0..self.channels.len() {
            let Channel { socket, tx, .. } = &mut self.channels[index];
            if let Some(socket) = socket {
                tx.follow_buffer(socket);
            }
            let limit = self.unsent_limit(self.channels[index].tx.rate.rate_bytes_s());
            let channel = &mut self.channels[index];
            let ratio = f64::from(limit) / f64::from(channel.tx.unsent_limit);
            if let Some(socket) = channel.socket.as_ref().filter(|_| !(0.7..1.5).contains(&ratio)) {
                let _ = socket.set_unsent_limit(limit);
                channel.tx.unsent_limit = limit;
            }
        }
    }

    /// How many unsent bytes the socket of a channel of this rate may hold.
    pub(crate) fn unsent_limit(&self, rate_bytes_s: f64) -> u32 {
        match self.config.strategy {
            Strategy::SharedCounter | Strategy::TwoEnded => (4 * self.config.fragment_bytes).max(PAPER_UNSENT_BYTES),
            _ if rate_bytes_s == 0.0 => crate::socket::INITIAL_UNSENT_BYTES,
            _ => (rate_bytes_s * UNSENT_US / 1e6).clamp(MIN_UNSENT_BYTES, MAX_UNSENT_BYTES) as u32,
        }
    }

    pub(super) fn refresh_views(&mut self) {
        let now = Instant::now();
        self.tx.views.clear();
        let view = |c: &mut Channel| c.tx.view(c.socket.as_ref(), c.latency_us, now);
        self.tx.views.extend(self.channels.iter_mut().map(view));
    }
}

impl Outgoing {
    fn is_claimed(&self) -> bool {
        self.begun && self.striping.is_claimed()
    }
}

impl Tx {
    /// An empty buffer for the copy of a message of `bytes`.
    pub(crate) fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let spare = if bytes < MIN_SPARE_BYTES { None } else { self.spares.pop() };
        spare.unwrap_or_else(|| Vec::with_capacity(bytes))
    }

    fn keep_spare(&mut self, confirmed: Outgoing) {
        if let Some(mut copy) = confirmed.copy.filter(|c| c.capacity() >= MIN_SPARE_BYTES)
            && self.spares.len() < MAX_SPARES
        {
            copy.clear();
            self.spares.push(copy);
        }
    }

    fn find(&self, message: Option<u32>) -> Option<&Outgoing> {
        let message = message?;
        self.current
            .as_ref()
            .filter(|c| c.message == message)
            .or_else(|| self.held.iter().find(|h| h.message == message))
    }

    pub(super) fn find_mut(&mut self, message: u32) -> Option<&mut Outgoing> {
        match &mut self.current {
            Some(current) if current.message == message => Some(current),
            _ => self.held.iter_mut().find(|h| h.message == message),
        }
    }
}

/// Whether serial number `a` comes before `b`; they wrap around.
pub(crate) fn serial_less(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The serial number nearest to `near` that ends in `low`: no more than [`MAX_HELD_MESSAGES`] are between the two sides.
pub(crate) fn serial_near(near: u32, low: u16) -> u32 {
    let ahead = low.wrapping_sub(near as u16) as i16;
    near.wrapping_add_signed(i32::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_are_found_by_their_lower_half() {
        let most = MAX_HELD_MESSAGES as u32 + 1;
        for near in [0, 5, 65_535, 65_536, u32::MAX - 3, u32::MAX] {
            for serial in [near.wrapping_sub(most), near.wrapping_sub(1), near, near.wrapping_add(most)] {
                assert_eq!(serial_near(near, serial as u16), serial, "near {near}");
            }
        }
    }
}
