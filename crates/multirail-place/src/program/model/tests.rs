//! What a decision has to achieve, stated on the model.

use super::port_set::PortSet;
use super::types::{Decision, HostModel, Packet, PeerModel};
use crate::program::layout::*;
use multirail_proto::placement::{MAX_PORTS, Policy};
use proptest::prelude::*;

const NS_PER_KIB: u64 = 81_920; // 100 Mbit/s

fn host(policy: Policy, ports: usize) -> HostModel {
    HostModel::new(policy, 7_000, &vec![NS_PER_KIB; ports])
}

/// A full frame of a stream that has much to send.
fn bulk(now_ns: u64) -> Packet {
    Packet {
        now_ns,
        bytes: 1514,
        is_tcp: 1,
        backlog_bytes: 1 << 20,
        in_flight_segments: 10,
        unsent_bytes: 1 << 19,
        has_queues: 1,
        ..Packet::default()
    }
}

/// The numbers of frames at each port when `streams` streams send in turn, at the rate of all
/// ports.
fn shares(policy: Policy, ports: usize, streams: usize, frames: u64) -> Vec<u64> {
    let (mut host, mut peer) = (host(policy, ports), PeerModel::new(PortSet::first(ports)));
    let mut all = vec![StreamState::default(); streams];
    let mut carried = vec![0; ports];
    for frame in 0..frames {
        let packet = bulk(1 + frame * 1514 * NS_PER_KIB / 1024 / ports as u64);
        let stream = &mut all[frame as usize % streams];
        let to = host.decide(&mut peer, stream, &packet).expect("ports that work").port;
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
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), PeerModel::new(PortSet::first(4)));
    let mut all = [StreamState::default(); 4];
    let mut ports = vec![Vec::new(); 4];
    for frame in 0..4_000_u64 {
        let who = frame as usize % 4;
        let to = host.decide(&mut peer, &mut all[who], &bulk(1 + frame * 31_000)).expect("ports that work");
        // The first streams start before the others are known.
        if frame >= 100 {
            ports[who].push(to);
        }
    }
    let homes: Vec<u32> = ports.iter().map(|to| to[0].port).collect();
    assert!(
        ports
            .iter()
            .zip(&homes)
            .all(|(to, home)| to.iter().all(|d| *d == Decision { port: *home, reason: REASON_PINNED })),
        "{homes:?}"
    );
    let mut sorted = homes.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3]);
}

/// Four streams to one peer, each pinned to one of four ports, and the present time.
fn four_pinned() -> (HostModel, PeerModel, [StreamState; 4], u64) {
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), PeerModel::new(PortSet::first(4)));
    let mut all = [StreamState::default(); 4];
    let now_ns = send_in_turn(&mut host, &mut peer, &mut all, 1, 100);
    assert!(all.iter().all(|stream| PortSet(stream.allowed_ports).len() == 1));
    (host, peer, all, now_ns)
}

/// Sends full frames of busy streams in turn, and returns the time afterwards.
fn send_in_turn(
    host: &mut HostModel,
    peer: &mut PeerModel,
    all: &mut [StreamState],
    from_ns: u64,
    frames: usize,
) -> u64 {
    for frame in 0..frames {
        let who = frame % all.len();
        host.decide(peer, &mut all[who], &bulk(from_ns + frame as u64 * 31_000)).expect("ports that work");
    }
    from_ns + frames as u64 * 31_000
}

/// A frame of a program that was scheduled late: nothing is unsent.
fn late(now_ns: u64, in_flight_segments: u32) -> Packet {
    Packet { unsent_bytes: 0, in_flight_segments, ..bulk(now_ns) }
}

#[test]
fn a_pinned_stream_keeps_its_port_for_a_second_and_while_segments_are_in_flight() {
    let (host, peer, all, now_ns) = four_pinned();
    let reason = |after_ms: u64, in_flight: u32| {
        let (mut host, mut peer, mut stream) = (host.clone(), peer.clone(), all[0]);
        let home = stream.port;
        let packet = late(now_ns + after_ms * 1_000_000, in_flight);
        let decision = host.decide(&mut peer, &mut stream, &packet).expect("ports that work");
        assert!(decision.reason != REASON_PINNED || decision.port == home, "{decision:?}");
        decision.reason
    };
    assert_eq!(reason(60, 0), REASON_PINNED);
    assert_eq!(reason(990, 0), REASON_PINNED);
    assert_eq!(reason(1_010, 0), REASON_EARLIEST);
    assert_eq!(reason(1_010, 1), REASON_PINNED);
}

#[test]
fn streams_that_ended_without_fin_leave_their_ports_to_the_others_after_a_quarter_of_a_second() {
    for (after_ms, ports) in [(240, 1), (270, 4)] {
        let (mut host, mut peer, mut all, now_ns) = four_pinned();
        // Three continue, and the fourth sends nothing more.
        let frames = (after_ms * 1_000_000 / 31_000) as usize;
        send_in_turn(&mut host, &mut peer, &mut all[..3], now_ns, frames);
        assert!(all[..3].iter().all(|stream| PortSet(stream.allowed_ports).len() == ports), "{after_ms} ms: {all:?}");
    }
}

#[test]
fn streams_that_end_with_fin_leave_their_ports_at_once() {
    let (mut host, mut peer, mut all, now_ns) = four_pinned();
    let last = Packet { ends_stream: 1, ..late(now_ns, 1) };
    host.decide(&mut peer, &mut all[3], &last).expect("ports that work");
    send_in_turn(&mut host, &mut peer, &mut all[..3], now_ns + 1, 3);
    assert!(all[..3].iter().all(|stream| PortSet(stream.allowed_ports).len() == 4), "{all:?}");
}

#[test]
fn a_slot_is_reserved_for_its_stream_for_a_second() {
    for (after_ms, is_kept) in [(990, true), (1_010, false)] {
        let (mut host, mut peer, mut all, now_ns) = four_pinned();
        let (away, home) = (all[3], all[3].port);
        all[3] = StreamState::default();
        // A new stream in its place, so that there are as many as ports.
        let frames = ((after_ms - 900) * 1_000_000 / 31_000) as usize;
        let then_ns = now_ns + 900 * 1_000_000;
        send_in_turn(&mut host, &mut peer, &mut all, then_ns, frames);
        all[3] = away;
        let back = host.decide(&mut peer, &mut all[3], &bulk(now_ns + after_ms * 1_000_000)).expect("ports that work");
        assert_eq!((back.reason, back.port == home), (REASON_PINNED, is_kept), "{after_ms} ms");
    }
}

#[test]
fn more_streams_than_ports_are_spread_evenly_and_no_port_stays_idle_when_some_end() {
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), PeerModel::new(PortSet::first(4)));
    let mut all = [StreamState::default(); 8];
    let now_ns = send_in_turn(&mut host, &mut peer, &mut all, 1, 200);
    let on = |all: &[StreamState]| {
        (0..4).map(|port| all.iter().filter(|stream| stream.port == port).count()).collect::<Vec<_>>()
    };
    assert_eq!(on(&all), [2, 2, 2, 2]);
    // Both streams of a port end.
    let mut rest: Vec<StreamState> = all.iter().copied().filter(|stream| stream.port != 2).collect();
    send_in_turn(&mut host, &mut peer, &mut rest, now_ns, 50_000);
    assert!(rest.iter().all(|stream| PortSet(stream.allowed_ports).len() == 1));
    assert!(on(&rest).iter().all(|streams| *streams > 0), "{:?}", on(&rest));
}

#[test]
fn a_slow_port_gets_its_rate() {
    let mut host = HostModel::new(Policy::Adaptive, 0, &[NS_PER_KIB, 5 * NS_PER_KIB]);
    let (mut peer, mut stream) = (PeerModel::new(PortSet::first(2)), StreamState::default());
    let mut carried = [0_u64; 2];
    for frame in 0..6_000_u64 {
        let to = host.decide(&mut peer, &mut stream, &bulk(1 + frame * 100_000)).expect("ports that work").port;
        carried[to as usize] += 1;
    }
    assert!(carried[1].abs_diff(1_000) < 50, "{carried:?}");
}

/// This happens when several hosts send to one.
#[test]
fn a_slow_port_of_the_peer_gets_its_rate_without_a_queue_here() {
    let theirs = [NS_PER_KIB, NS_PER_KIB, NS_PER_KIB, 5 * NS_PER_KIB];
    for ours in [[NS_PER_KIB / 100; 4], theirs] {
        let mut host = HostModel::new(Policy::Adaptive, 0, &ours);
        let mut peer = PeerModel::new(PortSet::first(4));
        peer.entry.ns_per_kib[..4].copy_from_slice(&theirs.map(|ns| ns as u32));
        let (mut stream, mut carried) = (StreamState::default(), [0_u64; 4]);
        for frame in 0..16_000_u64 {
            // A third of the rate of all ports.
            let packet = bulk(1 + frame * 114_000);
            let to = host.decide(&mut peer, &mut stream, &packet).expect("ports that work");
            carried[to.port as usize] += 1;
        }
        let due = [5_000, 5_000, 5_000, 1_000];
        assert!(carried.iter().zip(due).all(|(frames, due)| frames.abs_diff(due) < 50), "{ours:?}: {carried:?}");
    }
}

/// A stream that fills the other ports must not use it more, although its end here is free.
#[test]
fn a_port_that_is_slow_only_at_the_peer_gets_at_most_its_rate() {
    let mut host = host(Policy::Adaptive, 2);
    let mut peer = PeerModel::new(PortSet::first(2));
    peer.entry.ns_per_kib[1] = 10 * NS_PER_KIB as u32;
    let (mut stream, mut carried) = (StreamState::default(), [0_u64; 2]);
    for frame in 0..11_000_u64 {
        // Twice the rate of the first port.
        let packet = bulk(1 + frame * 1514 * NS_PER_KIB / 1024 / 2);
        carried[host.decide(&mut peer, &mut stream, &packet).expect("ports that work").port as usize] += 1;
    }
    assert!(carried[1].abs_diff(1_000) < 50, "{carried:?}");
}

#[test]
fn no_stream_is_kept_to_a_port_that_needs_a_quarter_more_than_the_fastest() {
    for (slow, ports) in [(NS_PER_KIB * 124 / 100, 1), (NS_PER_KIB * 125 / 100, 2)] {
        // The slow end is here or at the peer.
        for (here, there) in [(slow, 0), (NS_PER_KIB, slow)] {
            let mut host = HostModel::new(Policy::Adaptive, 0, &[NS_PER_KIB, here]);
            let mut peer = PeerModel::new(PortSet::first(2));
            peer.entry.ns_per_kib[1] = there as u32;
            let mut all = [StreamState::default(); 2];
            send_in_turn(&mut host, &mut peer, &mut all, 5_000_000, 100);
            assert_eq!(all.map(|stream| PortSet(stream.allowed_ports).len()), [1, ports], "{slow} ns: {all:?}");
        }
    }
}

#[test]
fn a_stream_whose_receiver_reports_duplicates_gets_fewer_ports() {
    let (mut host, mut peer) = (host(Policy::Adaptive, 4), PeerModel::new(PortSet::first(4)));
    let mut stream = StreamState::default();
    let mut last = 4;
    for frame in 0..100_000_u32 {
        let packet = Packet { segments: frame, duplicates: frame / 3, ..bulk(1 + u64::from(frame) * 31_000) };
        host.decide(&mut peer, &mut stream, &packet);
        last = PortSet(stream.allowed_ports).len();
    }
    assert_eq!(last, 1);
    for frame in 100_000..400_000_u32 {
        let packet = Packet { segments: frame, duplicates: 33_333, ..bulk(1 + u64::from(frame) * 31_000) };
        host.decide(&mut peer, &mut stream, &packet);
        last = PortSet(stream.allowed_ports).len();
    }
    assert_eq!(last, 4, "and all ports again when they stop");
}

#[test]
fn without_a_port_in_common_nothing_is_decided() {
    let mut host = host(Policy::Adaptive, 2);
    host.config.usable_ports = 0b01;
    assert_eq!(host.decide(&mut PeerModel::new(PortSet(0b10)), &mut StreamState::default(), &bulk(1)), None);
}

proptest! {
    /// Every packet leaves by a port that works at both ends. A pinned stream changes its port only
    /// if the port fails.
    #[test]
    fn only_ports_that_work_are_used(
        policy in prop::sample::select(Policy::ALL),
        ports in 1..=MAX_PORTS,
        steps in prop::collection::vec((0..12_usize, 0..2_000_000_u64, 60..65_000_u32, any::<u32>(), any::<u32>(), any::<u32>()), 1..300),
    ) {
        let (mut host, mut peer) = (host(policy, ports), PeerModel::new(PortSet::first(ports)));
        let mut streams = [StreamState::default(); 12];
        let (mut pinned, mut last) = ([false; 12], [0; 12]);
        let mut now_ns = 1;
        for (who, later_ns, bytes, backlog_bytes, layer34_hash, mask) in steps {
            now_ns += later_ns;
            // Sometimes ports fail or work again.
            if mask % 7 == 0 {
                host.config.usable_ports = PortSet::first(ports).0 & mask >> 3;
            }
                        let packet = Packet {
                now_ns, bytes, layer34_hash, layer2_hash: layer34_hash, is_tcp: u32::from(mask % 5 > 0), backlog_bytes,
                in_flight_segments: mask % 4, unsent_bytes: mask % 100_000, segments: mask, duplicates: mask / 9,
                ends_stream: u32::from(mask % 31 == 0), has_queues: u32::from(mask % 3 == 0),
                known_queues: PortSet::first(MAX_PORTS).0, queue_bytes: [backlog_bytes % 300_000; MAX_PORTS],
            };
            let common = PortSet(host.config.usable_ports & peer.entry.usable_ports);
            let decision = host.decide(&mut peer, &mut streams[who], &packet);
            prop_assert_eq!(decision.is_some(), common.len() > 0);
            let Some(decision) = decision else { continue };
            prop_assert!(common.contains(decision.port), "{:?} {:?}", decision, common);
            if policy == Policy::Backlog && pinned[who] && common.contains(last[who]) {
                prop_assert_eq!(decision.port, last[who]);
            }
            (pinned[who], last[who]) = (decision.reason == REASON_PINNED, decision.port);
        }
    }
}
