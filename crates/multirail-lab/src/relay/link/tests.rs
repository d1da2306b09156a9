use super::*;

const MS: u64 = 1_000_000;
const PLAIN: LinkParams =
    LinkParams { rate_bit_s: 8_000_000, delay_ns: 0, jitter_ns: 0, loss_ppm: 0, queue: Queue::Bytes(1 << 20) };

fn arrive(link: &mut RelayLink, now_ns: u64, params: &LinkParams, segments: Segments) -> (Vec<Piece>, Discarded) {
    let mut pieces = Vec::new();
    let discarded = link.handle_packet(now_ns, params, segments, |piece| pieces.push(piece));
    (pieces, discarded)
}

#[test]
fn packets_are_serialized_and_then_delayed() {
    let mut link = RelayLink::new(1);
    let params = LinkParams { delay_ns: 10 * MS, ..PLAIN };
    // 1000 bytes take 1 ms at this rate.
    for n in 1..=3 {
        let (pieces, _) = arrive(&mut link, 0, &params, Segments::one(1000));
        assert_eq!(pieces, [Piece { first: 0, count: 1, departs_ns: (n + 10) * MS }]);
    }
    assert_eq!(link.queued_packets(), 2);
    let (pieces, _) = arrive(&mut link, 100 * MS, &params, Segments::one(500));
    assert_eq!(pieces[0].departs_ns, 110 * MS + MS / 2);
    assert_eq!(link.queued_packets(), 0);
}

#[test]
fn without_a_rate_there_is_no_serialization_and_no_queue() {
    let mut link = RelayLink::new(1);
    let params = LinkParams { rate_bit_s: 0, delay_ns: 5, queue: Queue::Packets(1), ..PLAIN };
    let segments = Segments { count: 40, full_bytes: 1514, last_bytes: 100 };
    for _ in 0..3 {
        let (pieces, discarded) = arrive(&mut link, 7, &params, segments);
        assert_eq!((pieces, discarded), (vec![Piece { first: 0, count: 40, departs_ns: 12 }], Discarded::default()));
    }
}

#[test]
fn a_gso_packet_leaves_in_pieces_at_different_times() {
    let mut link = RelayLink::new(1);
    // Four segments take a millisecond.
    let params = LinkParams { rate_bit_s: 32_000_000, ..PLAIN };
    let (pieces, _) = arrive(&mut link, 0, &params, Segments { count: 10, full_bytes: 1000, last_bytes: 500 });
    let expected = [(0, 4, MS), (4, 4, 2 * MS), (8, 2, 2 * MS + 375_000)];
    assert_eq!(pieces, expected.map(|(first, count, departs_ns)| Piece { first, count, departs_ns }));
}

#[test]
fn a_full_queue_drops_the_tail() {
    for queue in [Queue::Packets(3), Queue::Bytes(3000), Queue::Bytes(3999)] {
        let mut link = RelayLink::new(1);
        let params = LinkParams { queue, ..PLAIN };
        // One segment is in the serializer and three wait, in one packet or in several.
        let (pieces, discarded) =
            arrive(&mut link, 0, &params, Segments { count: 6, full_bytes: 1000, last_bytes: 1000 });
        assert_eq!((pieces.iter().map(|p| p.count).sum::<u32>(), discarded.dropped), (4, 2), "{queue}");
        assert_eq!(link.queued_packets(), 3);
        assert_eq!(arrive(&mut link, MS - 1, &params, Segments::one(1000)).1.dropped, 1);
        // The serializer has just begun the second segment.
        assert_eq!(arrive(&mut link, MS, &params, Segments::one(1000)).1.dropped, 0);
        assert_eq!(arrive(&mut link, MS, &params, Segments::one(1000)).1.dropped, 1);
    }
}

#[test]
fn a_short_last_segment_fits_where_a_full_one_does_not() {
    let params = LinkParams { queue: Queue::Bytes(1400), ..PLAIN };
    let discarded = |last_bytes| {
        arrive(&mut RelayLink::new(1), 0, &params, Segments { count: 3, full_bytes: 1000, last_bytes }).1.dropped
    };
    assert_eq!((discarded(400), discarded(401)), (0, 1));
}

#[test]
fn jitter_stays_in_its_band_and_never_reorders() {
    let mut link = RelayLink::new(3);
    let params = LinkParams { rate_bit_s: 0, delay_ns: 10 * MS, jitter_ns: MS, ..PLAIN };
    let mut offsets = Vec::new();
    let mut last = 0;
    for n in 0..10_000 {
        let now = n * 5 * MS;
        let departs = arrive(&mut link, now, &params, Segments::one(60)).0[0].departs_ns;
        offsets.push(departs - now);
        assert!(departs >= last);
        last = departs;
    }
    assert!(offsets.iter().all(|offset| (9 * MS..=11 * MS).contains(offset)));
    let mean = offsets.iter().sum::<u64>() / offsets.len() as u64;
    assert!((9_950_000..10_050_000).contains(&mean), "{mean}");
    // Packets that arrive together keep their order.
    for _ in 0..1000 {
        let departs = arrive(&mut link, last, &params, Segments::one(60)).0[0].departs_ns;
        assert!(departs >= last);
        last = departs;
    }
    // With more jitter than delay, no packet leaves before it arrives.
    let params = LinkParams { delay_ns: 0, ..params };
    for n in 1..100 {
        let now = last + n * 10 * MS;
        let departs = arrive(&mut link, now, &params, Segments::one(60)).0[0].departs_ns;
        assert!((now..=now + MS).contains(&departs));
    }
}

#[test]
fn segments_are_lost_independently_and_repeat_with_the_seed() {
    let run = |seed| {
        let mut link = RelayLink::new(seed);
        let params = LinkParams { rate_bit_s: 0, loss_ppm: 100_000, ..PLAIN };
        let mut survivors = Vec::new();
        for n in 0..1000 {
            let segments = Segments { count: 10, full_bytes: 1514, last_bytes: 99 };
            let (pieces, discarded) = arrive(&mut link, n, &params, segments);
            let kept: Vec<u32> = pieces.iter().flat_map(|p| p.first..p.first + p.count).collect();
            assert_eq!(kept.len() as u32 + discarded.lost, 10);
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
fn a_new_rate_applies_to_later_packets() {
    let mut link = RelayLink::new(1);
    arrive(&mut link, 0, &PLAIN, Segments::one(1000));
    let faster = LinkParams { rate_bit_s: 80_000_000, ..PLAIN };
    assert_eq!(arrive(&mut link, 0, &faster, Segments::one(1000)).0[0].departs_ns, MS + MS / 10);
    let none = LinkParams { rate_bit_s: 0, ..PLAIN };
    assert_eq!(arrive(&mut link, 0, &none, Segments::one(1000)).0[0].departs_ns, MS + MS / 10);
}
