//! Nodes without delays, but with any order of events, hosts that die, and hosts that return.

use crate::multicast::method::adaptive::Adaptive;
use crate::multicast::method::mob::Mob;
use crate::multicast::*;
use crate::rng::Rng;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Debug)]
enum Parcel {
    Message(Message),
    Piece(u32),
}

/// A network that delivers everything, in order between two hosts and otherwise in any order.
struct World {
    members: Arc<Members>,
    pieces: Pieces,
    method: Method,
    nodes: Vec<Option<Box<dyn Node>>>,
    /// The pieces of hosts that died.
    kept: BTreeMap<MemberId, PieceSet>,
    links: BTreeSet<(MemberId, MemberId)>,
    queues: BTreeMap<(MemberId, MemberId), VecDeque<Parcel>>,
    now_us: u64,
    rng: Rng,
    seed: u64,
    /// Pieces that entered a cluster from another, by cluster.
    entered: BTreeMap<u32, u32>,
    finished: BTreeSet<MemberId>,
}

impl World {
    fn new(method: Method, sizes: &[u32], pieces: u32, seed: u64) -> Self {
        let cluster_of = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
        let members = Arc::new(Members::new(cluster_of, 0).unwrap());
        let pieces = Pieces { total_bytes: u64::from(pieces) * 1000, piece_bytes: 1000 };
        let mut world = Self {
            nodes: Vec::new(),
            kept: BTreeMap::new(),
            links: BTreeSet::new(),
            queues: BTreeMap::new(),
            now_us: 0,
            rng: Rng::new(seed),
            seed,
            entered: BTreeMap::new(),
            finished: BTreeSet::new(),
            members,
            pieces,
            method,
        };
        for me in 0..world.members.count() as MemberId {
            let count = pieces.count();
            let held = if me == 0 { PieceSet::all(count) } else { PieceSet::none(count) };
            let node = world.node(me, held);
            world.nodes.push(Some(node));
        }
        for me in 0..world.members.count() as MemberId {
            world.tell(me, Input::Start);
        }
        world
    }

    fn node(&self, me: MemberId, held: PieceSet) -> Box<dyn Node> {
        let members = self.members.clone();
        match self.method {
            Method::Mob => Box::new(Mob::new(members, me, self.pieces, held, self.seed)),
            _ => Box::new(Adaptive::new(members, me, self.pieces, held, self.seed)),
        }
    }

    fn up(&mut self, one: MemberId, other: MemberId) {
        let pair = (one.min(other), one.max(other));
        let alive = |m: MemberId| self.nodes[m as usize].is_some();
        if !alive(other) {
            self.tell(one, Input::Down(other));
        } else if self.links.insert(pair) {
            self.tell(one, Input::Up(other));
            self.tell(other, Input::Up(one));
        }
    }

    fn tell(&mut self, me: MemberId, input: Input) {
        let Some(node) = &mut self.nodes[me as usize] else { return };
        node.handle(self.now_us, input);
        let mut connect = Vec::new();
        while let Some(output) = node.poll() {
            match output {
                Output::Connect(peer) => connect.push(peer),
                Output::Send(to, message) => {
                    let link = (me.min(to), me.max(to));
                    if self.links.contains(&link) {
                        self.queues.entry((me, to)).or_default().push_back(Parcel::Message(message));
                    }
                }
                Output::SendPiece(to, piece) => {
                    self.queues.entry((me, to)).or_default().push_back(Parcel::Piece(piece));
                }
                Output::Withdraw(to, piece) => {
                    let queue = self.queues.entry((me, to)).or_default();
                    queue.retain(|p| !matches!(p, Parcel::Piece(q) if *q == piece));
                }
                Output::Finished => {
                    self.finished.insert(me);
                }
            }
        }
        connect.into_iter().for_each(|peer| self.up(me, peer));
    }

    /// Delivers something or advances time a little. Returns whether anything was in transit.
    fn step(&mut self) -> bool {
        let waiting: Vec<_> = self.queues.iter().filter(|(_, q)| !q.is_empty()).map(|(pair, _)| *pair).collect();
        if waiting.is_empty() {
            let Some(at) = self.nodes.iter().flatten().filter_map(|n| n.wake_at_us()).min() else { return false };
            self.now_us = self.now_us.max(at);
            for me in 0..self.nodes.len() {
                self.tell(me as MemberId, Input::Wake);
            }
            return true;
        }
        self.now_us += 100;
        let (from, to) = waiting[self.rng.below(waiting.len() as u64) as usize];
        match self.queues.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            Some(Parcel::Message(message)) => self.tell(to, Input::Message(from, message)),
            Some(Parcel::Piece(piece)) => {
                self.tell(from, Input::Sent { to, piece });
                if !self.members.are_local(from, to) {
                    *self.entered.entry(self.members.cluster(to)).or_default() += 1;
                }
                self.tell(to, Input::Stored { from, piece });
            }
            None => {}
        }
        true
    }

    fn kill(&mut self, who: MemberId) {
        if let Some(node) = self.nodes[who as usize].take() {
            self.kept.insert(who, node.held().clone());
        }
        self.queues.retain(|(from, to), _| *from != who && *to != who);
        let peers: Vec<_> = self.links.iter().copied().filter(|(a, b)| *a == who || *b == who).collect();
        for (a, b) in peers {
            self.links.remove(&(a, b));
            self.tell(if a == who { b } else { a }, Input::Down(who));
        }
    }

    /// Loses a link with everything in transit on it. Both hosts live.
    fn cut(&mut self, which: prop::sample::Index) {
        let links: Vec<_> = self.links.iter().copied().collect();
        if links.is_empty() {
            return;
        }
        let (a, b) = links[which.index(links.len())];
        self.queues.remove(&(a, b));
        self.queues.remove(&(b, a));
        self.links.remove(&(a, b));
        self.tell(a, Input::Down(b));
        self.tell(b, Input::Down(a));
    }

    fn revive(&mut self, who: MemberId) {
        if let Some(held) = self.kept.remove(&who) {
            self.nodes[who as usize] = Some(self.node(who, held));
            self.tell(who, Input::Start);
        }
    }

    fn complete(&self) -> bool {
        self.nodes.iter().flatten().all(|n| n.held().is_full())
    }

    /// Runs until all live hosts are complete and returns the number of steps.
    fn run(&mut self, most: usize) -> usize {
        (0..most).find(|_| self.complete() || !self.step()).unwrap_or(most)
    }
}

fn method() -> impl Strategy<Value = Method> {
    prop_oneof![Just(Method::Mob), Just(Method::Adaptive)]
}

#[test]
fn the_neighbour_of_two_dead_hosts_takes_both_shares() {
    for (first, second) in [(7, 8), (8, 7), (12, 6), (6, 12)] {
        let mut world = World::new(Method::Adaptive, &[6, 7], 109, 1);
        world.kill(first);
        world.kill(second);
        world.run(300_000);
        assert!(world.complete(), "{first} and {second}");
    }
}

fn adaptive(sizes: &[u32], me: MemberId, pieces: u32) -> Adaptive {
    let cluster_of = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
    let members = Arc::new(Members::new(cluster_of, 0).unwrap());
    let pieces = Pieces { total_bytes: u64::from(pieces) * 1000, piece_bytes: 1000 };
    Adaptive::new(members, me, pieces, PieceSet::none(pieces.count()), 1)
}

fn outputs(node: &mut Adaptive, input: Input) -> Vec<Output> {
    node.handle(0, input);
    std::iter::from_fn(|| node.poll()).collect()
}

#[test]
fn neighbours_of_the_root_are_asked_before_they_report_pieces() {
    let mut node = adaptive(&[2, 2], 3, 2);
    // Host 3 has the second half of its cluster's pieces as its share.
    assert_eq!(outputs(&mut node, Input::Up(1)), [Output::Send(1, Message::Request(vec![1]))]);
    // The same request to a neighbour, or to a host of another cluster, would fail.
    let mut node = adaptive(&[2, 2, 2], 3, 2);
    assert_eq!(outputs(&mut node, Input::Up(2)), []);
    assert_eq!(outputs(&mut node, Input::Up(5)), []);
}

#[test]
fn an_early_request_is_answered_when_the_piece_arrives_without_an_announcement() {
    let mut node = adaptive(&[2, 3], 1, 3);
    for peer in [0, 3, 4] {
        outputs(&mut node, Input::Up(peer));
    }
    assert_eq!(outputs(&mut node, Input::Message(3, Message::Request(vec![1, 2]))), []);
    assert_eq!(outputs(&mut node, Input::Message(3, Message::Cancel(vec![2]))), []);
    let told = outputs(&mut node, Input::Stored { from: 0, piece: 1 });
    assert_eq!(told, [Output::SendPiece(3, 1)]);
    assert_eq!(outputs(&mut node, Input::Stored { from: 0, piece: 2 }), [Output::Send(4, Message::Have(vec![2]))]);
    // The window was not the limit.
    outputs(&mut node, Input::Message(3, Message::Request(vec![0])));
    assert_eq!(outputs(&mut node, Input::Sent { to: 3, piece: 1 }), []);
}

#[test]
fn a_neighbour_that_lost_the_root_is_not_waited_for() {
    let mut node = adaptive(&[2, 2, 2], 3, 2);
    assert_eq!(outputs(&mut node, Input::Up(1)), [Output::Send(1, Message::Request(vec![1]))]);
    outputs(&mut node, Input::Up(5));
    let told = outputs(&mut node, Input::Message(1, Message::Watch(vec![0, 1])));
    assert_eq!(told, [Output::Send(1, Message::Cancel(vec![1]))]);
    let told = outputs(&mut node, Input::Message(5, Message::Have(vec![1])));
    assert!(told.contains(&Output::Send(5, Message::Request(vec![1]))), "{told:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_hosts_complete_and_each_cluster_gets_each_piece_once(
        method in method(), sizes in prop::collection::vec(1u32..12, 1..6), pieces in 0u32..150, seed: u64,
    ) {
        let mut world = World::new(method, &sizes, pieces, seed);
        world.run(2_000_000);
        prop_assert!(world.complete(), "not complete");
        for (cluster, entered) in &world.entered {
            // A late piece that is requested elsewhere can arrive twice; no piece here is late for
            // long.
            let spare = if method == Method::Mob { 0 } else { pieces / 10 + 2 };
            prop_assert!((pieces..=pieces + spare).contains(entered), "cluster {cluster}: {entered} of {pieces}");
        }
        while world.finished.len() < world.nodes.len() && world.step() {}
        if method == Method::Adaptive {
            prop_assert_eq!(world.finished.len(), world.nodes.len());
        }
    }

    #[test]
    fn lost_links_are_restored(
        method in method(), sizes in prop::collection::vec(1u32..10, 2..5), pieces in 1u32..150, seed: u64,
        cuts in prop::collection::vec((0usize..300, any::<prop::sample::Index>()), 1..40),
    ) {
        let mut world = World::new(method, &sizes, pieces, seed);
        for (after, which) in cuts {
            for _ in 0..after {
                world.step();
            }
            world.cut(which);
        }
        world.run(300_000);
        prop_assert!(world.complete(), "not complete");
    }

    #[test]
    fn live_and_returning_hosts_complete(
        sizes in prop::collection::vec(2u32..10, 2..5), pieces in 1u32..150, seed: u64,
        deaths in prop::collection::vec((0usize..3000, any::<prop::sample::Index>(), any::<bool>()), 1..5),
    ) {
        let mut world = World::new(Method::Adaptive, &sizes, pieces, seed);
        let count = world.nodes.len();
        let mut back = Vec::new();
        for (after, who, returns) in deaths {
            for _ in 0..after {
                world.step();
            }
            // All but the root, which alone is complete at first.
            let who = 1 + who.index(count - 1) as MemberId;
            world.kill(who);
            if returns {
                back.push(who);
            }
        }
        for who in back {
            world.run(200);
            world.revive(who);
        }
        world.run(300_000);
        let missing: Vec<_> = world.nodes.iter().enumerate()
            .filter_map(|(i, n)| n.as_ref().map(|n| (i, n.held().len()))).filter(|(_, l)| *l < pieces).collect();
        prop_assert!(missing.is_empty(), "of {pieces}: {missing:?}");
    }

    #[test]
    fn the_root_may_leave_when_its_cluster_is_complete(sizes in prop::collection::vec(2u32..8, 2..5), pieces in 1u32..100, seed: u64) {
        let mut world = World::new(Method::Adaptive, &sizes, pieces, seed);
        let next_door = world.members.mob(0).to_vec();
        for _ in 0..1_000_000 {
            if next_door.iter().all(|m| world.nodes[*m as usize].as_ref().is_some_and(|n| n.held().is_full())) || !world.step() {
                break;
            }
        }
        world.kill(0);
        world.run(2_000_000);
        prop_assert!(world.complete());
    }
}
