use super::*;

#[test]
fn packets_of_all_lengths_leave_as_they_arrived() {
    let mut ring = PacketRing::new().unwrap();
    let mut state = 1u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    let (mut pushed, mut popped) = (0u64, 0u64);
    for round in 0..60 {
        // The ring fills to some MiB, is emptied partly or wholly, and sometimes has to grow.
        for _ in 0..below(800) {
            let bytes = 16 + below(66_000 - 16) as usize;
            let room = ring.room(66_000).expect("never full here");
            room[..8].copy_from_slice(&pushed.to_ne_bytes());
            room[bytes - 8..bytes].copy_from_slice(&pushed.to_ne_bytes());
            let at = ring.keep(bytes);
            let piece = RingPiece { departs_ns: pushed, at, bytes: bytes as u32, first: 0, count: 1, is_whole: true };
            assert!(ring.push(piece));
            pushed += 1;
        }
        let stay = if round % 7 == 6 { 0 } else { below(pushed - popped + 1) };
        while pushed - popped > stay {
            let (piece, packet) = ring.due(u64::MAX).unwrap();
            assert_eq!(packet[..8], popped.to_ne_bytes());
            assert_eq!(packet[packet.len() - 8..], popped.to_ne_bytes());
            assert_eq!(piece.departs_ns, popped);
            assert!(ring.due(popped.wrapping_sub(1)).is_none() || popped == 0);
            ring.pop();
            popped += 1;
        }
    }
    assert!(pushed > 10_000);
}

#[test]
fn a_full_ring_has_no_room_until_a_packet_leaves() {
    let mut ring = PacketRing::new().unwrap();
    let mut count = 0;
    while ring.room(66_000).is_some() {
        let at = ring.keep(66_000);
        ring.push(RingPiece { departs_ns: 0, at, bytes: 66_000, first: 0, count: 1, is_whole: true });
        count += 1;
    }
    assert_eq!(count, RING_MAX_BYTES / 66_000);
    ring.pop();
    assert!(ring.room(66_000).is_none(), "one byte must stay free, to tell full from empty");
    ring.pop();
    assert!(ring.room(66_000).is_some());
}

#[test]
fn too_many_pieces_are_refused() {
    let mut ring = PacketRing::new().unwrap();
    ring.room(100).unwrap();
    let at = ring.keep(100);
    let piece = RingPiece { departs_ns: 0, at, bytes: 100, first: 0, count: 1, is_whole: true };
    assert_eq!((0..PIECES_MAX + 5).filter(|_| ring.push(piece)).count(), PIECES_MAX);
}
