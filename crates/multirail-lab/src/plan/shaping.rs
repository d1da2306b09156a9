//! How rates and WAN properties translate to HTB classes, netem queues and relay parameters.

use crate::plan::relay::LinkParams;
use crate::spec::rate::Rate;
use crate::spec::wan::{Delay, Loss, Queue, Wan};

/// The default queue holds the bytes that its rate sends in this time. A small switch has as much
/// at 100 Mbit/s (250 kB). It is several round trips of a rail without delay, and short enough to
/// keep bufferbloat out of measurements.
const QUEUE_TIME_MS: u64 = 20;
/// The smallest default queue, in full packets. TCP's initial window (10) fits, with room for a
/// second flow.
const QUEUE_MIN_PACKETS: u64 = 16;
/// The largest default queue without a delay: the buffer of a good Ethernet switch.
const QUEUE_MAX_BYTES: u64 = 4 << 20;
/// The largest default queue of a WAN. Below it, a WAN queues the bytes of a round trip, as TCP
/// needs to fill the link.
const WAN_QUEUE_MAX_BYTES: u64 = 64 << 20;

/// The bucket holds the bytes of this time, which compensates for timers that fire late: without
/// it, a rail of 100 Mbit/s loses the time of each delay. HTB sends while the bucket is not
/// negative, so even a bucket of one byte lets one packet pass without waiting.
const BURST_TIME_US: u64 = 50;
/// The bucket holds at least the largest frame divided by this, so that no second packet passes
/// without waiting. On slow ports, and on busy processors, timers are late by more than
/// [`BURST_TIME_US`]. With this floor, 16 ports of 20 Mbit/s reached 0.93 instead of 0.91 of their
/// rate (all hosts sending to all).
const BURST_FRAMES_DIVISOR: u64 = 2;
/// The Ethernet header of a frame.
const ETHERNET_HEADER_BYTES: u64 = 14;
/// The rate that sizes the netem queue of a rail without a rate. That queue also holds the packets
/// in flight.
const NETEM_RATE_DEFAULT_BIT_S: u64 = 10_000_000_000;

/// How the kernel shapes the packets that leave a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Egress {
    /// An HTB class, for the port of a host or a switch.
    Htb(Shaping),
    /// A TBF queue, for the port of a router. A router forwards GSO packets, which TBF segments
    /// before it queues them.
    Tbf(Shaping),
    /// An HTB class for the traffic with other clusters only.
    Access(Access),
    /// A netem queue.
    Netem(Netem),
}

/// The parameters of a shaper and its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shaping {
    pub(crate) rate: Rate,
    /// The size of the token bucket. Packets leave at once while it has tokens.
    pub(crate) burst_bytes: u64,
    /// The capacity of the queue. A packet that finds it full is dropped.
    pub(crate) queue: Queue,
    /// The size of the largest frame.
    pub(crate) frame_bytes: u64,
}

impl Shaping {
    /// The shaping of a port with this rate, for packets of up to `mtu_bytes`.
    pub(crate) fn new(rate: Rate, wan: &Wan, mtu_bytes: u32) -> Self {
        Self {
            rate,
            burst_bytes: bytes_in_us(rate.bit_s(), BURST_TIME_US).max(frame_bytes(mtu_bytes) / BURST_FRAMES_DIVISOR),
            queue: queue(rate, wan, mtu_bytes),
            frame_bytes: frame_bytes(mtu_bytes),
        }
    }
}

/// A shaper of the traffic between a network and the outside. Other traffic passes unshaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) shaping: Shaping,
    /// The first 16 bits of the addresses of the network.
    pub(crate) inside: u16,
    /// The address that is compared with the network.
    pub(crate) field: AddressField,
}

/// An address field of the IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressField {
    Source,
    Destination,
}

/// The parameters of a netem queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Netem {
    pub(crate) rate: Option<Rate>,
    pub(crate) wan: Wan,
    /// The capacity for waiting packets and packets in flight together.
    pub(crate) limit_packets: u64,
}

impl Netem {
    /// The netem queue of a port with this rate, for packets of up to `mtu_bytes`.
    pub(crate) fn new(rate: Option<Rate>, wan: &Wan, mtu_bytes: u32) -> Self {
        let queue_packets = rate.map_or(0, |rate| match queue(rate, wan, mtu_bytes) {
            Queue::Packets(packets) => packets,
            Queue::Bytes(bytes) => bytes.div_ceil(frame_bytes(mtu_bytes)),
        });
        let rate_bit_s = rate.map_or(NETEM_RATE_DEFAULT_BIT_S, Rate::bit_s);
        let in_flight_bytes = bytes_in_us(rate_bit_s, delay_max_ns(wan) / 1000);
        let limit_packets = (queue_packets + in_flight_bytes / frame_bytes(mtu_bytes)).max(QUEUE_MIN_PACKETS);
        Self { rate, wan: *wan, limit_packets }
    }
}

/// The parameters of a relayed direction with this rate.
pub(crate) fn link_params(rate: Option<Rate>, wan: &Wan, mtu_bytes: u32) -> LinkParams {
    LinkParams {
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
        let round_trip = bytes_in_us(rate.bit_s(), 2 * delay_max_ns(wan) / 1000).min(WAN_QUEUE_MAX_BYTES);
        Queue::Bytes(by_time.max(round_trip).max(QUEUE_MIN_PACKETS * frame_bytes(mtu_bytes)))
    })
}

/// The longest one-way delay, with jitter.
fn delay_max_ns(wan: &Wan) -> u64 {
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
    fn a_wan_queues_a_round_trip_unless_a_queue_is_given() {
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
    fn a_netem_queue_has_room_for_packets_in_flight() {
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
