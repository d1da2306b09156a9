use super::child::WINDOW_BYTES;
use super::*;
use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::Members;
use crate::multicast::method_name::Method;
use crate::multicast::pieces::Pieces;
use crate::multicast::plan::Plan;
use crate::rng::Rng;
use proptest::prelude::*;

const PIECE_BYTES: u32 = 64 << 10;

/// Hosts with queues between them. The seed determines all delays.
struct Net {
    members: Members,
    routes: Arc<Routes>,
    nodes: Vec<Option<Planned>>,
    /// The two ends of each session, in both directions.
    sessions: BTreeSet<(MemberId, MemberId)>,
    queues: BTreeMap<(MemberId, MemberId), VecDeque<Item>>,
    rng: Rng,
    now_us: u64,
    finished: BTreeSet<MemberId>,
    /// Every piece that arrived: sender, receiver, piece, time.
    came: Vec<(MemberId, MemberId, u32, u64)>,
}

#[derive(Debug, PartialEq)]
enum Item {
    Message(Message),
    Piece(u32),
}

impl Net {
    fn new(members: Members, method: Method, bandwidths: Option<&Bandwidths>, count: u32, seed: u64) -> Self {
        let pieces = Pieces { total_bytes: u64::from(count) * u64::from(PIECE_BYTES), piece_bytes: PIECE_BYTES };
        let plan = Plan::of(method, &members, bandwidths).unwrap();
        let routes = Arc::new(Routes::new(&members, plan, pieces).unwrap());
        let hosts = members.count();
        Self {
            members,
            routes,
            nodes: (0..hosts).map(|_| None).collect(),
            sessions: BTreeSet::new(),
            queues: BTreeMap::new(),
            rng: Rng::new(seed),
            now_us: 0,
            finished: BTreeSet::new(),
            came: Vec::new(),
        }
    }

    fn start_all(&mut self) {
        // All hosts exist before the first one starts; the others count as down.
        for host in 0..self.members.count() as u32 {
            self.nodes[host as usize] = Some(self.node(host, PieceSet::none(self.routes.pieces().count())));
        }
        (0..self.members.count() as u32).for_each(|host| self.handle(host, Input::Start));
    }

    fn node(&self, host: MemberId, held: PieceSet) -> Planned {
        let all = host == self.members.root();
        let held = if all { PieceSet::all(held.pieces()) } else { held };
        Planned::new(host, Arc::clone(&self.routes), held)
    }

    fn handle(&mut self, host: MemberId, input: Input) {
        let Some(node) = self.nodes[host as usize].as_mut() else { return };
        node.handle(self.now_us, input);
        let outputs: Vec<Output> = std::iter::from_fn(|| node.poll()).collect();
        for output in outputs {
            match output {
                Output::Connect(peer) => self.connect(host, peer),
                Output::Send(peer, message) => self.queue(host, peer, Item::Message(message)),
                Output::SendPiece(peer, piece) => {
                    self.queue(host, peer, Item::Piece(piece));
                    let queued = self.queues[&(host, peer)].iter().filter(|item| matches!(item, Item::Piece(_)));
                    assert!(queued.count() as u64 * u64::from(PIECE_BYTES) <= WINDOW_BYTES);
                }
                Output::Withdraw(peer, piece) => {
                    let queue = self.queues.get_mut(&(host, peer)).unwrap();
                    queue.retain(|item| *item != Item::Piece(piece));
                }
                Output::Finished => assert!(self.finished.insert(host), "host {host} finishes twice"),
            }
        }
    }

    fn queue(&mut self, from: MemberId, to: MemberId, item: Item) {
        assert!(self.sessions.contains(&(from, to)), "{item:?} from {from} to {to} without a session");
        self.queues.entry((from, to)).or_default().push_back(item);
    }

    fn connect(&mut self, from: MemberId, to: MemberId) {
        let parents = self.routes.trees().any(|tree| self.routes.parent(tree, to) == Some(from));
        assert!(parents, "only parents connect");
        if self.nodes[to as usize].is_none() {
            self.handle(from, Input::Down(to));
        } else if self.sessions.insert((from, to)) {
            self.sessions.insert((to, from));
            self.handle(from, Input::Up(to));
            self.handle(to, Input::Up(from));
        }
    }

    /// Performs one of the next possible events; returns `false` if there is none before
    /// `until_us`.
    fn step(&mut self, until_us: u64) -> bool {
        let ready: Vec<_> = self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(pair, _)| *pair).collect();
        if ready.is_empty() {
            let wakes = self.nodes.iter().enumerate().filter_map(|(h, node)| Some((node.as_ref()?.wake_at_us()?, h)));
            return match wakes.min() {
                Some((wake_us, host)) if wake_us <= until_us => {
                    self.now_us = self.now_us.max(wake_us);
                    self.handle(host as u32, Input::Wake);
                    true
                }
                _ => false,
            };
        }
        let (from, to) = ready[self.rng.below(ready.len() as u64) as usize];
        match self.queues.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            Some(Item::Piece(piece)) => {
                self.came.push((from, to, piece, self.now_us));
                self.handle(from, Input::Sent { to, piece });
                self.handle(to, Input::Stored { from, piece });
            }
            Some(Item::Message(message)) => self.handle(to, Input::Message(from, message)),
            None => unreachable!("it is ready"),
        }
        true
    }

    fn run_until(&mut self, until_us: u64) {
        // Far more than any of these tests takes.
        for _ in 0..2_000_000 {
            if !self.step(until_us) {
                return;
            }
        }
        panic!("the broadcast does not end");
    }

    /// Removes a host and all its sessions. Its data on disk is kept if asked for.
    fn kill(&mut self, host: MemberId) -> PieceSet {
        let held = self.nodes[host as usize].take().unwrap().held().clone();
        let peers: Vec<_> = self.sessions.iter().filter(|(from, _)| *from == host).map(|(_, to)| *to).collect();
        for peer in peers {
            for pair in [(host, peer), (peer, host)] {
                self.sessions.remove(&pair);
                self.queues.remove(&pair);
            }
            self.handle(peer, Input::Down(host));
        }
        held
    }

    fn revive(&mut self, host: MemberId, held: PieceSet) {
        self.nodes[host as usize] = Some(self.node(host, held));
        self.handle(host, Input::Start);
    }

    fn is_full(&self, host: MemberId) -> bool {
        self.nodes[host as usize].as_ref().is_some_and(|node| node.held().is_full())
    }

    fn assert_all_are_complete(&self) {
        for host in 0..self.members.count() as u32 {
            assert!(self.is_full(host), "host {host} lacks something: {:?}", self.nodes[host as usize]);
            assert!(self.finished.contains(&host), "host {host} does not know that it is finished");
        }
    }
}

/// Any group, and a method with its input.
fn groups() -> impl Strategy<Value = (Members, Method, Option<Bandwidths>)> {
    let methods = [Method::Flat, Method::Chain, Method::Magpie, Method::Fpfr, Method::Balanced];
    let sizes = prop::collection::vec(1usize..6, 1..5);
    let parts = (sizes, prop::sample::select(methods.to_vec()), prop::collection::vec(1u32..20, 16), any::<bool>());
    (parts, any::<prop::sample::Index>()).prop_map(|((sizes, method, rates, limited), root)| {
        let count = sizes.len();
        let cluster_of: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, s)| (0..*s).map(move |_| c as u32)).collect();
        let hosts = cluster_of.len();
        let rate = |from: usize, to: usize| f64::from(rates[from * 4 + to]) * 1e6;
        let bandwidths = Bandwidths {
            link_bytes_s: (0..count).map(|from| (0..count).map(|to| rate(from, to)).collect()).collect(),
            access_bytes_s: limited.then(|| vec![5e6; hosts]),
        };
        let members = Members::new(cluster_of, root.index(hosts) as u32).unwrap();
        (members, method, method.needs_bandwidths().then_some(bandwidths))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_hosts_get_every_piece_once_along_its_tree((members, method, bandwidths) in groups(), count in 0u32..80, seed in any::<u64>()) {
        let mut net = Net::new(members, method, bandwidths.as_ref(), count, seed);
        net.start_all();
        net.run_until(u64::MAX);
        net.assert_all_are_complete();
        let mut once = BTreeSet::new();
        for (from, to, piece, _) in &net.came {
            prop_assert!(once.insert((*to, *piece)), "piece {} came twice to {}", piece, to);
            prop_assert_eq!(net.routes.parent(net.routes.tree_of(*piece), *to), Some(*from));
        }
        prop_assert_eq!(once.len(), (net.members.count() - 1) * count as usize);
    }

    /// A host dies during the broadcast and returns, with its data or without.
    #[test]
    fn a_returning_host_gets_the_rest(
        (members, method, bandwidths) in groups(),
        seed in any::<u64>(),
        victim in any::<prop::sample::Index>(),
        steps in 0usize..2000,
        keeps in any::<bool>(),
    ) {
        let count = 60;
        prop_assume!(members.count() > 1);
        let victim = victim.index(members.count()) as u32;
        prop_assume!(victim != members.root());
        let mut net = Net::new(members, method, bandwidths.as_ref(), count, seed);
        net.start_all();
        for _ in 0..steps {
            net.step(u64::MAX);
        }
        let held = net.kill(victim);
        net.run_until(net.now_us + 10_000_000);
        // Hosts that are below it in no tree are complete.
        let mut out: BTreeSet<MemberId> = BTreeSet::new();
        for tree in net.routes.trees() {
            for host in 0..net.members.count() as u32 {
                let mut way = std::iter::successors(Some(host), |at| net.routes.parent(tree, *at));
                if way.any(|at| at == victim) {
                    out.insert(host);
                }
            }
        }
        for host in (0..net.members.count() as u32).filter(|host| !out.contains(host)) {
            prop_assert!(net.is_full(host), "host {host} is not below {victim}");
        }
        net.finished.remove(&victim);
        let (before, kept) = (net.came.len(), if keeps { held } else { PieceSet::none(count) });
        net.revive(victim, kept.clone());
        // By then unfinished hosts request it again, and finished ones learn that it is back.
        net.run_until(net.now_us + MAX_RETRY_US);
        for tree in net.routes.trees() {
            let parent = net.routes.parent(tree, victim).unwrap();
            if net.finished.contains(&parent) {
                net.connect(parent, victim);
            }
        }
        // Retries stop when all is done, so this ends.
        net.run_until(u64::MAX);
        net.assert_all_are_complete();
        let mut once = kept;
        for (_, _, piece, _) in net.came[before..].iter().filter(|(_, to, ..)| *to == victim) {
            prop_assert!(once.insert(*piece), "piece {} was sent although it was held", piece);
        }
    }
}

#[test]
fn a_child_that_never_appeared_does_not_delay_the_end() {
    let members = Members::new(vec![0, 0, 1, 1], 0).unwrap();
    let mut net = Net::new(members, Method::Magpie, None, 5, 1);
    for host in [0, 1, 2] {
        net.nodes[host] = Some(net.node(host as u32, PieceSet::none(5)));
    }
    (0..3).for_each(|host| net.handle(host, Input::Start));
    net.run_until(u64::MAX);
    assert_eq!(net.finished, BTreeSet::from([0, 1, 2]));
    assert!((0..3).all(|host| net.is_full(host)));
}

#[test]
fn pieces_that_a_child_holds_leave_its_queue() {
    let members = Members::new(vec![0, 0], 0).unwrap();
    let mut net = Net::new(members, Method::Flat, None, 20, 1);
    net.nodes[0] = Some(net.node(0, PieceSet::none(20)));
    let mut root = net.nodes[0].take().unwrap();
    let put_out = |root: &mut Planned| std::iter::from_fn(|| root.poll()).collect::<Vec<_>>();
    root.handle(0, Input::Start);
    root.handle(0, Input::Up(1));
    let window = u64::from(PIECE_BYTES);
    let first: Vec<Output> = (0..(WINDOW_BYTES / window) as u32).map(|piece| Output::SendPiece(1, piece)).collect();
    assert_eq!(put_out(&mut root), [vec![Output::Connect(1)], first].concat());
    root.handle(0, Input::Message(1, Message::Have(vec![3, 9, 8])));
    let next = [Output::Withdraw(1, 3), Output::SendPiece(1, 10)];
    assert_eq!(put_out(&mut root), next);
    // Piece 3 had begun, which does no harm.
    root.handle(0, Input::Sent { to: 1, piece: 3 });
    assert_eq!(put_out(&mut root), []);
    root.handle(0, Input::Sent { to: 1, piece: 0 });
    assert_eq!(put_out(&mut root), [Output::SendPiece(1, 11)]);
    // A set of other pieces is ignored.
    root.handle(0, Input::Message(1, Message::Bitfield(vec![0xff])));
    assert_eq!(put_out(&mut root), []);
}

/// Between two pieces of a tree to a child passes at least the time by its rate, except while
/// catching up.
#[test]
fn rates_are_kept() {
    let members = Members::new(vec![0, 1, 1, 2], 0).unwrap();
    let links = vec![vec![0.0, 2e6, 1e6], vec![2e6, 0.0, 3e6], vec![1e6, 3e6, 0.0]];
    let mut net = Net::new(members, Method::Balanced, Some(&Bandwidths::of_links(links)), 400, 3);
    net.start_all();
    net.run_until(u64::MAX);
    net.assert_all_are_complete();
    let mut lanes: BTreeMap<(usize, MemberId), Vec<u64>> = BTreeMap::new();
    for (_, to, piece, at_us) in &net.came {
        lanes.entry((net.routes.tree_of(*piece), *to)).or_default().push(*at_us);
    }
    assert!(lanes.len() >= 6, "two trees at least, three hosts");
    for ((tree, to), times) in lanes {
        let rate = net.routes.plan().trees[tree].rate_bytes_s.unwrap();
        let piece_us = f64::from(PIECE_BYTES) / rate * 1e6;
        let burst_us = (2.0 * piece_us).max(100_000.0) + piece_us;
        for (place, at_us) in times.iter().enumerate() {
            let least_us = place as f64 * piece_us - burst_us;
            assert!(
                *at_us as f64 >= least_us - 1.0,
                "tree {tree} to {to}: piece {place} after {at_us} us, not {least_us}"
            );
        }
        // The rate is used: the last piece arrived at about the expected time.
        let last_us = *times.last().unwrap() as f64;
        assert!(last_us <= times.len() as f64 * piece_us + 1e6, "tree {tree} to {to}: {last_us}");
    }
}
