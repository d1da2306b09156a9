//! How a rate becomes an HTB class: the sizes of its bucket and of its queue.

use crate::rate::Rate;

/// A port queues what leaves it in this time at its rate: what a small switch has at 100 Mbit/s (250 kB), several times
/// the round trip of a rail, and short enough that a measurement is not one of a bloated buffer.
pub const QUEUE_TIME_MS: u64 = 20;
/// A slow port still queues this many full packets: an initial window of TCP (10) must fit, with room for a second flow.
pub const QUEUE_MIN_PACKETS: u64 = 16;
/// A fast port queues no more than this: the buffer of a good Ethernet switch.
pub const QUEUE_MAX_BYTES: u64 = 4 << 20;

/// HTB sends as long as the bucket is not negative, so a bucket of one byte lets one packet pass free. A bucket worth
/// this much time makes up for a timer that fires late; without it a rail of 100 Mbit/s loses what each lateness costs.
const BURST_TIME_US: u64 = 50;
const ETHERNET_HEADER_BYTES: u64 = 14;

/// What an HTB class with its queue is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shaping {
    /// The rate.
    pub rate: Rate,
    /// The bucket, in bytes: packets that find it full leave at once.
    pub burst_bytes: u64,
    /// The queue, in bytes; what finds it full is dropped.
    pub queue_bytes: u64,
    /// The largest frame, in bytes.
    pub frame_bytes: u64,
}

impl Shaping {
    /// The shaping of a port with this rate, for packets of up to `mtu_bytes`.
    pub fn new(rate: Rate, mtu_bytes: u32) -> Self {
        let frame_bytes = u64::from(mtu_bytes) + ETHERNET_HEADER_BYTES;
        let bytes_in_us = |time_us: u64| rate.bit_s() / 8 * time_us / 1_000_000;
        Self {
            rate,
            burst_bytes: bytes_in_us(BURST_TIME_US).max(1),
            queue_bytes: bytes_in_us(QUEUE_TIME_MS * 1000).min(QUEUE_MAX_BYTES).max(QUEUE_MIN_PACKETS * frame_bytes),
            frame_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_bounded_at_both_ends() {
        let queue_bytes = |rate: &str| Shaping::new(rate.parse().unwrap(), 1500).queue_bytes;
        assert_eq!(queue_bytes("100mbit"), 250_000);
        assert_eq!(queue_bytes("1mbit"), 16 * 1514);
        assert_eq!(queue_bytes("100gbit"), QUEUE_MAX_BYTES);
    }

    #[test]
    fn a_jumbo_rail_queues_jumbo_packets() {
        assert_eq!(Shaping::new("1mbit".parse().unwrap(), 9000).queue_bytes, 16 * 9014);
    }
}
