use super::*;

/// A generator of numbers that repeat with the seed.
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

/// A GSO packet as the kernel makes it, with headers of random lengths, and whether it is IPv6.
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
    // The kernel's count of header bytes may cover some of the payload.
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

/// The ones' complement sum of all words.
fn words(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
        sum + u16::from(carry)
    })
}

/// The segments of a packet on the wire, with all checksums recomputed.
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
fn parts_on_the_wire_are_the_segments_of_the_whole_packet() {
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
            // The fields of the `virtio_net_hdr`.
            let field = |at: usize| usize::from(u16::from_ne_bytes([part[at], part[at + 1]]));
            assert_eq!(field(2), header_bytes - VNET_BYTES, "{seed}");
            assert_eq!((part[1] == GSO_NONE, field(4) == 0), (count == 1, count == 1), "{seed}");
            assert_eq!((field(6), field(8)), (usize::from(native(&packet, 6).unwrap()), 16), "{seed}");
            // The checksum field has the sum of the pseudo-header, to which the kernel adds the
            // rest.
            let tcp = VNET_BYTES + field(6);
            let ip = layout.ip - VNET_BYTES;
            assert_eq!(get(&part, tcp + 16), pseudo_sum(&part[VNET_BYTES..], ip, field(6), is_v6), "{seed}");
        }
    }
}

#[test]
fn other_packets_than_tcp_with_gso_are_one_segment() {
    let (good, _) = packet(&mut Numbers(1));
    assert!(Layout::of(&good).is_some());
    for (at, value) in [(0, 0), (1, GSO_NONE), (1, 3), (1, 5)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(Layout::of(&bad), None, "byte {at} is {value}");
    }
    // No packet makes it panic, whatever a kernel or a program sends.
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
