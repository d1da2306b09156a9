//! A host alone, event by event; and swarms in the simulator.

use super::*;
use crate::rng::Rng;
use crate::sim::multicast::{At, Change, End, Outcome, Scenario, Until, Wan, run};
use proptest::prelude::*;

const PIECES: Pieces = Pieces { total_bytes: 100 << 14, piece_bytes: 1 << 14 };

fn outputs(node: &mut Bittorrent) -> Vec<Output> {
    std::iter::from_fn(|| node.poll()).collect()
}

/// Host 0 of `count`, with sessions to all others.
fn host(count: u32, held: PieceSet) -> Bittorrent {
    let members = Arc::new(Members::new(vec![0; count as usize], 0).unwrap());
    let mut node = Bittorrent::new(members, 0, PIECES, held, 1);
    node.handle(0, Input::Start);
    (1..count).for_each(|peer| node.handle(0, Input::Up(peer)));
    outputs(&mut node);
    node
}

fn seed(count: u32) -> Bittorrent {
    host(count, PieceSet::all(PIECES.count()))
}

fn leecher(count: u32) -> Bittorrent {
    host(count, PieceSet::none(PIECES.count()))
}

fn tell(node: &mut Bittorrent, from: MemberId, message: Message) -> Vec<Output> {
    node.handle(1, Input::Message(from, message));
    outputs(node)
}

/// Whom the outputs unchoke, and whom they choke.
fn choices(outputs: &[Output]) -> (BTreeSet<MemberId>, BTreeSet<MemberId>) {
    let sent = |wanted: Message| {
        let matches = move |o: &Output| match o {
            Output::Send(to, message) if *message == wanted => Some(*to),
            _ => None,
        };
        outputs.iter().filter_map(matches).collect()
    };
    (sent(Message::Unchoke), sent(Message::Choke))
}

#[test]
fn the_first_five_that_are_interested_are_unchoked_at_once() {
    let mut node = seed(9);
    for peer in 1..9 {
        let (unchoked, choked) = choices(&tell(&mut node, peer, Message::Interested));
        assert_eq!((unchoked.len(), choked.len()), (usize::from(peer <= 5), 0), "peer {peer}");
    }
    // One goes, another takes its place; one that was unchoked and is interested again takes it back from somebody.
    let (unchoked, _) = choices(&tell(&mut node, 1, Message::NotInterested));
    assert_eq!(unchoked.len(), 1);
    let (_, choked) = choices(&tell(&mut node, 1, Message::Interested));
    assert_eq!(choked.len(), 1);
}

#[test]
fn a_seed_keeps_those_who_take_most_and_one_more() {
    let mut node = seed(12);
    (1..12).for_each(|peer| drop(tell(&mut node, peer, Message::Interested)));
    for (peer, pieces) in [(6, 40), (7, 30), (8, 20), (9, 10)] {
        (0..pieces).for_each(|piece| node.handle(2, Input::Sent { to: peer, piece }));
    }
    node.handle(ROUND_US, Input::Wake);
    let unchoked: BTreeSet<MemberId> = node.peers.iter().filter(|(_, p)| !p.is_choked).map(|(id, _)| *id).collect();
    assert!(unchoked.is_superset(&[6, 7, 8, 9].into()), "{unchoked:?}");
    assert_eq!(unchoked.len(), UNCHOKED);
    // The fifth stays for 30 seconds, whatever it does.
    let optimistic = node.optimistic.unwrap();
    node.handle(2 * ROUND_US, Input::Wake);
    node.handle(3 * ROUND_US, Input::Wake);
    assert_eq!(node.optimistic, Some(optimistic));
}

#[test]
fn a_leecher_repays_those_who_give() {
    let mut node = leecher(12);
    node.handle(1, Input::Stored { from: 11, piece: 99 });
    (1..10).for_each(|peer| drop(tell(&mut node, peer, Message::Interested)));
    for (peer, pieces) in [(6, 0..8), (7, 8..15), (8, 15..20), (9, 20..22)] {
        pieces.for_each(|piece| node.handle(2, Input::Stored { from: peer, piece }));
    }
    node.handle(ROUND_US, Input::Wake);
    let unchoked: BTreeSet<MemberId> = node.peers.iter().filter(|(_, p)| !p.is_choked).map(|(id, _)| *id).collect();
    assert!(unchoked.is_superset(&[6, 7, 8, 9].into()) && unchoked.len() == UNCHOKED, "{unchoked:?}");
}

#[test]
fn newcomers_have_three_times_the_chance() {
    let mut drawn = 0;
    const TIMES: u64 = 400;
    for seed in 0..TIMES {
        let mut node = self::seed(8);
        node.rng = Rng::new(seed);
        (1..8).for_each(|peer| drop(tell(&mut node, peer, Message::Interested)));
        (1..5).for_each(|peer| node.handle(2, Input::Sent { to: peer, piece: 0 }));
        // 5, 6 and 7 are left: 7 has nothing.
        [5, 6].into_iter().for_each(|peer| drop(tell(&mut node, peer, Message::Have(vec![3]))));
        node.handle(ROUND_US, Input::Wake);
        drawn += u64::from(node.optimistic == Some(7));
    }
    // 3 of 5, give or take five standard deviations of the seeds.
    assert!((190..290).contains(&drawn), "{drawn} of {TIMES}");
}

#[test]
fn five_requests_a_peer_each_for_another_piece_and_none_of_a_choking_one() {
    let mut node = leecher(4);
    let all = Message::Bitfield(PieceSet::all(PIECES.count()).to_bytes());
    let mut asked = BTreeSet::new();
    for peer in 1..4 {
        assert_eq!(tell(&mut node, peer, all.clone()), [Output::Send(peer, Message::Interested)]);
        let out = tell(&mut node, peer, Message::Unchoke);
        let [Output::Send(to, Message::Request(pieces))] = &out[..] else { panic!("{out:?}") };
        assert_eq!((*to, pieces.len()), (peer, REQUESTS));
        asked.extend(pieces.iter().copied());
    }
    assert_eq!(asked.len(), 3 * REQUESTS);
    // What a peer that chokes leaves is asked of others when they have room, which they have not.
    assert_eq!(tell(&mut node, 1, Message::Choke), []);
    let piece = node.peers[&2].asked[0];
    node.handle(2, Input::Stored { from: 2, piece });
    let requests =
        outputs(&mut node).into_iter().filter(|o| matches!(o, Output::Send(2, Message::Request(p)) if p.len() == 1));
    assert_eq!(requests.count(), 1);
}

#[test]
fn who_never_answers_is_not_waited_for() {
    let members = Arc::new(Members::new(vec![0; 3], 0).unwrap());
    let small = Pieces { total_bytes: 3 << 14, piece_bytes: 1 << 14 };
    let mut node = Bittorrent::new(members, 2, small, PieceSet::none(3), 1);
    node.handle(0, Input::Start);
    for peer in 0..2 {
        node.handle(0, Input::Up(peer));
        node.handle(0, Input::Message(peer, Message::Bitfield(vec![7])));
        node.handle(0, Input::Message(peer, Message::Unchoke));
    }
    outputs(&mut node);
    assert_eq!((node.peers[&0].asked.len(), node.peers[&1].asked.len()), (3, 0));
    node.handle(SNUBBED_US - 1, Input::Wake);
    assert_eq!(node.peers[&1].asked.len(), 0);
    node.handle(SNUBBED_US + ROUND_US, Input::Wake);
    assert_eq!((node.peers[&0].asked.len(), node.peers[&1].asked.len()), (0, 3));
}

#[test]
fn requests_are_answered_when_unchoked_and_within_limits() {
    let mut node = seed(3);
    assert_eq!(tell(&mut node, 1, Message::Request(vec![1])), []);
    tell(&mut node, 1, Message::Interested);
    assert_eq!(tell(&mut node, 1, Message::Request(vec![1, 1])), [Output::SendPiece(1, 1)]);
    assert_eq!(tell(&mut node, 1, Message::Request((0..100).collect())).len(), MAX_QUEUED - 1);
}

fn swarm(scenario: &Scenario, seed: u64) -> Outcome {
    let members = &scenario.members;
    run(scenario, |me, held| Box::new(Bittorrent::new(members.clone(), me, scenario.pieces, held, seed)))
}

fn check(scenario: &Scenario, outcome: &Outcome) {
    assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
    let makespan_us = outcome.makespan_us().unwrap();
    let bound_us = scenario.bound_us().unwrap();
    assert!(makespan_us + 1 >= bound_us, "{makespan_us} us beats the bound, {bound_us} us");
}

#[test]
fn the_papers_four_clusters() {
    let pieces = Pieces { total_bytes: 16 << 20, piece_bytes: 128 << 10 };
    let scenario = Scenario::four_clusters([4; 4], Wan::Fast, 1.0, pieces).unwrap();
    let outcome = swarm(&scenario, 1);
    check(&scenario, &outcome);
    assert!(outcome.wan_bytes() >= 3 * pieces.total_bytes);
    assert_eq!(outcome, swarm(&scenario, 1));
    assert_ne!(outcome, swarm(&scenario, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn swarms_complete(
        sizes in prop::collection::vec(1u32..12, 1..5),
        seed in any::<u64>(),
        wan_bytes_s in 1e5..2e7f64,
        mayhem in any::<bool>(),
        total_bytes in 0u64..1_500_000,
    ) {
        let pieces = Pieces { total_bytes, piece_bytes: 1 << 14 };
        let mut scenario = Scenario::uniform(&sizes, wan_bytes_s, pieces).unwrap();
        if mayhem {
            scenario = scenario.mayhem(seed, 300_000, 5_000_000);
        }
        scenario.until = Until::Finished;
        check(&scenario, &swarm(&scenario, seed));
    }

    #[test]
    fn swarms_complete_when_hosts_die_and_come_back(
        sizes in prop::collection::vec(2u32..8, 1..4),
        seed in any::<u64>(),
        faults in prop::collection::vec((any::<u32>(), 0u64..3_000_000, prop::option::of(1u64..3_000_000)), 1..6),
    ) {
        let pieces = Pieces { total_bytes: 1 << 20, piece_bytes: 1 << 14 };
        let mut scenario = Scenario::uniform(&sizes, 1e6, pieces).unwrap();
        scenario.until = Until::Finished;
        let count = scenario.members.count() as u32;
        for (host, at_us, back) in faults {
            let host = 1 + host % (count - 1);
            scenario.schedule.push(At { at_us, change: Change::Die(host) });
            scenario.schedule.extend(back.map(|after| At { at_us: at_us + after, change: Change::Return(host) }));
        }
        let outcome = swarm(&scenario, seed);
        prop_assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
        prop_assert!(outcome.complete_us.iter().zip(&outcome.alive).all(|(at, alive)| !alive || at.is_some()));
    }
}
