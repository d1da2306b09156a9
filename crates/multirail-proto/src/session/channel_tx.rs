//! The sending side of one channel: what was claimed, written and confirmed, and how long its wire
//! is busy.

use super::path::Paths;
use super::time::Time;
use crate::striping::rate::RateEstimator;
use crate::striping::{Channel, ChannelView};
use crate::wire::{Frame, MAX_HEAD_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// A receiver may delay the acknowledgement of less than two full packets ...
const DELAYED_ACK_BYTES: u64 = 2 * 1448;
/// ... by this time at most.
const DELAYED_ACK: Duration = Duration::from_millis(50);
/// What a packet carries beside the channel's bytes: Ethernet, IPv4 and TCP with time stamps.
const PACKET_OVERHEAD_BYTES: u64 = 66;
/// The wire counts as busy for longer than the rate says, by this factor. Rates are known to a few
/// per cent, and where a message takes about as long as its wire is busy, an equal rail that is
/// certainly free is the better choice.
const WIRE_MARGIN: f64 = 1.25;
/// What was claimed keeps the wire busy for at most this long, in seconds.
const MAX_WIRE_S: f64 = 1.0;
/// A run on a busy channel is at most this fraction of the send buffer: a writable socket has a
/// third of its buffer free, and half of that is the kernel's own overhead.
const ROOM_SHARE: u64 = 8;
/// A full packet on the wire.
const PACKET_BYTES: f64 = 1514.0;

/// The sending side of a channel.
#[derive(Debug)]
pub(super) struct TxChannel {
    /// Bytes of the channel's stream that were claimed for it, headers included.
    claimed: u64,
    /// Bytes of the channel's stream that were written to its socket.
    pub(super) written: u64,
    /// Bytes of the channel's stream that the peer has taken from its socket, by its reports.
    pub(super) confirmed: u64,
    /// Bytes that the peer's kernel had acknowledged when it was last asked.
    acknowledged: u64,
    /// The rate at which the peer sees this channel's bytes arrive.
    pub(super) rate: RateEstimator,
    /// How many unsent bytes the socket may hold.
    pub(super) unsent_limit: u32,
    /// Size of the socket's send buffer.
    buffer_bytes: u64,
    /// The run that is being written.
    pub(super) pending: Option<Pending>,
    /// Claimed runs that are not confirmed, in the order of the channel's stream.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Since when some bytes have been unacknowledged without a break.
    busy_since: Option<Time>,
    /// When the wire will have carried everything that was claimed, by the rate.
    wire_free_at: Time,
    /// The message that the last *Open* on this channel announced.
    pub(super) opened: Option<u32>,
    /// Padding should be sent when the channel can next take bytes.
    pub(super) probe: bool,
    /// The channel takes no new runs and is closed when it has delivered those that it has.
    pub(super) retiring: bool,
    /// Acknowledged bytes when they last grew.
    pub(super) progress_bytes: u64,
    /// When the acknowledged bytes last grew.
    pub(super) progress_at: Time,
    /// Nothing was acknowledged for a while.
    pub(super) stalled: bool,
    /// Payload bytes that were claimed, for statistics.
    pub(super) payload_bytes: u64,
}

/// The run that is being written.
#[derive(Debug)]
pub(super) struct Pending {
    head: [u8; MAX_HEAD_BYTES],
    head_range: Range<usize>,
    /// The message to which the payload belongs; `None` for padding.
    pub(super) message: Option<u32>,
    /// The part of the message that is still to be written.
    pub(super) payload: Range<u64>,
}

/// A run that was claimed and is not confirmed.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Position in the channel's stream at which the run's payload ends.
    pub(super) end: u64,
    /// The message to which it belongs.
    pub(super) message: u32,
    /// Its bytes in the message.
    pub(super) range: Range<u64>,
}

impl Pending {
    /// The headers that are still to be written.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[self.head_range.clone()]
    }

    /// Notes that `bytes` of the head and the payload were written; whether that was all.
    fn advance(&mut self, bytes: usize) -> bool {
        let of_head = bytes.min(self.head_range.len());
        self.head_range.start += of_head;
        self.payload.start += (bytes - of_head) as u64;
        self.head_range.is_empty() && self.payload.is_empty()
    }
}

impl TxChannel {
    pub(super) fn new(unsent_limit: u32, now: Time) -> Self {
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
            wire_free_at: now,
            opened: None,
            probe: false,
            retiring: false,
            progress_bytes: 0,
            progress_at: now,
            stalled: false,
            payload_bytes: 0,
        }
    }

    /// Notes the size of the socket's send buffer, which the kernel adapts to the path.
    pub(super) fn set_buffer_bytes(&mut self, bytes: Option<u64>) {
        self.buffer_bytes = bytes.unwrap_or(u64::MAX);
    }

    /// Whether a retiring channel has delivered everything.
    pub(super) fn is_retired(&self) -> bool {
        self.retiring && !self.has_unconfirmed()
    }

    /// Whether the peer has not confirmed all that was claimed.
    pub(super) fn has_unconfirmed(&self) -> bool {
        self.pending.is_some() || !self.in_flight.is_empty()
    }

    /// Whether nothing was sent on the channel.
    pub(super) fn is_new(&self) -> bool {
        self.claimed == 0
    }

    /// Claims `frames` and `payload` for the channel, to be written next.
    pub(super) fn put(&mut self, message: Option<u32>, payload: Range<u64>, frames: &[Frame], now: Time) {
        let mut head = [0; MAX_HEAD_BYTES];
        let mut length = 0;
        for frame in frames {
            length += frame.encode(&mut head[length..]);
        }
        let bytes = length as u64 + (payload.end - payload.start);
        self.claimed += bytes;
        self.busy_since.get_or_insert(now);
        self.occupy_wire(bytes, now);
        if let Some(message) = message {
            self.in_flight.push_back(InFlight { end: self.claimed, message, range: payload.clone() });
        }
        self.pending = Some(Pending { head, head_range: 0..length, message, payload });
    }

    /// Adds the time that the wire needs for `bytes`.
    fn occupy_wire(&mut self, bytes: u64, now: Time) {
        let rate_bytes_s = self.rate.rate_bytes_s();
        self.wire_free_at = self.wire_free_at.max(now);
        if rate_bytes_s > 0.0 {
            // The margins of many messages must not add up.
            let packet_s = (PACKET_BYTES / rate_bytes_s).min(MAX_WIRE_S);
            self.wire_free_at = self.wire_free_at.min(now + Duration::from_secs_f64(packet_s));
            // The rate of a stalled channel falls towards zero.
            let wire_s = WIRE_MARGIN * (bytes + PACKET_OVERHEAD_BYTES) as f64 / rate_bytes_s;
            self.wire_free_at = self.wire_free_at + Duration::from_secs_f64(wire_s.min(MAX_WIRE_S));
        }
    }

    /// Notes that the socket took `bytes` of the pending run.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        if self.pending.as_mut().is_some_and(|pending| pending.advance(bytes)) {
            self.pending = None;
        }
    }

    /// What a strategy is shown of the channel. `index` is its entry in the table, `up` whether it
    /// has a connection.
    pub(super) fn view(
        &mut self,
        index: Channel,
        up: bool,
        latency_us: f64,
        paths: &dyn Paths,
        now: Time,
    ) -> ChannelView {
        self.acknowledged = self.acknowledged.max(self.confirmed);
        if up && self.written > self.acknowledged && !self.is_ack_delayed(now) {
            self.acknowledged = self.written.saturating_sub(paths.unacknowledged_bytes(index)).max(self.acknowledged);
        }
        let unacknowledged = if self.is_ack_delayed(now) { 0 } else { self.written - self.acknowledged };
        let outstanding = self.claimed - self.written + unacknowledged;
        if outstanding == 0 {
            self.busy_since = None;
        }
        let mut view = ChannelView {
            up: up && !self.retiring && !self.stalled,
            rate_bytes_s: self.rate.rate_bytes_s(),
            latency_us,
            backlog_bytes: 0,
            max_run_bytes: u64::MAX,
        };
        let busy = self.busy_since.map_or(Duration::ZERO, |since| now.since(since));
        view.set_backlog(outstanding, busy.as_secs_f64() * 1e6);
        // Acknowledged bytes may still occupy the wire: a shaper, or a NIC's queue, lets a packet
        // pass and takes its time afterwards. Counting that makes small messages alternate between
        // equal rails instead of waiting on one of them.
        let wire = self.wire_free_at.since(now).as_secs_f64() * view.rate_bytes_s;
        view.backlog_bytes = view.backlog_bytes.max(wire.min(2.0 * PACKET_BYTES) as u64);
        if unacknowledged > self.buffer_bytes / 4 {
            view.max_run_bytes = self.buffer_bytes / ROOM_SHARE;
        }
        // The buffer is the path's limit, since the kernel would otherwise have made it twice the
        // window. The socket takes nothing until a third of it is free; other channels are free
        // now.
        if unacknowledged > self.buffer_bytes / 2 {
            view.backlog_bytes += self.buffer_bytes / 3;
        }
        view
    }

    /// Whether everything written should have arrived by the rate, and only its acknowledgement is
    /// delayed. Asking the kernel would then tell nothing.
    fn is_ack_delayed(&self, now: Time) -> bool {
        self.written - self.acknowledged <= DELAYED_ACK_BYTES && now < self.wire_free_at + DELAYED_ACK
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::PathInfo;
    use super::*;

    /// A path on which this many bytes are unacknowledged.
    struct Unacknowledged(u64);

    impl Paths for Unacknowledged {
        fn info(&self, _: Channel) -> PathInfo {
            PathInfo::default()
        }
        fn unacknowledged_bytes(&self, _: Channel) -> u64 {
            self.0
        }
        fn unread_bytes(&self, _: Channel) -> u64 {
            0
        }
        fn send_buffer_bytes(&self, _: Channel) -> Option<u64> {
            None
        }
        fn losses_mean_congestion(&self, _: Channel) -> bool {
            false
        }
    }

    fn written(payload_bytes: u64, now: Time) -> TxChannel {
        let mut tx = TxChannel::new(1 << 20, now);
        tx.put(Some(0), 0..payload_bytes, &[Frame::Run { message: 0, offset: 0, length: payload_bytes as u32 }], now);
        tx.wrote(16 + payload_bytes as usize);
        assert!(tx.pending.is_none());
        tx
    }

    #[test]
    fn an_acknowledgement_that_may_be_delayed_is_not_waited_for() {
        let backlog = |payload_bytes: u64, after: Duration| {
            let mut tx = written(payload_bytes, Time::ZERO);
            let view = tx.view(0, true, 0.0, &Unacknowledged(payload_bytes + 16), Time::ZERO + after);
            view.backlog_bytes
        };
        let most = DELAYED_ACK_BYTES - 16;
        let nearly = DELAYED_ACK - Duration::from_nanos(1);
        assert_eq!(backlog(most, nearly), 0);
        assert_eq!(backlog(most + 1, nearly), most + 17);
        assert_eq!(backlog(most, DELAYED_ACK), most + 16);
    }

    #[test]
    fn runs_are_short_and_others_preferred_while_the_buffer_is_full() {
        let view = |unacknowledged: u64| {
            let mut tx = written(1 << 20, Time::ZERO);
            tx.set_buffer_bytes(Some(120_000));
            tx.view(0, true, 0.0, &Unacknowledged(unacknowledged), Time::ZERO)
        };
        assert_eq!(view(30_000).max_run_bytes, u64::MAX);
        assert_eq!(view(30_001).max_run_bytes, 15_000);
        assert_eq!(view(60_000).backlog_bytes, 60_000);
        assert_eq!(view(60_001).backlog_bytes, 100_001);
    }

    #[test]
    fn a_channel_that_stands_still_or_retires_is_not_up_for_strategies() {
        let mut tx = TxChannel::new(1, Time::ZERO);
        let mut is_up = |stalled, retiring, up| {
            (tx.stalled, tx.retiring) = (stalled, retiring);
            tx.view(0, up, 0.0, &Unacknowledged(0), Time::ZERO).up
        };
        assert!(is_up(false, false, true));
        assert!(!is_up(true, false, true) && !is_up(false, true, true) && !is_up(false, false, false));
    }
}
