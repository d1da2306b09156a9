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
                unsent_bytes: mask % 100_000, segments: mask, duplicates: mask / 9, look,
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
