//! What a rate, and what makes a rail a WAN, become: an HTB class, a netem queue, or what a relay does.

use crate::link::Params;
use crate::rate::Rate;
use crate::wan::{Delay, Loss, Queue, Wan};

/// A port queues what leaves it in this time at its rate: what a small switch has at 100 Mbit/s (250 kB), several times
/// the round trip of a rail, and short enough that a measurement is not one of a bloated buffer.
pub const QUEUE_TIME_MS: u64 = 20;
/// A slow port still queues this many full packets: an initial window of TCP (10) must fit, with room for a second flow.
pub const QUEUE_MIN_PACKETS: u64 = 16;
/// A fast port queues no more than this: the buffer of a good Ethernet switch.
pub const QUEUE_MAX_BYTES: u64 = 4 << 20;

/// A WAN queues what passes in a round trip, as TCP asks for, but no more than this.
pub const WAN_QUEUE_MAX_BYTES: u64 = 64 << 20;

/// HTB sends as long as the bucket is not negative, so a bucket of one byte lets one packet pass free. A bucket worth
/// this much time makes up for a timer that fires late; without it a rail of 100 Mbit/s loses what each lateness costs.
const BURST_TIME_US: u64 = 50;
/// And at least this part of the largest frame, which lets no second packet pass free: a timer is as late on a slow port, and where processors
/// are busy by more than 50 µs (many to many on 16 ports of 20 Mbit/s: 0.91 of what they have, and 0.93 with this).
const BURST_FRAMES_DIVISOR: u64 = 2;
const ETHERNET_HEADER_BYTES: u64 = 14;
/// A netem queue also holds what is on the way; without a rate it is taken for one of this.
const NETEM_RATE_DEFAULT_BIT_S: u64 = 10_000_000_000;

/// How packets leave a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Egress {
    Htb(Shaping),
    /// As HTB, for a port that forwards: what arrives there may be glued together, and is cut into packets first.
    Tbf(Shaping),
    Access(Access),
    Netem(Netem),
}

/// What an HTB class with its queue is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shaping {
    /// The rate.
    pub rate: Rate,
    /// The bucket, in bytes: packets that find it full leave at once.
    pub burst_bytes: u64,
    /// The queue; what finds it full is dropped.
    pub queue: Queue,
    /// The largest frame, in bytes.
    pub frame_bytes: u64,
}

impl Shaping {
    /// The shaping of a port with this rate, for packets of up to `mtu_bytes`.
    pub fn new(rate: Rate, wan: &Wan, mtu_bytes: u32) -> Self {
        Self {
            rate,
            burst_bytes: bytes_in_us(rate.bit_s(), BURST_TIME_US).max(frame_bytes(mtu_bytes) / BURST_FRAMES_DIVISOR),
            queue: queue(rate, wan, mtu_bytes),
            frame_bytes: frame_bytes(mtu_bytes),
        }
    }
}

/// A shaping of only what comes from or goes to elsewhere than the port's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) shaping: Shaping,
    /// The first 16 bits of that network's addresses.
    pub(crate) inside: u16,
    /// The end that tells.
    pub(crate) side: Side,
}

/// One end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    From,
    To,
}

/// What a netem queue is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Netem {
    pub(crate) rate: Option<Rate>,
    pub(crate) wan: Wan,
    /// All that waits and all that is on the way.
    pub(crate) limit_packets: u64,
}

impl Netem {
    pub(crate) fn new(rate: Option<Rate>, wan: &Wan, mtu_bytes: u32) -> Self {
        let queue_packets = rate.map_or(0, |rate| match queue(rate, wan, mtu_bytes) {
            Queue::Packets(packets) => packets,
            Queue::Bytes(bytes) => bytes.div_ceil(frame_bytes(mtu_bytes)),
        });
        let way_us = way_ns(wan) / 1000;
        let way_bytes = bytes_in_us(rate.map_or(NETEM_RATE_DEFAULT_BIT_S, Rate::bit_s), way_us);
        let limit_packets = (queue_packets + way_bytes / frame_bytes(mtu_bytes)).max(QUEUE_MIN_PACKETS);
        Self { rate, wan: *wan, limit_packets }
    }
}

/// What a relay does to packets with this rate.
pub(crate) fn params(rate: Option<Rate>, wan: &Wan, mtu_bytes: u32) -> Params {
    Params {
        rate_bit_s: rate.map_or(0, Rate::bit_s),
        delay_ns: wan.delay.map_or(0, Delay::ns),
        jitter_ns: wan.jitter.map_or(0, Delay::ns),
        loss_ppm: wan.loss.map_or(0, Loss::ppm),
        queue: rate.map_or(Queue::Bytes(0), |rate| queue(rate, wan, mtu_bytes)),
    }
}

fn queue(rate: Rate, wan: &Wan, mtu_bytes: u32) -> Queue {
    wan.queue.unwrap_or_else(|| {
        let by_time = bytes_in_us(rate.bit_s(), QUEUE_TIME_MS * 1000).min(QUEUE_MAX_BYTES);
        let round_trip = bytes_in_us(rate.bit_s(), 2 * way_ns(wan) / 1000).min(WAN_QUEUE_MAX_BYTES);
        Queue::Bytes(by_time.max(round_trip).max(QUEUE_MIN_PACKETS * frame_bytes(mtu_bytes)))
    })
}

fn way_ns(wan: &Wan) -> u64 {
    wan.delay.map_or(0, Delay::ns) + wan.jitter.map_or(0, Delay::ns)
}

fn frame_bytes(mtu_bytes: u32) -> u64 {
    u64::from(mtu_bytes) + ETHERNET_HEADER_BYTES
}

fn bytes_in_us(rate_bit_s: u64, time_us: u64) -> u64 {
    (u128::from(rate_bit_s / 8) * u128::from(time_us) / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_bounded_at_both_ends() {
        let queue = |rate: &str| Shaping::new(rate.parse().unwrap(), &Wan::default(), 1500).queue;
        assert_eq!(queue("100mbit"), Queue::Bytes(250_000));
        assert_eq!(queue("1mbit"), Queue::Bytes(16 * 1514));
        assert_eq!(queue("100gbit"), Queue::Bytes(QUEUE_MAX_BYTES));
    }

    #[test]
    fn a_wan_queues_a_round_trip_unless_told_otherwise() {
        let queue = |rate: &str, delay: &str, queue: Option<Queue>| {
            let wan = Wan { delay: Some(delay.parse().unwrap()), queue, ..Wan::default() };
            Shaping::new(rate.parse().unwrap(), &wan, 1500).queue
        };
        assert_eq!(queue("100mbit", "9ms", None), Queue::Bytes(250_000));
        assert_eq!(queue("100mbit", "30ms", None), Queue::Bytes(750_000));
        assert_eq!(queue("100gbit", "30ms", None), Queue::Bytes(WAN_QUEUE_MAX_BYTES));
        assert_eq!(queue("100mbit", "30ms", Some(Queue::Packets(1))), Queue::Packets(1));
    }

    #[test]
    fn a_netem_queue_has_room_for_what_is_on_the_way() {
        let wan = |queue| Wan { delay: "10ms".parse().ok(), queue: Some(queue), ..Wan::default() };
        let limit = |queue| Netem::new("100mbit".parse().ok(), &wan(queue), 1500).limit_packets;
        assert_eq!(limit(Queue::Packets(100)), 100 + 82);
        assert_eq!(limit(Queue::Bytes(3000)), 2 + 82);
        assert_eq!(Netem::new(None, &wan(Queue::Packets(5)), 1500).limit_packets, 8256);
    }

    #[test]
    fn a_jumbo_rail_queues_jumbo_packets() {
        assert_eq!(Shaping::new("1mbit".parse().unwrap(), &Wan::default(), 9000).queue, Queue::Bytes(16 * 9014));
    }
}
