//! The sending half: claims runs for channels that can take them, writes them, and keeps what is not confirmed.

use super::state::{Failure, State};
use crate::error::{Error, Result};
use crate::payload::Source;
use multirail_proto::striping::{ChannelView, Framing, Next, Run, Strategy, Striping, rate::RateEstimator};
use multirail_proto::wire::{Frame, MAX_HEAD_BYTES, Report};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Messages up to this length are copied, so that sending returns as soon as the kernel has them, as with TCP. Longer ones are
/// sent from the caller's memory, and sending returns when the peer has confirmed them: with several channels a copy would
/// cost more than the half round trip.
pub const COPY_LIMIT_BYTES: u64 = 64 << 10;
/// At most this much is copied and not confirmed; sending waits at the limit. Also the most that the peer must keep of
/// messages that overtook an earlier one. Covers 100 Mbit/s over 300 ms.
pub const WINDOW_BYTES: u64 = 4 << 20;
/// At most so many messages are copied and not confirmed, however small.
pub const MAX_HELD_MESSAGES: usize = 4096;
/// What a new channel sends first, and an unused one now and then, so that the peer can tell its rate.
pub(crate) const PROBE_BYTES: u32 = 32 << 10;
/// A channel's socket holds unsent what it can send in this time: enough to bridge a wake-up, little enough to stay free.
const UNSENT_US: f64 = 2_000.0;
const MIN_UNSENT_BYTES: f64 = 16_384.0;
/// The papers' strategies balance by blocking in the socket. Its buffer was 16 KiB by default in the kernels of their time;
/// measured here, less makes channels run dry between two fragments, and more blurs which one is the slower.
const PAPER_UNSENT_BYTES: u32 = 16 << 10;
const MAX_UNSENT_BYTES: f64 = 4_194_304.0;

/// A receiver may keep back the acknowledgement of less than two full packets, for this long at most.
const DELAYED_ACK_BYTES: u64 = 2 * 1448;
const DELAYED_ACK: Duration = Duration::from_millis(50);
/// A channel of which nothing was acknowledged for this long, and for four round trips, is taken to be stuck. Longer than a
/// retransmission and what a loaded host adds; see `watch_progress`.
const STALLED_AFTER: Duration = Duration::from_millis(300);
/// What a packet carries beside our bytes: Ethernet, IPv4 and TCP with time stamps.
const PACKET_OVERHEAD_BYTES: u64 = 66;
/// A wire is taken to be busy for longer than the rate says by this factor: rates are known to a few per cent, and where a
/// message takes about as long as its wire does, an equal rail that is surely free is the better one.
const WIRE_MARGIN: f64 = 1.25;
/// What was claimed keeps no wire busy for longer, as far as we know.
const MAX_WIRE_S: f64 = 1.0;
/// A full packet on the wire.
const PACKET_BYTES: f64 = 1514.0;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What a session is sending.
#[derive(Debug, Default)]
pub(crate) struct Tx {
    /// Serial number of the next message.
    pub next_message: u32,
    /// Every message below is confirmed.
    pub confirmed_below: u32,
    /// The message that is being claimed: the last one begun.
    pub current: Option<Outgoing>,
    /// Claimed whole, copied, and not confirmed, in order.
    held: VecDeque<Outgoing>,
    held_bytes: u64,
    /// Some held message has something given back.
    resend: bool,
    views: Vec<ChannelView>,
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
    copy: Option<Vec<u8>>,
    striping: Striping,
    fragment_bytes: u32,
    /// Some run was claimed: an empty message has nothing unclaimed from the start.
    begun: bool,
    /// Channels that have sent Start and owe an End.
    open_ended: Vec<usize>,
    /// Ranges that were sent a second time already.
    rescued: Vec<Range<u64>>,
}

/// A channel's sending side.
#[derive(Debug)]
pub(crate) struct TxChannel {
    /// Bytes of the channel's stream: claimed for it, written to the socket, taken by the peer.
    claimed: u64,
    pub written: u64,
    confirmed: u64,
    /// Taken by the peer's kernel, when last asked.
    acknowledged: u64,
    pub rate: RateEstimator,
    unsent_limit: u32,
    pending: Option<Pending>,
    in_flight: VecDeque<InFlight>,
    /// Since when something has been unacknowledged without a break.
    busy_since: Option<Instant>,
    /// When the wire has carried everything claimed so far, by the rate.
    wire_free_at: Instant,
    /// The message last announced by an Open.
    opened: Option<u32>,
    probe: bool,
    retiring: bool,
    /// What the peer's kernel had taken when it was last seen to take something, and when that was.
    progress: (u64, Instant),
    /// It has taken nothing for a while.
    stalled: bool,
    /// Payload bytes claimed, for people.
    pub payload_bytes: u64,
}

/// The run being written.
#[derive(Debug)]
struct Pending {
    head: [u8; MAX_HEAD_BYTES],
    head_range: Range<usize>,
    message: Option<u32>,
    payload: Range<u64>,
}

/// A run that was claimed and is not confirmed.
#[derive(Debug)]
struct InFlight {
    /// Position in the channel's stream at which its payload ends.
    end: u64,
    message: u32,
    range: Range<u64>,
}

impl TxChannel {
    pub(crate) fn new(unsent_limit: u32) -> Self {
        Self {
            claimed: 0,
            written: 0,
            confirmed: 0,
            acknowledged: 0,
            rate: RateEstimator::default(),
            unsent_limit,
            pending: None,
            in_flight: VecDeque::new(),
            busy_since: None,
            wire_free_at: Instant::now(),
            opened: None,
            probe: false,
            retiring: false,
            progress: (0, Instant::now()),
            stalled: false,
            payload_bytes: 0,
        }
    }

    fn is_sending(&self, message: u32) -> bool {
        self.pending.as_ref().is_some_and(|p| p.message == Some(message))
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring
    }

    /// Whether everything the retiring channel had has arrived.
    pub(crate) fn is_retired(&self) -> bool {
        self.retiring && self.pending.is_none() && self.in_flight.is_empty()
    }

    /// Has the channel send padding when it next can.
    pub(crate) fn queue_probe(&mut self) {
        self.probe = true;
    }

    /// Puts up `head` and a payload to be written.
    fn put(&mut self, message: Option<u32>, payload: Range<u64>, frames: &[Frame]) {
        let mut head = [0; MAX_HEAD_BYTES];
        let mut length = 0;
        for frame in frames {
            length += frame.encode(&mut head[length..]);
        }
        let bytes = length as u64 + (payload.end - payload.start);
        self.claimed += bytes;
        let now = Instant::now();
        self.busy_since.get_or_insert(now);
        let rate_bytes_s = self.rate.rate_bytes_s();
        self.wire_free_at = self.wire_free_at.max(now);
        if rate_bytes_s > 0.0 {
            // The margins of many messages must not add up.
            let packet_s = (PACKET_BYTES / rate_bytes_s).min(MAX_WIRE_S);
            self.wire_free_at = self.wire_free_at.min(now + Duration::from_secs_f64(packet_s));
            // A stalled channel's rate falls towards zero without end.
            let wire_s = WIRE_MARGIN * (bytes + PACKET_OVERHEAD_BYTES) as f64 / rate_bytes_s;
            self.wire_free_at += Duration::from_secs_f64(wire_s.min(MAX_WIRE_S));
        }
        if let Some(message) = message {
            self.in_flight.push_back(InFlight { end: self.claimed, message, range: payload.clone() });
        }
        self.pending = Some(Pending { head, head_range: 0..length, message, payload });
    }
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

    /// Goes on with `message`; ready when a copied one is with the kernel, or any other confirmed.
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

    /// Lays the current message aside when it is a copy and the kernel has all of it.
    fn hold_current(&mut self) {
        let channels = &self.channels;
        let with_kernel = |c: &mut Outgoing| {
            c.copy.is_some()
                && c.is_claimed()
                && c.open_ended.is_empty()
                && channels.iter().all(|ch| ch.tx.stalled || !ch.tx.is_sending(c.message))
        };
        if let Some(current) = self.tx.current.take_if(with_kernel) {
            self.tx.held_bytes += current.total_bytes;
            self.tx.held.push_back(current);
        }
    }

    /// Whether everything sent is confirmed.
    pub(crate) fn all_confirmed(&self) -> bool {
        self.tx.current.is_none() && self.tx.held.is_empty()
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

    /// Sends again, on channels with nothing to do, what others are stuck with. Called while all is claimed and not confirmed.
    pub(crate) fn rescue(&mut self) {
        self.refresh_views();
        for index in 0..self.channels.len() {
            let idle = self.channels[index].tx.pending.is_none() && self.tx.views[index].backlog_bytes == 0;
            if !idle || !self.tx.views[index].up {
                continue;
            }
            let outstanding = self.outstanding();
            let Some(current) = &mut self.tx.current else { return };
            // What was sent twice already is no longer waited for.
            let (rescued, waited_for): (Vec<_>, Vec<_>) = outstanding
                .into_iter()
                .partition(|(_, range)| current.rescued.iter().any(|r| r.start < range.end && range.start < r.end));
            let mut views = self.tx.views.clone();
            for (channel, range) in rescued {
                views[channel].backlog_bytes = views[channel].backlog_bytes.saturating_sub(range.end - range.start);
            }
            let Some(range) = current.striping.rescue(index, &views, &waited_for) else { continue };
            tracing::debug!(channel = index, ?range, "sending again what another channel is stuck with");
            current.rescued.push(range.clone());
            self.tx.resent_bytes += range.end - range.start;
            let run = Run { range, framing: Framing::Header };
            self.tx.control_messages += put_run(&mut self.channels[index].tx, current, index, &run);
            self.tx.views[index].backlog_bytes += run.range.end - run.range.start;
        }
    }

    /// What of the current message was claimed and has not been acknowledged, cut where it was sent twice, with its channel.
    fn outstanding(&self) -> Vec<(usize, Range<u64>)> {
        let Some(current) = &self.tx.current else { return Vec::new() };
        let mut ranges = Vec::new();
        for (index, channel) in self.channels.iter().enumerate() {
            let Some(socket) = &channel.socket else { continue };
            let acknowledged = channel.tx.written.saturating_sub(socket.unacknowledged_bytes());
            for run in channel.tx.in_flight.iter().filter(|r| r.message == current.message && r.end > acknowledged) {
                let length = run.range.end - run.range.start;
                let arrived = acknowledged.saturating_sub(run.end - length);
                let mut left = run.range.start + arrived..run.range.end;
                let mut cuts: Vec<u64> = current.rescued.iter().flat_map(|r| [r.start, r.end]).collect();
                cuts.sort_unstable();
                for cut in cuts {
                    if left.start < cut && cut < left.end {
                        ranges.push((index, left.start..cut));
                        left.start = cut;
                    }
                }
                ranges.push((index, left));
            }
        }
        ranges
    }

    /// Notices, once in a while, whether a channel's bytes go out. If nothing does for [`STALLED_AFTER`], what it has is put up for
    /// the others, which costs little if it was only slow, and saves the rest of [`crate::socket::DEAD_AFTER`] if it is dead.
    pub(crate) fn watch_progress(&mut self, index: usize, window_closed: bool) {
        let now = Instant::now();
        let others = self.channels.iter().enumerate().any(|(i, c)| i != index && c.socket.is_some() && !c.tx.stalled);
        let channel = &mut self.channels[index];
        let Some(socket) = &channel.socket else { return };
        let tx = &mut channel.tx;
        let acknowledged = tx.written.saturating_sub(socket.unacknowledged_bytes());
        if acknowledged > tx.progress.0 || acknowledged == tx.written || window_closed {
            tx.progress = (acknowledged, now);
            tx.stalled = false;
            return;
        }
        let patience = STALLED_AFTER.max(4 * Duration::from_micros(channel.rtt_us.into()));
        if tx.stalled || !others || now.duration_since(tx.progress.1) < patience {
            return;
        }
        tracing::debug!(channel = channel.id, "stalled");
        tx.stalled = true;
        self.refresh_views();
        self.return_unconfirmed(index);
    }

    /// Has a channel take nothing more. What it has claimed it still sends.
    pub(crate) fn transmit_retire(&mut self, index: usize) {
        self.channels[index].tx.retiring = true;
        self.channels[index].tx.probe = false;
        self.refresh_views();
        if let Some(current) = &mut self.tx.current {
            current.striping.channel_lost(index, &self.tx.views);
        }
    }

    /// A channel is gone: what it had and the peer has not confirmed is put up for claiming.
    pub(crate) fn transmit_lost(&mut self, index: usize) {
        self.refresh_views();
        let tx = &mut self.channels[index].tx;
        tx.pending = None;
        tx.probe = false;
        self.return_unconfirmed(index);
    }

    /// Puts up for claiming what a channel has and the peer has not confirmed.
    fn return_unconfirmed(&mut self, index: usize) {
        let tx = &mut self.channels[index].tx;
        if let Some(current) = &mut self.tx.current {
            current.open_ended.retain(|c| *c != index);
            current.striping.channel_lost(index, &self.tx.views);
        }
        for run in std::mem::take(&mut tx.in_flight) {
            let length = run.range.end - run.range.start;
            let confirmed = tx.confirmed.saturating_sub(run.end - length).min(length);
            if let Some(outgoing) = self.tx.find_mut(run.message) {
                outgoing.striping.give_back(run.range.start + confirmed..run.range.end);
                self.tx.resend = true;
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
        }
        self.follow_rates();
        self.close_heard |= report.close_heard;
        let below = report.completed_below;
        if serial_less(self.tx.next_message, below) {
            let what = format!("it confirms message {below}, and {} were sent", self.tx.next_message);
            self.fail(Failure::Protocol(what.clone()));
            return Err(Error::Protocol(what));
        }
        if serial_less(self.tx.confirmed_below, below) {
            self.tx.confirmed_below = below;
        }
        while let Some(held) = self.tx.held.pop_front_if(|h| serial_less(h.message, below)) {
            self.tx.held_bytes -= held.total_bytes;
        }
        self.tx.current.take_if(|c| serial_less(c.message, below));
        Ok(())
    }

    /// Keeps each socket's unsent bytes in step with its rate.
    pub(crate) fn follow_rates(&mut self) {
        for index in 0..self.channels.len() {
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

    fn refresh_views(&mut self) {
        let now = Instant::now();
        self.tx.views.clear();
        self.tx.views.extend(self.channels.iter_mut().map(|channel| {
            let tx = &mut channel.tx;
            tx.acknowledged = tx.acknowledged.max(tx.confirmed);
            // So few have arrived by the rate, and only their acknowledgement is kept back: not worth asking the kernel.
            let expected = |tx: &TxChannel| {
                tx.written - tx.acknowledged <= DELAYED_ACK_BYTES && now < tx.wire_free_at + DELAYED_ACK
            };
            if let Some(socket) = channel.socket.as_ref().filter(|_| tx.written > tx.acknowledged && !expected(tx)) {
                tx.acknowledged = tx.written.saturating_sub(socket.unacknowledged_bytes()).max(tx.acknowledged);
            }
            let unacknowledged = if expected(tx) { 0 } else { tx.written - tx.acknowledged };
            let outstanding = tx.claimed - tx.written + unacknowledged;
            if outstanding == 0 {
                tx.busy_since = None;
            }
            let mut view = ChannelView {
                up: channel.socket.is_some() && !tx.retiring && !tx.stalled,
                rate_bytes_s: tx.rate.rate_bytes_s(),
                latency_us: channel.latency_us,
                backlog_bytes: 0,
            };
            let busy = tx.busy_since.map_or(Duration::ZERO, |since| now.duration_since(since));
            view.set_backlog(outstanding, busy.as_secs_f64() * 1e6);
            // Acknowledged is not yet carried: a shaper, or a NIC's queue, lets a packet pass and takes its time
            // afterwards. So small messages take turns on rails that are equal, instead of waiting on one.
            let wire = tx.wire_free_at.saturating_duration_since(now).as_secs_f64() * view.rate_bytes_s;
            view.backlog_bytes = view.backlog_bytes.max(wire.min(2.0 * PACKET_BYTES) as u64);
            view
        }));
    }
}

impl Outgoing {
    fn is_claimed(&self) -> bool {
        self.begun && self.striping.is_claimed()
    }
}

impl Tx {
    fn find(&self, message: Option<u32>) -> Option<&Outgoing> {
        let message = message?;
        self.current
            .as_ref()
            .filter(|c| c.message == message)
            .or_else(|| self.held.iter().find(|h| h.message == message))
    }

    fn find_mut(&mut self, message: u32) -> Option<&mut Outgoing> {
        match &mut self.current {
            Some(current) if current.message == message => Some(current),
            _ => self.held.iter_mut().find(|h| h.message == message),
        }
    }
}

/// Announces `run` on a channel; returns the control messages that took.
fn put_run(channel: &mut TxChannel, outgoing: &mut Outgoing, index: usize, run: &Run) -> u64 {
    let Outgoing { message, total_bytes, fragment_bytes, .. } = *outgoing;
    let length = (run.range.end - run.range.start) as u32;
    let confirm = outgoing.copy.is_none();
    outgoing.begun = true;
    channel.payload_bytes += u64::from(length);
    match run.framing {
        // An empty message has no fragments that a Start could announce.
        framing if framing == Framing::Header || total_bytes == 0 => {
            let whole = run.range == (0..total_bytes);
            let frame = Frame::Run { message, offset: run.range.start, length, whole, confirm };
            if whole || channel.opened == Some(message) {
                channel.put(Some(message), run.range.clone(), &[frame]);
                return 1;
            }
            channel.opened = Some(message);
            let open = Frame::Open { message, total_bytes, confirm };
            channel.put(Some(message), run.range.clone(), &[open, frame]);
            2
        }
        Framing::Start(direction) => {
            if !outgoing.open_ended.contains(&index) {
                outgoing.open_ended.push(index);
            }
            let offset = run.range.start;
            let start = Frame::Start { message, direction, fragment_bytes, offset, total_bytes, confirm };
            channel.put(Some(message), run.range.clone(), &[start]);
            1
        }
        _ => {
            channel.put(Some(message), run.range.clone(), &[Frame::Continue]);
            0
        }
    }
}

/// Whether serial number `a` comes before `b`; they wrap around.
pub(crate) fn serial_less(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
