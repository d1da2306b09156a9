//! GSO packets: how many segments they have, and how some of these segments look as a packet of
//! their own. It does no I/O.
//!
//! A packet begins with the `virtio_net_hdr` of the kernel (10 bytes, native byte order). The
//! Ethernet frame follows.

use crate::relay::link::Segments;
use std::ops::Range;

/// The size of `struct virtio_net_hdr`.
pub(crate) const VNET_BYTES: usize = 10;
/// The size of the largest packet: the largest IP packet with its Ethernet header, two VLAN tags
/// and the `virtio_net_hdr`.
pub(crate) const PACKET_MAX_BYTES: usize = 66_000;
/// The largest size of all headers: `virtio_net_hdr`, Ethernet, two VLAN tags, IPv6 with some
/// extension headers, and TCP with all options.
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

/// The positions of the headers in a TCP packet with several segments. Offsets count from the first
/// byte of the packet.
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
    /// Parses a packet. Returns `None` if the packet is one segment or of an unknown kind. Such a
    /// packet is never divided.
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
        // A packet with no more payload than a segment is one segment.
        let layout = Self { ip, tcp, payload, end: packet.len(), gso_bytes, is_v6 };
        (fits && payload <= HEADERS_MAX_BYTES && payload + gso_bytes < packet.len()).then_some(layout)
    }

    /// The segments of the packet.
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

    /// Makes a packet of segments `first..first + count`. Writes its headers to `headers`, and
    /// returns their length and the range of the original packet that follows them.
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

        // The kernel refuses a packet that is shorter than its `hdr_len`. In the original packet
        // this field may cover some of the payload.
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
        // The checksum field holds the sum of the pseudo-header. The sender of each segment adds
        // the rest.
        let addresses = if self.is_v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let tcp_bytes = (self.payload - tcp + end - start) as u32;
        let pseudo = fold(sum(&out[addresses]) + u32::from(TCP_PROTOCOL) + tcp_bytes);
        put(out, tcp + 16, pseudo);
        (self.payload, start..end)
    }
}

/// Reads a field of the `virtio_net_hdr`.
fn native(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of 16-bit words. It cannot overflow, because it only covers headers.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low))).sum()
}

/// Folds the carries of a sum into 16 bits.
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
