//! The link model: when each packet of one direction of a WAN leaves, and which packets are dropped
//! or lost.
//!
//! It does no I/O and reads no clock: `now_ns` is an argument, which never decreases. After
//! construction it does not allocate.
//!
//! A packet passes a drop-tail queue, a serializer with the rate of the link, the loss, and the
//! delay with its jitter, in this order. Packets stay in order. A GSO packet counts as its
//! segments. What the link keeps of it leaves in pieces of consecutive segments.

use crate::plan::relay::LinkParams;
use crate::spec::wan::Queue;
use std::collections::VecDeque;

/// The longest serialization time of a piece of several segments. Without it, a GSO packet of
/// 64 KiB at 10 Mbit/s would arrive as a whole after 50 ms.
const PIECE_MAX_NS: u64 = 1_000_000;
/// The most arrivals that a queue can hold, whatever its limit. It bounds the memory of a link.
const ARRIVALS_MAX: usize = 1 << 16;

/// A packet as it appears on the wire: segments, of which only the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) count: u32,
    /// The frame bytes of each segment but the last, with all headers.
    pub(crate) full_bytes: u32,
    /// The frame bytes of the last segment.
    pub(crate) last_bytes: u32,
}

impl Segments {
    /// A packet of one segment.
    pub(crate) fn one(frame_bytes: u32) -> Self {
        Self { count: 1, full_bytes: frame_bytes, last_bytes: frame_bytes }
    }

    /// The frame bytes of segments `from..to`.
    pub(crate) fn bytes(&self, from: u32, to: u32) -> u64 {
        let full = u64::from(to - from) * u64::from(self.full_bytes);
        if from < to && to == self.count { full - u64::from(self.full_bytes - self.last_bytes) } else { full }
    }
}

/// Consecutive segments of a packet that leave together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) departs_ns: u64,
}

/// How many segments of a packet do not leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Discarded {
    /// Segments that found the queue full.
    pub(crate) dropped: u32,
    /// Segments that the loss of the link took.
    pub(crate) lost: u32,
}

/// The state of one direction.
#[derive(Debug)]
pub(crate) struct RelayLink {
    /// When the serializer will have sent all admitted segments.
    free_ns: u64,
    last_departs_ns: u64,
    /// The packets of which the serializer has not begun all segments, oldest first.
    queued: VecDeque<QueuedPacket>,
    queued_packets: u64,
    queued_bytes: u64,
    random: SplitMix64,
}

#[derive(Debug)]
struct QueuedPacket {
    segments: Segments,
    /// How many of the segments the serializer has begun.
    begun: u32,
    /// When the serializer begins the first segment.
    begins_ns: u64,
    /// When the serializer ends the last segment.
    ends_ns: u64,
}

impl RelayLink {
    /// An idle link. Losses and jitter repeat with the seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            free_ns: 0,
            last_departs_ns: 0,
            queued: VecDeque::with_capacity(ARRIVALS_MAX),
            queued_packets: 0,
            queued_bytes: 0,
            random: SplitMix64(seed),
        }
    }

    /// Handles the arrival of a packet. Calls `piece` with each piece that will leave, in order.
    pub(crate) fn handle_packet(
        &mut self,
        now_ns: u64,
        params: &LinkParams,
        segments: Segments,
        mut piece: impl FnMut(Piece),
    ) -> Discarded {
        let begins_ns = self.free_ns.max(now_ns);
        let admitted = self.admit(now_ns, params, segments);
        let serialize_ns = |bytes: u64| serialization_ns(bytes, params.rate_bit_s);
        if admitted > 0 {
            self.free_ns = begins_ns + serialize_ns(segments.bytes(0, admitted));
        }
        let segment_ns = serialize_ns(u64::from(segments.full_bytes)).max(1);
        let piece_max = if params.rate_bit_s == 0 {
            segments.count
        } else {
            (PIECE_MAX_NS / segment_ns).clamp(1, u64::from(segments.count)) as u32
        };
        let mut lost = 0;
        let mut first = 0;
        let mut depart = |link: &mut Self, first: u32, end: u32| {
            let sent_ns = begins_ns + serialize_ns(segments.bytes(0, end));
            // A packet never leaves before it has been sent, even if the jitter exceeds the delay.
            let travel_ns =
                (params.delay_ns + link.random.up_to(2 * params.jitter_ns)).saturating_sub(params.jitter_ns);
            link.last_departs_ns = link.last_departs_ns.max(sent_ns + travel_ns);
            piece(Piece { first, count: end - first, departs_ns: link.last_departs_ns });
        };
        for segment in 0..admitted {
            if params.loss_ppm > 0 && self.random.up_to(999_999) < u64::from(params.loss_ppm) {
                lost += 1;
                if first < segment {
                    depart(self, first, segment);
                }
                first = segment + 1;
            } else if segment + 1 - first == piece_max {
                depart(self, first, segment + 1);
                first = segment + 1;
            }
        }
        if first < admitted {
            depart(self, first, admitted);
        }
        Discarded { dropped: segments.count - admitted, lost }
    }

    /// The number of packets that wait, without the one in the serializer.
    pub(crate) fn queued_packets(&self) -> u64 {
        self.queued_packets
    }

    /// Admits as many leading segments as the queue has room for, and returns their number.
    fn admit(&mut self, now_ns: u64, params: &LinkParams, segments: Segments) -> u32 {
        self.begin_until(now_ns);
        if params.rate_bit_s == 0 {
            return segments.count;
        }
        // An idle serializer takes the first segment at once.
        let at_once = u32::from(self.free_ns <= now_ns);
        let room = match params.queue {
            Queue::Packets(limit) => limit.saturating_sub(self.queued_packets).min(u64::from(segments.count)) as u32,
            Queue::Bytes(limit) => {
                let room_bytes = limit.saturating_sub(self.queued_bytes);
                if segments.bytes(at_once.min(segments.count), segments.count) <= room_bytes {
                    segments.count
                } else {
                    // At least the last segment does not fit, so all that fit are full ones.
                    (room_bytes / u64::from(segments.full_bytes.max(1))).min(u64::from(segments.count - 1)) as u32
                }
            }
        };
        let mut admitted = (room.saturating_add(at_once)).min(segments.count);
        if self.queued.len() == ARRIVALS_MAX {
            admitted = 0;
        }
        if admitted > at_once {
            let begins_ns = self.free_ns.max(now_ns);
            let ends_ns = begins_ns + serialization_ns(segments.bytes(0, admitted), params.rate_bit_s);
            let last_bytes = if admitted == segments.count { segments.last_bytes } else { segments.full_bytes };
            let segments = Segments { count: admitted, last_bytes, ..segments };
            self.queued_packets += u64::from(admitted - at_once);
            self.queued_bytes += segments.bytes(at_once, admitted);
            self.queued.push_back(QueuedPacket { segments, begun: at_once, begins_ns, ends_ns });
        }
        admitted
    }

    /// Removes the segments from the queue that the serializer has begun by now.
    fn begin_until(&mut self, now_ns: u64) {
        while let Some(front) = self.queued.front_mut() {
            if now_ns < front.begins_ns {
                return;
            }
            let segments = front.segments;
            let begun = if now_ns >= front.ends_ns {
                segments.count
            } else {
                let all_bytes = segments.bytes(0, segments.count);
                let sent_bytes = u128::from(now_ns - front.begins_ns) * u128::from(all_bytes)
                    / u128::from(front.ends_ns - front.begins_ns);
                let full = (sent_bytes / u128::from(segments.full_bytes.max(1))) as u32;
                (full + 1).clamp(front.begun, segments.count)
            };
            self.queued_packets -= u64::from(begun - front.begun);
            self.queued_bytes -= segments.bytes(front.begun, begun);
            front.begun = begun;
            if begun < segments.count {
                return;
            }
            self.queued.pop_front();
        }
    }
}

/// The time that a number of bytes takes at a rate. Zero without a rate.
fn serialization_ns(bytes: u64, rate_bit_s: u64) -> u64 {
    (u128::from(bytes) * 8_000_000_000).checked_div(u128::from(rate_bit_s)).unwrap_or(0) as u64
}

/// The generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    /// A number from 0 to `max`, both included. The bias of the modulus is below 10^-9 for the
    /// values of this module.
    fn up_to(&mut self, max: u64) -> u64 {
        if max == 0 {
            return 0;
        }
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (max + 1)
    }
}

#[cfg(test)]
mod tests;
