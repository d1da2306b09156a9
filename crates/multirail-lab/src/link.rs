//! What one direction of a WAN does to packets: when each leaves, and which never do. No I/O and no clock: `now_ns` is an
//! argument, and never goes back. Nothing here allocates once a link is made.
//!
//! A packet passes, in this order: a drop-tail queue, the serializer (one bit after the other at the rate), loss, and the
//! way (delay and jitter). Packets stay in order. A GSO packet is as many packets as it has segments; what is left of it
//! leaves in pieces of consecutive segments.

use crate::wan::Queue;
use std::collections::VecDeque;

/// A piece of a GSO packet is no longer on the wire than this, or is one segment: at 10 Mbit/s a packet of 64 KiB takes
/// 50 ms, and would all arrive at the end of them.
const PIECE_MAX_NS: u64 = 1_000_000;
/// How many arrivals a queue can hold, whatever its limit says: a bound for memory.
const ARRIVALS_MAX: usize = 1 << 16;

/// What a link does. It may be another for each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Params {
    /// Zero: no rate, and no queue.
    pub(crate) rate_bit_s: u64,
    pub(crate) delay_ns: u64,
    pub(crate) jitter_ns: u64,
    pub(crate) loss_ppm: u32,
    pub(crate) queue: Queue,
}

/// How a packet looks on the wire: segments that are all full but for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    pub(crate) count: u32,
    /// Frame bytes of each but the last, headers and all.
    pub(crate) full_bytes: u32,
    pub(crate) last_bytes: u32,
}

impl Segments {
    pub(crate) fn one(frame_bytes: u32) -> Self {
        Self { count: 1, full_bytes: frame_bytes, last_bytes: frame_bytes }
    }

    /// Frame bytes of segments `from..to`.
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

/// What became of a packet's segments; the others go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) dropped: u32,
    pub(crate) lost: u32,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Link {
    /// When the serializer has sent all that it was given.
    free_ns: u64,
    last_departs_ns: u64,
    /// What the serializer has not begun to send, oldest first; of the first, some segments may be begun.
    queued: VecDeque<Queued>,
    queued_packets: u64,
    queued_bytes: u64,
    random: Random,
}

#[derive(Debug)]
struct Queued {
    segments: Segments,
    begun: u32,
    /// When the first begins and the last ends.
    begins_ns: u64,
    ends_ns: u64,
}

impl Link {
    /// Losses and jitter repeat with the seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            free_ns: 0,
            last_departs_ns: 0,
            queued: VecDeque::with_capacity(ARRIVALS_MAX),
            queued_packets: 0,
            queued_bytes: 0,
            random: Random(seed),
        }
    }

    /// A packet arrives. `piece` gets what will leave, in order.
    pub(crate) fn offer(
        &mut self,
        now_ns: u64,
        params: &Params,
        segments: Segments,
        mut piece: impl FnMut(Piece),
    ) -> Gone {
        let begins_ns = self.free_ns.max(now_ns);
        let admitted = self.admit(now_ns, params, segments);
        let serialize_ns = |bytes: u64| wire_ns(bytes, params.rate_bit_s);
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
            // Not before it has been sent, even where the jitter is above the delay.
            let way_ns = (params.delay_ns + link.random.up_to(2 * params.jitter_ns)).saturating_sub(params.jitter_ns);
            link.last_departs_ns = link.last_departs_ns.max(sent_ns + way_ns);
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
        Gone { dropped: segments.count - admitted, lost }
    }

    /// How many packets wait, the one on the wire not counted.
    pub(crate) fn queued_packets(&self) -> u64 {
        self.queued_packets
    }

    /// How many of the segments find room: the first ones, as in any drop-tail queue.
    fn admit(&mut self, now_ns: u64, params: &Params, segments: Segments) -> u32 {
        self.begin_until(now_ns);
        if params.rate_bit_s == 0 {
            return segments.count;
        }
        // The first goes to the serializer at once where that is free.
        let at_once = u32::from(self.free_ns <= now_ns);
        let room = match params.queue {
            Queue::Packets(limit) => limit.saturating_sub(self.queued_packets).min(u64::from(segments.count)) as u32,
            Queue::Bytes(limit) => {
                let room_bytes = limit.saturating_sub(self.queued_bytes);
                if segments.bytes(at_once.min(segments.count), segments.count) <= room_bytes {
                    segments.count
                } else {
                    // Not all fit, so it does not matter that the last is shorter, unless it alone is asked for.
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
            let ends_ns = begins_ns + wire_ns(segments.bytes(0, admitted), params.rate_bit_s);
            let last_bytes = if admitted == segments.count { segments.last_bytes } else { segments.full_bytes };
            let segments = Segments { count: admitted, last_bytes, ..segments };
            self.queued_packets += u64::from(admitted - at_once);
            self.queued_bytes += segments.bytes(at_once, admitted);
            self.queued.push_back(Queued { segments, begun: at_once, begins_ns, ends_ns });
        }
        admitted
    }

    /// Takes out of the queue what the serializer has begun to send by now.
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

/// How long so many bytes take at a rate; no time without one.
fn wire_ns(bytes: u64, rate_bit_s: u64) -> u64 {
    (u128::from(bytes) * 8_000_000_000).checked_div(u128::from(rate_bit_s)).unwrap_or(0) as u64
}

/// SplitMix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// From 0 to `max`, both included. What a modulus favours is below one in 10^9 for the values here.
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
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PLAIN: Params =
        Params { rate_bit_s: 8_000_000, delay_ns: 0, jitter_ns: 0, loss_ppm: 0, queue: Queue::Bytes(1 << 20) };

    fn offer(link: &mut Link, now_ns: u64, params: &Params, segments: Segments) -> (Vec<Piece>, Gone) {
        let mut pieces = Vec::new();
        let gone = link.offer(now_ns, params, segments, |piece| pieces.push(piece));
        (pieces, gone)
    }

    #[test]
    fn packets_leave_one_after_the_other_and_travel() {
        let mut link = Link::new(1);
        let params = Params { delay_ns: 10 * MS, ..PLAIN };
        // 1000 bytes take 1 ms.
        for n in 1..=3 {
            let (pieces, _) = offer(&mut link, 0, &params, Segments::one(1000));
            assert_eq!(pieces, [Piece { first: 0, count: 1, departs_ns: (n + 10) * MS }]);
        }
        assert_eq!(link.queued_packets(), 2);
        let (pieces, _) = offer(&mut link, 100 * MS, &params, Segments::one(500));
        assert_eq!(pieces[0].departs_ns, 110 * MS + MS / 2);
        assert_eq!(link.queued_packets(), 0);
    }

    #[test]
    fn no_rate_is_no_time_and_no_queue() {
        let mut link = Link::new(1);
        let params = Params { rate_bit_s: 0, delay_ns: 5, queue: Queue::Packets(1), ..PLAIN };
        let segments = Segments { count: 40, full_bytes: 1514, last_bytes: 100 };
        for _ in 0..3 {
            let (pieces, gone) = offer(&mut link, 7, &params, segments);
            assert_eq!((pieces, gone), (vec![Piece { first: 0, count: 40, departs_ns: 12 }], Gone::default()));
        }
    }

    #[test]
    fn a_long_packet_leaves_in_pieces_at_their_own_times() {
        let mut link = Link::new(1);
        // Four segments a millisecond.
        let params = Params { rate_bit_s: 32_000_000, ..PLAIN };
        let (pieces, _) = offer(&mut link, 0, &params, Segments { count: 10, full_bytes: 1000, last_bytes: 500 });
        let expected = [(0, 4, MS), (4, 4, 2 * MS), (8, 2, 2 * MS + 375_000)];
        assert_eq!(pieces, expected.map(|(first, count, departs_ns)| Piece { first, count, departs_ns }));
    }

    #[test]
    fn a_full_queue_drops_the_tail() {
        for queue in [Queue::Packets(3), Queue::Bytes(3000), Queue::Bytes(3999)] {
            let mut link = Link::new(1);
            let params = Params { queue, ..PLAIN };
            // One on the wire and three that wait, in one packet or in many.
            let (pieces, gone) =
                offer(&mut link, 0, &params, Segments { count: 6, full_bytes: 1000, last_bytes: 1000 });
            assert_eq!((pieces.iter().map(|p| p.count).sum::<u32>(), gone.dropped), (4, 2), "{queue}");
            assert_eq!(link.queued_packets(), 3);
            assert_eq!(offer(&mut link, MS - 1, &params, Segments::one(1000)).1.dropped, 1);
            // The second has just gone to the wire.
            assert_eq!(offer(&mut link, MS, &params, Segments::one(1000)).1.dropped, 0);
            assert_eq!(offer(&mut link, MS, &params, Segments::one(1000)).1.dropped, 1);
        }
    }

    #[test]
    fn a_short_last_segment_fits_where_a_full_one_does_not() {
        let params = Params { queue: Queue::Bytes(1400), ..PLAIN };
        let gone = |last_bytes| {
            offer(&mut Link::new(1), 0, &params, Segments { count: 3, full_bytes: 1000, last_bytes }).1.dropped
        };
        assert_eq!((gone(400), gone(401)), (0, 1));
    }

    #[test]
    fn jitter_stays_in_its_band_and_never_reorders() {
        let mut link = Link::new(3);
        let params = Params { rate_bit_s: 0, delay_ns: 10 * MS, jitter_ns: MS, ..PLAIN };
        let mut offsets = Vec::new();
        let mut last = 0;
        for n in 0..10_000 {
            let now = n * 5 * MS;
            let departs = offer(&mut link, now, &params, Segments::one(60)).0[0].departs_ns;
            offsets.push(departs - now);
            assert!(departs >= last);
            last = departs;
        }
        assert!(offsets.iter().all(|offset| (9 * MS..=11 * MS).contains(offset)));
        let mean = offsets.iter().sum::<u64>() / offsets.len() as u64;
        assert!((9_950_000..10_050_000).contains(&mean), "{mean}");
        // At once: order is kept.
        for _ in 0..1000 {
            let departs = offer(&mut link, last, &params, Segments::one(60)).0[0].departs_ns;
            assert!(departs >= last);
            last = departs;
        }
        // More jitter than delay: no packet leaves before it came.
        let params = Params { delay_ns: 0, ..params };
        for n in 1..100 {
            let now = last + n * 10 * MS;
            let departs = offer(&mut link, now, &params, Segments::one(60)).0[0].departs_ns;
            assert!((now..=now + MS).contains(&departs));
        }
    }

    #[test]
    fn segments_are_lost_one_by_one_and_the_same_by_seed() {
        let run = |seed| {
            let mut link = Link::new(seed);
            let params = Params { rate_bit_s: 0, loss_ppm: 100_000, ..PLAIN };
            let mut survivors = Vec::new();
            for n in 0..1000 {
                let segments = Segments { count: 10, full_bytes: 1514, last_bytes: 99 };
                let (pieces, gone) = offer(&mut link, n, &params, segments);
                let kept: Vec<u32> = pieces.iter().flat_map(|p| p.first..p.first + p.count).collect();
                assert_eq!(kept.len() as u32 + gone.lost, 10);
                assert!(kept.is_sorted_by(|a, b| a < b));
                survivors.extend(kept.into_iter().map(|s| n * 10 + u64::from(s)));
            }
            survivors
        };
        let survivors = run(7);
        // Five standard deviations around 9000.
        assert!((8850..9150).contains(&survivors.len()), "{}", survivors.len());
        assert_eq!(survivors, run(7));
        assert_ne!(survivors, run(8));
    }

    #[test]
    fn a_rate_set_meanwhile_holds_for_what_comes_after() {
        let mut link = Link::new(1);
        offer(&mut link, 0, &PLAIN, Segments::one(1000));
        let faster = Params { rate_bit_s: 80_000_000, ..PLAIN };
        assert_eq!(offer(&mut link, 0, &faster, Segments::one(1000)).0[0].departs_ns, MS + MS / 10);
        let none = Params { rate_bit_s: 0, ..PLAIN };
        assert_eq!(offer(&mut link, 0, &none, Segments::one(1000)).0[0].departs_ns, MS + MS / 10);
    }
}
