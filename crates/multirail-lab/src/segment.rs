//! GSO packets as the kernel hands them over: how many segments they are, and what some of them look like as a packet of
//! their own. Pure: bytes in, bytes out.
//!
//! A packet begins with the kernel's `virtio_net_hdr` (10 bytes, native byte order), then its Ethernet frame.

use crate::link::Segments;
use std::ops::Range;

/// Of `struct virtio_net_hdr`.
pub(crate) const VNET_BYTES: usize = 10;
/// An IP packet of the greatest length with its Ethernet header, a VLAN tag or two, and the kernel's header.
pub(crate) const PACKET_MAX_BYTES: usize = 66_000;
/// Kernel's header, Ethernet, two VLAN tags, IPv6 with some extension headers, TCP with all options.
pub(crate) const HEADERS_MAX_BYTES: usize = 256;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const TCP_PROTOCOL: u8 = 6;

/// Where a TCP packet that is to be segmented has its headers; offsets are from the packet's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    ip: usize,
    tcp: usize,
    payload: usize,
    end: usize,
    gso_bytes: usize,
    is_v6: bool,
}

impl Layout {
    /// None: the packet is one segment, or none that is known; it goes as it is or not at all.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let gso_type = *packet.get(1)? & !GSO_ECN;
        let is_v6 = match gso_type {
            GSO_TCPV4 => false,
            GSO_TCPV6 => true,
            _ => return None,
        };
        let gso_bytes = usize::from(native(packet, 4)?);
        if packet[0] & NEEDS_CSUM == 0 || gso_bytes == 0 {
            return None;
        }
        let tcp = VNET_BYTES + usize::from(native(packet, 6)?);
        let mut ip = VNET_BYTES + 14;
        while matches!(packet.get(ip - 2..ip)?, [0x81, 0x00] | [0x88, 0xa8]) {
            ip += 4;
        }
        let ip_bytes = if is_v6 { 40 } else { 4 * usize::from(packet.get(ip)? & 0xf) };
        let payload = tcp + 4 * usize::from(packet.get(tcp + 12)? >> 4);
        let fits = ip_bytes >= 20 && ip + ip_bytes <= tcp && tcp + 20 <= payload;
        // A packet that has no more payload than a segment is one.
        let layout = Self { ip, tcp, payload, end: packet.len(), gso_bytes, is_v6 };
        (fits && payload <= HEADERS_MAX_BYTES && payload + gso_bytes < packet.len()).then_some(layout)
    }

    pub(crate) fn segments(&self) -> Segments {
        let payload = self.end - self.payload;
        let count = payload.div_ceil(self.gso_bytes);
        let headers = self.payload - VNET_BYTES;
        Segments {
            count: count as u32,
            full_bytes: (headers + self.gso_bytes) as u32,
            last_bytes: (headers + payload - (count - 1) * self.gso_bytes) as u32,
        }
    }

    /// Segments `first..first + count` as a packet: its headers, written to `headers`, with their length; and which bytes
    /// of the packet follow them.
    pub(crate) fn part(
        &self,
        packet: &[u8],
        first: u32,
        count: u32,
        headers: &mut [u8; HEADERS_MAX_BYTES],
    ) -> (usize, Range<usize>) {
        let start = self.payload + first as usize * self.gso_bytes;
        let end = (start + count as usize * self.gso_bytes).min(self.end);
        let out = &mut headers[..self.payload];
        out.copy_from_slice(&packet[..self.payload]);
        if end - start <= self.gso_bytes {
            out[1] = GSO_NONE;
            out[4..6].fill(0);
        } else if first > 0 {
            out[1] &= !GSO_ECN;
        }

        // The kernel refuses a packet that is shorter than this says; it may have been more than the headers.
        out[2..4].copy_from_slice(&((self.payload - VNET_BYTES) as u16).to_ne_bytes());

        let ip = self.ip;
        let total = self.payload - ip + end - start;
        if self.is_v6 {
            put(out, ip + 4, (total - 40) as u16);
        } else {
            put(out, ip + 2, total as u16);
            let id = get(out, ip + 4).wrapping_add(first as u16);
            put(out, ip + 4, id);
            put(out, ip + 10, 0);
            let header_end = ip + 4 * usize::from(out[ip] & 0xf);
            let checksum = !fold(sum(&out[ip..header_end]));
            put(out, ip + 10, checksum);
        }

        let tcp = self.tcp;
        let sequence = u32::from_be_bytes([out[tcp + 4], out[tcp + 5], out[tcp + 6], out[tcp + 7]]);
        let sequence = sequence.wrapping_add((start - self.payload) as u32);
        out[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        if end < self.end {
            out[tcp + 13] &= !(TCP_FIN | TCP_PSH);
        }
        if first > 0 {
            out[tcp + 13] &= !TCP_CWR;
        }
        // The sum of the pseudo-header, to which whoever sends the packet on adds the rest.
        let addresses = if self.is_v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let tcp_bytes = (self.payload - tcp + end - start) as u32;
        let pseudo = fold(sum(&out[addresses]) + u32::from(TCP_PROTOCOL) + tcp_bytes);
        put(out, tcp + 16, pseudo);
        (self.payload, start..end)
    }
}

fn native(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Of 16-bit words. Headers alone: it cannot overflow.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that repeat.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }

        fn bytes(&mut self, count: usize) -> Vec<u8> {
            (0..count).map(|_| self.below(256) as u8).collect()
        }
    }

    /// A GSO packet as the kernel makes it, with headers of all lengths, and how long those are.
    fn packet(numbers: &mut Numbers) -> (Vec<u8>, bool) {
        let is_v6 = numbers.below(2) == 1;
        let mut frame = numbers.bytes(12);
        for _ in 0..numbers.below(3) {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend(if is_v6 { [0x86, 0xdd] } else { [8, 0] });
        let ip = frame.len();
        let ip_options = if is_v6 { 0 } else { 4 * numbers.below(11) };
        let ip_bytes = if is_v6 { 40 } else { 20 + ip_options };
        let tcp_bytes = 20 + 4 * numbers.below(11);
        let gso_bytes = 1 + numbers.below(1460);
        let payload_bytes = gso_bytes + 1 + numbers.below(20 * gso_bytes);
        let payload_bytes = payload_bytes.min(65_535 - ip_bytes - tcp_bytes);
        let mut header = numbers.bytes(ip_bytes);
        header[0] = if is_v6 { 0x60 } else { 0x40 | (ip_bytes / 4) as u8 };
        let total = ip_bytes + tcp_bytes + payload_bytes;
        if is_v6 {
            put(&mut header, 4, (total - 40) as u16);
            header[6] = TCP_PROTOCOL;
        } else {
            put(&mut header, 2, total as u16);
            header[9] = TCP_PROTOCOL;
        }
        frame.extend(header);
        let tcp = frame.len();
        let mut header = numbers.bytes(tcp_bytes);
        header[12] = (tcp_bytes as u8 / 4) << 4;
        frame.extend(header);
        frame.extend(numbers.bytes(payload_bytes));
        let mut packet = vec![NEEDS_CSUM, if is_v6 { GSO_TCPV6 } else { GSO_TCPV4 }];
        // The kernel's count of header bytes may have some of the payload in it.
        let header_bytes = tcp + tcp_bytes + numbers.below(payload_bytes);
        for field in [header_bytes, gso_bytes, tcp, 16] {
            packet.extend((field as u16).to_ne_bytes());
        }
        packet.extend(frame);
        let at = VNET_BYTES + tcp;
        let pseudo = pseudo_sum(&packet[VNET_BYTES..], ip, tcp, is_v6);
        put(&mut packet, at + 16, pseudo);
        (packet, is_v6)
    }

    fn pseudo_sum(frame: &[u8], ip: usize, tcp: usize, is_v6: bool) -> u16 {
        let addresses = if is_v6 { &frame[ip + 8..ip + 40] } else { &frame[ip + 12..ip + 20] };
        let mut pseudo = addresses.to_vec();
        pseudo.extend(((frame.len() - tcp) as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, TCP_PROTOCOL]);
        words(&pseudo)
    }

    /// The sum of all words, one after the other.
    fn words(bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(0, |sum: u16, word| {
            let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
            sum + u16::from(carry)
        })
    }

    /// What goes over a wire for a packet, segment by segment, with every sum made anew.
    fn on_the_wire(packet: &[u8], is_v6: bool) -> Vec<Vec<u8>> {
        let field = |at: usize| usize::from(u16::from_ne_bytes([packet[at], packet[at + 1]]));
        let (gso_bytes, tcp) = (field(4), field(6));
        let frame = &packet[VNET_BYTES..];
        let mut ip = 14;
        while frame[ip - 2] == 0x81 {
            ip += 4;
        }
        let payload = tcp + usize::from(frame[tcp + 12] >> 4) * 4;
        let pieces: Vec<&[u8]> = match packet[1] {
            GSO_NONE => vec![&frame[payload..]],
            _ => frame[payload..].chunks(gso_bytes).collect(),
        };
        let count = pieces.len();
        let mut sent = 0;
        let segment = |(n, piece): (usize, &&[u8])| {
            let mut out = [&frame[..payload], piece].concat();
            let total = out.len() - ip;
            if is_v6 {
                put(&mut out, ip + 4, (total - 40) as u16);
            } else {
                put(&mut out, ip + 2, total as u16);
                let id = get(frame, ip + 4).wrapping_add(n as u16);
                put(&mut out, ip + 4, id);
                put(&mut out, ip + 10, 0);
                let checksum = !words(&out[ip..tcp]);
                put(&mut out, ip + 10, checksum);
            }
            let sequence = u32::from_be_bytes(frame[tcp + 4..tcp + 8].try_into().unwrap()).wrapping_add(sent);
            sent += piece.len() as u32;
            out[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
            if n + 1 < count {
                out[tcp + 13] &= !0x09;
            }
            if n > 0 {
                out[tcp + 13] &= !0x80;
            }
            let pseudo = pseudo_sum(&out, ip, tcp, is_v6);
            put(&mut out, tcp + 16, pseudo);
            let checksum = !words(&out[tcp..]);
            put(&mut out, tcp + 16, checksum);
            out
        };
        pieces.iter().enumerate().map(segment).collect()
    }

    #[test]
    fn parts_put_on_a_wire_are_the_segments_of_the_whole() {
        for seed in 0..2000 {
            let numbers = &mut Numbers(seed);
            let (packet, is_v6) = packet(numbers);
            let layout = Layout::of(&packet).unwrap();
            let wire = on_the_wire(&packet, is_v6);
            let segments = layout.segments();
            assert_eq!(segments.count as usize, wire.len(), "seed {seed}");
            assert_eq!(segments.full_bytes as usize, wire[0].len(), "seed {seed}");
            assert_eq!(segments.last_bytes as usize, wire[wire.len() - 1].len(), "seed {seed}");
            for _ in 0..4 {
                let first = numbers.below(wire.len());
                let count = 1 + numbers.below(wire.len() - first);
                let mut headers = [0; HEADERS_MAX_BYTES];
                let (header_bytes, payload) = layout.part(&packet, first as u32, count as u32, &mut headers);
                let part = [&headers[..header_bytes], &packet[payload]].concat();
                let seed = format!("seed {seed}, {count} from {first} of {}", wire.len());
                assert_eq!(on_the_wire(&part, is_v6), wire[first..first + count], "{seed}");
                assert_eq!(Layout::of(&part).is_some(), count > 1, "{seed}");
                // What the kernel is told beside the frame.
                let field = |at: usize| usize::from(u16::from_ne_bytes([part[at], part[at + 1]]));
                assert_eq!(field(2), header_bytes - VNET_BYTES, "{seed}");
                assert_eq!((part[1] == GSO_NONE, field(4) == 0), (count == 1, count == 1), "{seed}");
                assert_eq!((field(6), field(8)), (usize::from(native(&packet, 6).unwrap()), 16), "{seed}");
                // The kernel adds the rest to the sum that is there.
                let tcp = VNET_BYTES + field(6);
                let ip = layout.ip - VNET_BYTES;
                assert_eq!(get(&part, tcp + 16), pseudo_sum(&part[VNET_BYTES..], ip, field(6), is_v6), "{seed}");
            }
        }
    }

    #[test]
    fn whatever_is_no_tcp_packet_to_be_segmented_is_one_segment() {
        let (good, _) = packet(&mut Numbers(1));
        assert!(Layout::of(&good).is_some());
        for (at, value) in [(0, 0), (1, GSO_NONE), (1, 3), (1, 5)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Layout::of(&bad), None, "byte {at} is {value}");
        }
        // Nothing that a kernel or a program may send makes it panic.
        for seed in 0..20_000 {
            let numbers = &mut Numbers(seed);
            let (mut bad, _) = packet(numbers);
            for _ in 0..1 + numbers.below(4) {
                let at = numbers.below(100.min(bad.len()));
                bad[at] = numbers.below(256) as u8;
            }
            bad.truncate(numbers.below(bad.len() + 1));
            if let Some(layout) = Layout::of(&bad) {
                let count = layout.segments().count;
                let first = numbers.below(count as usize) as u32;
                layout.part(&bad, first, count - first, &mut [0; HEADERS_MAX_BYTES]);
            }
        }
    }
}
