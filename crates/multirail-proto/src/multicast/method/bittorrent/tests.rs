//! One host, event by event. Swarms are tested in the simulator (`multirail-sim`).

use super::*;
use crate::rng::Rng;

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

/// The peers that the outputs unchoke, and those that they choke.
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
fn the_first_five_interested_peers_are_unchoked_at_once() {
    let mut node = seed(9);
    for peer in 1..9 {
        let (unchoked, choked) = choices(&tell(&mut node, peer, Message::Interested));
        assert_eq!((unchoked.len(), choked.len()), (usize::from(peer <= 5), 0), "peer {peer}");
    }
    // Another peer replaces one that loses interest. An unchoked peer whose interest returns
    // replaces another.
    let (unchoked, _) = choices(&tell(&mut node, 1, Message::NotInterested));
    assert_eq!(unchoked.len(), 1);
    let (_, choked) = choices(&tell(&mut node, 1, Message::Interested));
    assert_eq!(choked.len(), 1);
}

#[test]
fn a_seed_unchokes_the_fastest_downloaders_and_one_more() {
    let mut node = seed(12);
    (1..12).for_each(|peer| drop(tell(&mut node, peer, Message::Interested)));
    for (peer, pieces) in [(6, 40), (7, 30), (8, 20), (9, 10)] {
        (0..pieces).for_each(|piece| node.handle(2, Input::Sent { to: peer, piece }));
    }
    node.handle(ROUND_US, Input::Wake);
    let unchoked: BTreeSet<MemberId> = node.peers.iter().filter(|(_, p)| !p.is_choked).map(|(id, _)| *id).collect();
    assert!(unchoked.is_superset(&[6, 7, 8, 9].into()), "{unchoked:?}");
    assert_eq!(unchoked.len(), UNCHOKED);
    // The fifth stays for 30 seconds in any case.
    let optimistic = node.optimistic.unwrap();
    node.handle(2 * ROUND_US, Input::Wake);
    node.handle(3 * ROUND_US, Input::Wake);
    assert_eq!(node.optimistic, Some(optimistic));
}

#[test]
fn a_leecher_unchokes_its_uploaders() {
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
fn each_peer_gets_five_requests_for_different_pieces_and_a_choking_one_none() {
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
    // Requests that a choking peer drops go to other peers with room, and none has room.
    assert_eq!(tell(&mut node, 1, Message::Choke), []);
    let piece = node.peers[&2].asked[0];
    node.handle(2, Input::Stored { from: 2, piece });
    let requests =
        outputs(&mut node).into_iter().filter(|o| matches!(o, Output::Send(2, Message::Request(p)) if p.len() == 1));
    assert_eq!(requests.count(), 1);
}

#[test]
fn an_unresponsive_peer_is_not_waited_for() {
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
