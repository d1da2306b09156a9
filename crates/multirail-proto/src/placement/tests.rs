use super::*;
use proptest::prelude::*;

const NS_PER_KIB: u64 = 81_920; // 100 Mbit/s

fn host(policy: Policy, ports: usize) -> Host {
    Host::new(policy, 7_000, &vec![NS_PER_KIB; ports])
}

/// A full frame of a stream that has much to send.
fn bulk(now_ns: u64) -> Packet {
    Packet {
        now_ns,
        bytes: 1514,
        is_tcp: true,
        backlog_bytes: 1 << 20,
        in_flight: 10,
        unsent_bytes: 1 << 19,
        look: look(),
        ..Packet::default()
    }
}

fn look() -> Option<Look> {
    Some(Look::default())
}

/// Frames that each port carried when `streams` streams send in turn, each time a frame's worth of time has passed on all ports together.
fn shares(policy: Policy, ports: usize, streams: usize, frames: u64) -> Vec<u64> {
    let (mut host, mut peer) = (host(policy, ports), Peer::new(Mask::first(ports)));
    let mut all = vec![Stream::default(); streams];
    let mut carried = vec![0; ports];
    for frame in 0..frames {
        let packet = bulk(1 + frame * 1514 * NS_PER_KIB / 1024 / ports as u64);
        let stream = &mut all[frame as usize % streams];
        let to = host.decide(&mut peer, Some(stream), &packet).expect("ports that work").port;
        carried[to as usize] += 1;
    }
    carried
}

#[test]
fn one_busy_stream_has_one_port_with_the_papers_method_and_all_of_them_with_ours() {
    let papers = shares(Policy::Backlog, 4, 1, 4_000);
    assert_eq!(papers.iter().filter(|frames| **frames > 0).count(), 1, "{papers:?}");
    let ours = shares(Policy::Adaptive, 4, 1, 4_000);
    assert!(ours.iter().all(|frames| frames.abs_diff(1_000) <= 16), "{ours:?}");
}

#[test]
fn from_as_many_busy_streams_as_ports_on_each_keeps_to_its_own() {
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), Peer::new(Mask::first(4)));
    let mut all = [Stream::default(); 4];
    let mut ports = vec![Vec::new(); 4];
    for frame in 0..4_000_u64 {
        let who = frame as usize % 4;
        let to = host.decide(&mut peer, Some(&mut all[who]), &bulk(1 + frame * 31_000)).expect("ports that work");
        // The first that come do not know of the others yet.
        if frame >= 100 {
            ports[who].push(to);
        }
    }
    let homes: Vec<u32> = ports.iter().map(|to| to[0].port).collect();
    assert!(
        ports.iter().zip(&homes).all(|(to, home)| to.iter().all(|d| *d == Decision { port: *home, why: Why::Pinned })),
        "{homes:?}"
    );
    let mut sorted = homes.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3]);
}

/// Four streams to one peer, on four ports, each with one of its own; and when that is.
fn four_pinned() -> (Host, Peer, [Stream; 4], u64) {
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), Peer::new(Mask::first(4)));
    let mut all = [Stream::default(); 4];
    let now_ns = send_in_turn(&mut host, &mut peer, &mut all, 1, 100);
    assert!(all.iter().all(|stream| stream.ports() == 1));
    (host, peer, all, now_ns)
}

/// Full frames of busy streams; the time after it.
fn send_in_turn(host: &mut Host, peer: &mut Peer, all: &mut [Stream], from_ns: u64, frames: usize) -> u64 {
    for frame in 0..frames {
        let who = frame % all.len();
        host.decide(peer, Some(&mut all[who]), &bulk(from_ns + frame as u64 * 31_000)).expect("ports that work");
    }
    from_ns + frames as u64 * 31_000
}

/// A frame of a program that has come late: nothing waited.
fn late(now_ns: u64, in_flight: u32) -> Packet {
    Packet { unsent_bytes: 0, in_flight, ..bulk(now_ns) }
}

#[test]
fn a_stream_with_a_port_of_its_own_keeps_it_for_a_second_and_while_anything_is_on_the_way() {
    let (host, peer, all, now_ns) = four_pinned();
    let why = |after_ms: u64, in_flight: u32| {
        let (mut host, mut peer, mut stream) = (host.clone(), peer.clone(), all[0]);
        let home = stream.port;
        let packet = late(now_ns + after_ms * 1_000_000, in_flight);
        let decision = host.decide(&mut peer, Some(&mut stream), &packet).expect("ports that work");
        assert!(decision.why != Why::Pinned || decision.port == home, "{decision:?}");
        decision.why
    };
    assert_eq!(why(60, 0), Why::Pinned);
    assert_eq!(why(990, 0), Why::Pinned);
    assert_eq!(why(1_010, 0), Why::Least);
    assert_eq!(why(1_010, 1), Why::Pinned);
}

#[test]
fn streams_that_ended_without_a_word_leave_their_ports_to_the_others_after_a_quarter_of_a_second() {
    for (after_ms, ports) in [(240, 1), (270, 4)] {
        let (mut host, mut peer, mut all, now_ns) = four_pinned();
        // Three go on; the fourth is not heard of again.
        let frames = (after_ms * 1_000_000 / 31_000) as usize;
        send_in_turn(&mut host, &mut peer, &mut all[..3], now_ns, frames);
        assert!(all[..3].iter().all(|stream| stream.ports() == ports), "{after_ms} ms: {all:?}");
    }
}

#[test]
fn streams_that_say_that_they_end_leave_their_ports_at_once() {
    let (mut host, mut peer, mut all, now_ns) = four_pinned();
    let last = Packet { is_last: true, ..late(now_ns, 1) };
    host.decide(&mut peer, Some(&mut all[3]), &last).expect("ports that work");
    send_in_turn(&mut host, &mut peer, &mut all[..3], now_ns + 1, 3);
    assert!(all[..3].iter().all(|stream| stream.ports() == 4), "{all:?}");
}

#[test]
fn a_slot_that_is_kept_is_nobody_elses_until_a_second_has_passed() {
    for (after_ms, is_kept) in [(990, true), (1_010, false)] {
        let (mut host, mut peer, mut all, now_ns) = four_pinned();
        let (away, home) = (all[3], all[3].port);
        all[3] = Stream::default();
        // Another in its place, and one more, so that there are as many as ports.
        let frames = ((after_ms - 900) * 1_000_000 / 31_000) as usize;
        let then_ns = now_ns + 900 * 1_000_000;
        send_in_turn(&mut host, &mut peer, &mut all, then_ns, frames);
        all[3] = away;
        let back =
            host.decide(&mut peer, Some(&mut all[3]), &bulk(now_ns + after_ms * 1_000_000)).expect("ports that work");
        assert_eq!((back.why, back.port == home), (Why::Pinned, is_kept), "{after_ms} ms");
    }
}

#[test]
fn more_streams_than_ports_are_as_many_on_each_and_no_port_is_left_out_when_some_end() {
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), Peer::new(Mask::first(4)));
    let mut all = [Stream::default(); 8];
    let now_ns = send_in_turn(&mut host, &mut peer, &mut all, 1, 200);
    let on =
        |all: &[Stream]| (0..4).map(|port| all.iter().filter(|stream| stream.port == port).count()).collect::<Vec<_>>();
    assert_eq!(on(&all), [2, 2, 2, 2]);
    // Both streams of a port end.
    let mut rest: Vec<Stream> = all.iter().copied().filter(|stream| stream.port != 2).collect();
    send_in_turn(&mut host, &mut peer, &mut rest, now_ns, 50_000);
    assert!(rest.iter().all(|stream| stream.ports() == 1));
    assert!(on(&rest).iter().all(|streams| *streams > 0), "{:?}", on(&rest));
}

#[test]
fn a_slow_port_gets_what_it_can_carry() {
    let mut host = Host::new(Policy::Adaptive, 0, &[NS_PER_KIB, 5 * NS_PER_KIB]);
    let (mut peer, mut stream) = (Peer::new(Mask::first(2)), Stream::default());
    let mut carried = [0_u64; 2];
    for frame in 0..6_000_u64 {
        let to = host.decide(&mut peer, Some(&mut stream), &bulk(1 + frame * 100_000)).expect("ports that work").port;
        carried[to as usize] += 1;
    }
    assert!(carried[1].abs_diff(1_000) < 50, "{carried:?}");
}

/// As where several hosts send to one.
#[test]
fn a_slow_port_of_the_peer_gets_what_it_can_carry_though_nothing_waits_here() {
    let theirs = [NS_PER_KIB, NS_PER_KIB, NS_PER_KIB, 5 * NS_PER_KIB];
    for ours in [[NS_PER_KIB / 100; 4], theirs] {
        let mut host = Host::new(Policy::Adaptive, 0, &ours);
        let mut peer = Peer::new(Mask::first(4));
        peer.ns_per_kib[..4].copy_from_slice(&theirs);
        let (mut stream, mut carried) = (Stream::default(), [0_u64; 4]);
        for frame in 0..16_000_u64 {
            // A third of what its ports carry.
            let packet = bulk(1 + frame * 114_000);
            let to = host.decide(&mut peer, Some(&mut stream), &packet).expect("ports that work");
            carried[to.port as usize] += 1;
        }
        let due = [5_000, 5_000, 5_000, 1_000];
        assert!(carried.iter().zip(due).all(|(frames, due)| frames.abs_diff(due) < 50), "{ours:?}: {carried:?}");
    }
}

/// A stream that fills the other ports must not spill over to it, though its own end here is free.
#[test]
fn a_port_that_is_slow_at_the_peer_only_gets_no_more_than_it_can_carry() {
    let mut host = host(Policy::Adaptive, 2);
    let mut peer = Peer::new(Mask::first(2));
    peer.ns_per_kib[1] = 10 * NS_PER_KIB;
    let (mut stream, mut carried) = (Stream::default(), [0_u64; 2]);
    for frame in 0..11_000_u64 {
        // Twice what the first can carry.
        let packet = bulk(1 + frame * 1514 * NS_PER_KIB / 1024 / 2);
        carried[host.decide(&mut peer, Some(&mut stream), &packet).expect("ports that work").port as usize] += 1;
    }
    assert!(carried[1].abs_diff(1_000) < 50, "{carried:?}");
}

#[test]
fn no_stream_is_kept_to_a_port_that_needs_a_quarter_more_than_the_fastest() {
    for (slow, ports) in [(NS_PER_KIB * 124 / 100, 1), (NS_PER_KIB * 125 / 100, 2)] {
        // Of either end.
        for (here, there) in [(slow, 0), (NS_PER_KIB, slow)] {
            let mut host = Host::new(Policy::Adaptive, 0, &[NS_PER_KIB, here]);
            let mut peer = Peer::new(Mask::first(2));
            peer.ns_per_kib[1] = there;
            let mut all = [Stream::default(); 2];
            send_in_turn(&mut host, &mut peer, &mut all, 5_000_000, 100);
            assert_eq!(all.map(|stream| stream.ports()), [1, ports], "{slow} ns: {all:?}");
        }
    }
}

#[test]
fn a_receiver_that_takes_reordering_for_loss_gets_a_stream_by_fewer_ports() {
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), Peer::new(Mask::first(4)));
    let mut stream = Stream::default();
    let mut last = 4;
    for frame in 0..100_000_u32 {
        let packet = Packet { segments: frame, duplicates: frame / 3, ..bulk(1 + u64::from(frame) * 31_000) };
        host.decide(&mut peer, Some(&mut stream), &packet);
        last = stream.ports();
    }
    assert_eq!(last, 1);
    for frame in 100_000..400_000_u32 {
        let packet = Packet { segments: frame, duplicates: 33_333, ..bulk(1 + u64::from(frame) * 31_000) };
        host.decide(&mut peer, Some(&mut stream), &packet);
        last = stream.ports();
    }
    assert_eq!(last, 4, "and by all again once it bears them");
}

#[test]
fn without_a_port_in_common_nothing_is_decided() {
    let mut host = host(Policy::Adaptive, 2);
    host.usable = Mask(0b01);
    assert_eq!(host.decide(&mut Peer::new(Mask(0b10)), None, &bulk(1)), None);
}

proptest! {
    /// Whatever comes, a packet leaves by a port that works at both ends; a pinned stream changes its port only if that fails.
    #[test]
    fn only_ports_that_work_are_used(
        policy in prop::sample::select(&Policy::ALL[..]),
        ports in 1..=MAX_PORTS,
        steps in prop::collection::vec((0..12_usize, 0..2_000_000_u64, 60..65_000_u32, any::<u32>(), any::<u32>(), any::<u32>()), 1..300),
    ) {
        let (mut host, mut peer) = (host(policy, ports), Peer::new(Mask::first(ports)));
        let mut streams = [Stream::default(); 12];
        let (mut pinned, mut last) = ([false; 12], [0; 12]);
        let mut now_ns = 1;
        for (who, later_ns, bytes, backlog_bytes, hash34, mask) in steps {
            now_ns += later_ns;
            // Now and then ports fail, and come back.
            if mask % 7 == 0 {
                host.usable = Mask::first(ports).and(Mask(mask >> 3));
            }
            let look = (mask % 3 == 0).then_some(Look { queued_bytes: [Some(backlog_bytes % 300_000); MAX_PORTS] });
            let packet = Packet {
                now_ns, bytes, hash34, hash2: hash34, is_tcp: mask % 5 > 0, backlog_bytes, in_flight: mask % 4,
                unsent_bytes: mask % 100_000, segments: mask, duplicates: mask / 9, is_last: mask % 31 == 0, look,
            };
            let common = host.usable.and(peer.usable);
            let decision = host.decide(&mut peer, Some(&mut streams[who]), &packet);
            prop_assert_eq!(decision.is_some(), common.count() > 0);
            let Some(decision) = decision else { continue };
            prop_assert!(common.has(decision.port), "{:?} {:?}", decision, common);
            if policy == Policy::Backlog && pinned[who] && common.has(last[who]) {
                prop_assert_eq!(decision.port, last[who]);
            }
            (pinned[who], last[who]) = (decision.why == Why::Pinned, decision.port);
        }
    }
}
