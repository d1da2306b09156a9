//! A channel's sending side: what was claimed for it, written and confirmed, and what its wire has still to carry.

use super::transmit::Outgoing;
use crate::socket::ChannelSocket;
use multirail_proto::striping::{ChannelView, Framing, Run, rate::RateEstimator};
use multirail_proto::wire::{Frame, MAX_HEAD_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A receiver may keep back the acknowledgement of less than two full packets, for this long at most.
const DELAYED_ACK_BYTES: u64 = 2 * 1448;
const DELAYED_ACK: Duration = Duration::from_millis(50);
/// What a packet carries beside our bytes: Ethernet, IPv4 and TCP with time stamps.
const PACKET_OVERHEAD_BYTES: u64 = 66;
/// A wire is taken to be busy for longer than the rate says by this factor: rates are known to a few per cent, and where a
/// message takes about as long as its wire does, an equal rail that is surely free is the better one.
const WIRE_MARGIN: f64 = 1.25;
/// What was claimed keeps no wire busy for longer, as far as we know.
const MAX_WIRE_S: f64 = 1.0;
/// A writable socket has a third of its buffer free, of which half is the kernel's own need.
const ROOM_SHARE: u64 = 8;
/// A full packet on the wire.
const PACKET_BYTES: f64 = 1514.0;

/// A channel's sending side.
#[derive(Debug)]
pub(crate) struct TxChannel {
    /// Bytes of the channel's stream: claimed for it, written to the socket, taken by the peer.
    pub(super) claimed: u64,
    pub written: u64,
    pub(super) confirmed: u64,
    /// Taken by the peer's kernel, when last asked.
    acknowledged: u64,
    pub rate: RateEstimator,
    pub(super) unsent_limit: u32,
    /// The socket's send buffer.
    buffer_bytes: u64,
    pub(super) pending: Option<Pending>,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Since when something has been unacknowledged without a break.
    busy_since: Option<Instant>,
    /// When the wire has carried everything claimed so far, by the rate.
    wire_free_at: Instant,
    /// The message last announced by an Open.
    pub(super) opened: Option<u32>,
    pub(super) probe: bool,
    pub(super) retiring: bool,
    /// What the peer's kernel had taken when it was last seen to take something, and when that was.
    pub(super) progress: (u64, Instant),
    /// It has taken nothing for a while.
    pub(super) stalled: bool,
    /// Payload bytes claimed, for people.
    pub payload_bytes: u64,
}

/// The run being written.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) head: [u8; MAX_HEAD_BYTES],
    pub(super) head_range: Range<usize>,
    pub(super) message: Option<u32>,
    pub(super) payload: Range<u64>,
}

/// A run that was claimed and is not confirmed.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Position in the channel's stream at which its payload ends.
    pub(super) end: u64,
    pub(super) message: u32,
    pub(super) range: Range<u64>,
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
            buffer_bytes: u64::MAX,
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

    /// Learns how much the socket takes.
    pub(super) fn follow_buffer(&mut self, socket: &ChannelSocket) {
        self.buffer_bytes = socket.send_buffer_bytes().unwrap_or(u64::MAX);
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring
    }

    /// Whether everything the retiring channel had has arrived.
    pub(crate) fn is_retired(&self) -> bool {
        self.retiring && self.pending.is_none() && self.in_flight.is_empty()
    }

    /// Whether nothing was sent on it.
    pub(crate) fn is_new(&self) -> bool {
        self.claimed == 0
    }

    /// Has the channel send padding when it next can.
    pub(crate) fn queue_probe(&mut self) {
        self.probe = true;
    }

    /// Puts up `head` and a payload to be written.
    pub(super) fn put(&mut self, message: Option<u32>, payload: Range<u64>, frames: &[Frame]) {
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

    /// What the strategy is told of the channel.
    pub(super) fn view(&mut self, socket: Option<&ChannelSocket>, latency_us: f64, now: Instant) -> ChannelView {
        self.acknowledged = self.acknowledged.max(self.confirmed);
        // So few have arrived by the rate, and only their acknowledgement is kept back: not worth asking the kernel.
        let expected =
            |tx: &Self| tx.written - tx.acknowledged <= DELAYED_ACK_BYTES && now < tx.wire_free_at + DELAYED_ACK;
        if let Some(socket) = socket.filter(|_| self.written > self.acknowledged && !expected(self)) {
            self.acknowledged = self.written.saturating_sub(socket.unacknowledged_bytes()).max(self.acknowledged);
        }
        let unacknowledged = if expected(self) { 0 } else { self.written - self.acknowledged };
        let outstanding = self.claimed - self.written + unacknowledged;
        if outstanding == 0 {
            self.busy_since = None;
        }
        let mut view = ChannelView {
            up: socket.is_some() && !self.retiring && !self.stalled,
            rate_bytes_s: self.rate.rate_bytes_s(),
            latency_us,
            backlog_bytes: 0,
            max_run_bytes: u64::MAX,
        };
        let busy = self.busy_since.map_or(Duration::ZERO, |since| now.duration_since(since));
        view.set_backlog(outstanding, busy.as_secs_f64() * 1e6);
        // Acknowledged is not yet carried: a shaper, or a NIC's queue, lets a packet pass and takes its time
        // afterwards. So small messages take turns on rails that are equal, instead of waiting on one.
        let wire = self.wire_free_at.saturating_duration_since(now).as_secs_f64() * view.rate_bytes_s;
        view.backlog_bytes = view.backlog_bytes.max(wire.min(2.0 * PACKET_BYTES) as u64);
        if unacknowledged > self.buffer_bytes / 4 {
            view.max_run_bytes = self.buffer_bytes / ROOM_SHARE;
        }
        // The buffer is the path's limit: the kernel would make it twice the window otherwise. Nothing is taken until a third of
        // it is free again, and meanwhile others are better, which are free now.
        if unacknowledged > self.buffer_bytes / 2 {
            view.backlog_bytes += self.buffer_bytes / 3;
        }
        view
    }
}

/// Announces `run` on a channel; returns the control messages that took.
pub(super) fn put_run(channel: &mut TxChannel, outgoing: &mut Outgoing, index: usize, run: &Run) -> u64 {
    let Outgoing { message, total_bytes, fragment_bytes, .. } = *outgoing;
    let length = (run.range.end - run.range.start) as u32;
    let confirm = outgoing.copy.is_none();
    outgoing.begun = true;
    channel.payload_bytes += u64::from(length);
    match run.framing {
        // An empty message has no fragments that a Start could announce.
        framing if framing == Framing::Header || total_bytes == 0 => {
            if run.range == (0..total_bytes) {
                channel.put(
                    Some(message),
                    run.range.clone(),
                    &[Frame::Whole { message_low: message as u16, length, confirm }],
                );
                return 1;
            }
            let frame = Frame::Run { message, offset: run.range.start, length };
            if channel.opened == Some(message) {
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
