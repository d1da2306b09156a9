//! Members among themselves by seed: links that are cut and made again, in any order of events; and
//! a peer that sends anything.

use super::*;
use crate::multicast::members::Members;
use crate::multicast::message::Message;
use crate::rng::Rng;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

/// What travels in one direction of a link, in the order of the real queue: control items,
/// manifests, pieces.
#[derive(Debug, Default)]
struct Direction {
    items: VecDeque<ControlItem>,
    manifests: VecDeque<(u32, Vec<u32>)>,
    pieces: VecDeque<(u32, u32)>,
}

impl Direction {
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.manifests.is_empty() && self.pieces.is_empty()
    }
}

struct SimulatedHost {
    machine: Member,
    /// What the disk holds.
    stored: PieceSet,
    links: BTreeMap<MemberId, u64>,
    is_finished: bool,
}

/// A group whose messages arrive in order between two hosts and in any order otherwise.
struct World {
    hosts: Vec<SimulatedHost>,
    pieces: Pieces,
    directions: BTreeMap<(MemberId, MemberId), Direction>,
    dials: Vec<(MemberId, MemberId)>,
    /// Dials that fail later, since the other host was to make the link.
    late_failures: Vec<(u64, MemberId, MemberId)>,
    now_us: u64,
    rng: Rng,
    sent_twice: u32,
}

/// As long as a host waits for a link that the other one makes.
const DUPLICATE_TIMEOUT_US: u64 = 5_000_000;

impl World {
    fn new(sizes: &[u32], method: Method, pieces: Pieces, seed: u64) -> Self {
        let clusters = sizes.iter().enumerate();
        let cluster_of: Vec<u32> = clusters.flat_map(|(c, size)| (0..*size).map(move |_| c as u32)).collect();
        let members = Arc::new(Members::new(cluster_of, 0).unwrap());
        let host = |me| SimulatedHost {
            machine: Member::new(config(&members, me, method, seed), 0),
            stored: PieceSet::none(pieces.count()),
            links: BTreeMap::new(),
            is_finished: false,
        };
        let mut world = World {
            hosts: (0..members.count() as MemberId).map(host).collect(),
            pieces,
            directions: BTreeMap::new(),
            dials: Vec::new(),
            late_failures: Vec::new(),
            now_us: 0,
            rng: Rng::new(seed),
            sent_twice: 0,
        };
        (0..world.hosts.len() as MemberId).for_each(|host| world.carry_out(host));
        let all = PieceSet::all(pieces.count());
        world.hosts[0].stored = all.clone();
        world.hosts[0].machine.handle_broadcast(0, 0, pieces, all, false);
        world.carry_out(0);
        world
    }

    fn machine(&mut self, host: MemberId) -> &mut Member {
        &mut self.hosts[host as usize].machine
    }

    fn direction(&mut self, from: MemberId, to: MemberId) -> &mut Direction {
        self.directions.entry((from, to)).or_default()
    }

    fn carry_out(&mut self, me: MemberId) {
        while let Some(action) = self.machine(me).poll_action() {
            match action {
                Action::Dial(peer) => self.dials.push((me, peer)),
                Action::EndLink { peer, link } => {
                    if self.hosts[me as usize].links.get(&peer) == Some(&link) {
                        self.cut(me, peer);
                    }
                }
                Action::Send { to, item } => self.direction(me, to).items.push_back(item),
                Action::SendManifest { to, transfer, positions } => {
                    self.direction(me, to).manifests.push_back((transfer, positions));
                }
                Action::SendPiece { to, transfer, piece } => self.direction(me, to).pieces.push_back((transfer, piece)),
                Action::Withdraw { to, transfer, piece } => {
                    self.direction(me, to).pieces.retain(|queued| *queued != (transfer, piece));
                }
                Action::Finish(number) => {
                    self.hosts[me as usize].is_finished = true;
                    self.machine(me).handle_finished(number);
                }
                Action::Publish => {}
                Action::CloseLinks | Action::EndLinks => panic!("host {me} gives up"),
            }
        }
    }

    /// Ends the link between two hosts on both sides.
    fn cut(&mut self, one: MemberId, other: MemberId) {
        for (me, peer) in [(one, other), (other, one)] {
            self.directions.remove(&(me, peer));
            if let Some(link) = self.hosts[me as usize].links.remove(&peer) {
                let now_us = self.now_us;
                self.machine(me).handle_link_down(now_us, peer, link, None);
            }
        }
        self.carry_out(one);
        self.carry_out(other);
    }

    fn complete_dial(&mut self, from: MemberId, to: MemberId) {
        let now_us = self.now_us;
        let ends = self.machine(from).link_ends(to);
        match self.machine(to).handle_hello(from, ends) {
            Admission::Welcome(theirs) => {
                self.directions.remove(&(from, to));
                self.directions.remove(&(to, from));
                let accepted = self.machine(to).handle_link_up(now_us, from, ends, false);
                let dialled = self.machine(from).handle_link_up(now_us, to, theirs, true);
                for (me, peer, link) in [(to, from, accepted), (from, to, dialled)] {
                    self.hosts[me as usize].links.extend(link.map(|link| (peer, link)));
                }
                self.carry_out(to);
                self.carry_out(from);
                if accepted.is_none() || dialled.is_none() {
                    self.cut(from, to);
                }
            }
            Admission::Duplicate => self.late_failures.push((now_us + DUPLICATE_TIMEOUT_US, from, to)),
            Admission::Refused(_) => {
                self.machine(from).handle_dial_failed(now_us, to);
                self.carry_out(from);
            }
        }
    }

    /// Delivers the next thing in one direction. Honest members never find fault with each other.
    fn deliver(&mut self, from: MemberId, to: MemberId) {
        let now_us = self.now_us;
        let Some(direction) = self.directions.get_mut(&(from, to)) else { return };
        let Some(link) = self.hosts[to as usize].links.get(&from).copied() else { return };
        let (item, manifest, piece);
        item = direction.items.pop_front();
        manifest = if item.is_none() { direction.manifests.pop_front() } else { None };
        piece = if item.is_none() && manifest.is_none() { direction.pieces.pop_front() } else { None };
        let pieces = self.pieces;
        let machine = &mut self.hosts[to as usize].machine;
        machine.handle_heard(from, link, now_us);
        if let Some(item) = item {
            machine.handle_item(now_us, from, item).unwrap();
        }
        if let Some((number, positions)) = manifest
            && machine.handle_manifest_offer(now_us, number, positions.len()).unwrap()
            && machine.handle_manifest(from, number, pieces, 0, &positions)
        {
            let held = self.hosts[to as usize].stored.clone();
            self.machine(to).handle_store_open(now_us, number, held);
        }
        if let Some((number, piece)) = piece {
            self.machine(from).handle_sent(now_us, to, number, piece);
            self.carry_out(from);
            if self.machine(to).handle_piece_start(from, number, piece).unwrap() {
                self.sent_twice += u32::from(!self.hosts[to as usize].stored.insert(piece));
                self.machine(to).handle_bytes(now_us, from, number, u64::from(pieces.piece_bytes));
                self.machine(to).handle_stored(now_us, from, number, piece);
            }
        }
        self.carry_out(to);
    }

    /// One event at random; whether anything but time has moved.
    fn step(&mut self) -> bool {
        self.now_us += self.rng.below(2_000);
        if let Some(due) = self.late_failures.iter().position(|(at, ..)| *at <= self.now_us) {
            let (_, from, to) = self.late_failures.swap_remove(due);
            let now_us = self.now_us;
            self.machine(from).handle_dial_failed(now_us, to);
            self.carry_out(from);
        }
        for host in 0..self.hosts.len() as MemberId {
            let now_us = self.now_us;
            if self.machine(host).poll_timeout().is_some_and(|at| at <= now_us) {
                // In this world, a link without news is a link without faults.
                let links = self.hosts[host as usize].links.clone();
                links.iter().for_each(|(peer, link)| self.machine(host).handle_heard(*peer, *link, now_us));
                self.machine(host).handle_timeout(now_us);
                self.carry_out(host);
            }
        }
        let busy: Vec<(MemberId, MemberId)> =
            self.directions.iter().filter(|(_, d)| !d.is_empty()).map(|(pair, _)| *pair).collect();
        let choice = self.rng.below((busy.len() + self.dials.len()) as u64) as usize;
        if let Some((from, to)) = busy.get(choice) {
            self.deliver(*from, *to);
        } else if !self.dials.is_empty() {
            let (from, to) = self.dials.swap_remove(choice - busy.len());
            self.complete_dial(from, to);
        } else {
            let timeouts = self.hosts.iter().filter_map(|h| h.machine.poll_timeout());
            let next = timeouts.chain(self.late_failures.iter().map(|(at, ..)| *at)).min();
            self.now_us = next.unwrap_or(self.now_us).max(self.now_us);
            return false;
        }
        true
    }

    fn cut_any(&mut self) {
        let links: Vec<(MemberId, MemberId)> =
            self.hosts.iter().zip(0..).flat_map(|(h, me)| h.links.keys().map(move |peer| (me, *peer))).collect();
        if !links.is_empty() {
            let (one, other) = links[self.rng.below(links.len() as u64) as usize];
            self.cut(one, other);
        }
    }

    /// Runs until every host has finished.
    fn run(&mut self, mut cuts: u32) {
        const MAX_STEPS: u32 = 2_000_000;
        for _ in 0..MAX_STEPS {
            if self.hosts.iter().all(|h| h.is_finished) {
                return;
            }
            if cuts > 0 && self.rng.below(50) == 0 {
                cuts -= 1;
                self.cut_any();
            }
            self.step();
        }
        let missing: Vec<u32> = self.hosts.iter().map(|h| self.pieces.count() - h.stored.len()).collect();
        panic!("not finished after {MAX_STEPS} events; pieces missing: {missing:?}");
    }
}

fn config(members: &Arc<Members>, me: MemberId, method: Method, seed: u64) -> MemberConfig {
    MemberConfig {
        me,
        members: members.clone(),
        method,
        bandwidths: None,
        seed,
        incarnation: u64::from(me) + 1,
        answer_timeout_us: MemberConfig::ANSWER_TIMEOUT_US,
    }
}

fn check(sizes: &[u32], method: Method, pieces: u32, seed: u64, cuts: u32) {
    let pieces = Pieces { total_bytes: u64::from(pieces) << 14, piece_bytes: 1 << 14 };
    let mut world = World::new(sizes, method, pieces, seed);
    world.run(cuts);
    for host in &world.hosts {
        assert!(host.stored.is_full());
        let status = host.machine.status().unwrap();
        assert!(status.is_done && status.held_bytes == pieces.total_bytes);
        assert_eq!(host.machine.complaints(), []);
        assert_eq!(*host.machine.membership(), Membership::Active);
    }
    if cuts == 0 && method != Method::Adaptive {
        assert_eq!(world.sent_twice, 0, "no piece is requested twice without a reason");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_hosts_get_all_pieces_whatever_links_are_cut(
        sizes in prop::collection::vec(1u32..6, 1..4), seed in any::<u64>(), pieces in 1u32..60, cuts in 0u32..20,
        method in prop::sample::select(vec![Method::Adaptive, Method::Mob]),
    ) {
        check(&sizes, method, pieces, seed, cuts);
    }

    #[test]
    fn every_method_without_bandwidths_completes(
        sizes in prop::collection::vec(1u32..6, 1..4), seed in any::<u64>(), pieces in 1u32..60,
        method in prop::sample::select(vec![Method::Chain, Method::Flat, Method::Magpie]),
    ) {
        check(&sizes, method, pieces, seed, 0);
    }

    #[test]
    fn nothing_is_kept_of_a_peer_beyond_the_limits(seed in any::<u64>(), method in prop::sample::select(Method::ALL.to_vec())) {
        let mut rng = Rng::new(seed);
        let members = Arc::new(Members::new(vec![0, 0, 0, 1, 1, 1], 0).unwrap());
        let method = if method.needs_bandwidths() { Method::Flat } else { method };
        let mut machine = Member::new(config(&members, 4, method, seed), 0);
        let pieces = Pieces { total_bytes: 40 << 14, piece_bytes: 1 << 14 };
        let number = |rng: &mut Rng| {
            let bound = if rng.below(4) == 0 { u64::from(u32::MAX) } else { 100 };
            rng.below(bound) as u32
        };
        let mut now_us = 0;
        for _ in 0..3_000 {
            now_us += rng.below(100_000);
            let peer = rng.below(8) as MemberId;
            let ends = LinkEnds { incarnation: rng.below(3), downs: rng.below(3) as u32 };
            if let Admission::Welcome(_) = machine.handle_hello(peer, ends) {
                machine.handle_link_up(now_us, peer, ends, false);
            }
            let Some(link) = machine.core.links.get(peer).map(|l| l.number) else { continue };
            let n = number(&mut rng);
            let list: Vec<u32> = (0..rng.below(20)).map(|_| number(&mut rng) % 45).collect();
            let message = [
                Message::Have(list.clone()), Message::Request(list.clone()), Message::Cancel(list.clone()),
                Message::Take(list.clone()), Message::Watch(list.clone()), Message::Fetching(list),
                Message::Interested, Message::NotInterested, Message::Choke, Message::Unchoke,
                Message::BranchDone, Message::AllDone, Message::Bitfield(vec![0; rng.below(8) as usize]),
            ][rng.below(13) as usize].clone();
            let answer = match rng.below(9) {
                0 => machine.handle_item(now_us, peer, ControlItem::Ready(n)),
                1 => machine.handle_item(now_us, peer, ControlItem::Complete(n)),
                2 => machine.handle_item(now_us, peer, ControlItem::Ask),
                3 => machine.handle_manifest_offer(now_us, n, rng.below(5) as usize).map(|is_wanted| {
                    let positions = [number(&mut rng), number(&mut rng)];
                    if is_wanted && machine.handle_manifest(peer, n, pieces, 0, &positions) {
                        machine.handle_store_open(now_us, n, PieceSet::none(pieces.count()));
                    }
                }),
                4 => machine.handle_piece_start(peer, n, number(&mut rng) % 45).map(drop),
                5 => { machine.handle_timeout(now_us); Ok(()) }
                _ => machine.handle_item(now_us, peer, ControlItem::Node(n, message)),
            };
            if let Err(fault) = answer {
                machine.handle_link_down(now_us, peer, link, Some(&fault.to_string()));
                prop_assert!(matches!(machine.handle_hello(peer, ends), Admission::Refused(_)), "banned");
            }
            while machine.poll_action().is_some() {}
            prop_assert!(machine.complete.len() <= MAX_TRANSFERS);
            prop_assert!(machine.core.transfers.len() <= MAX_TRANSFERS);
            prop_assert!(machine.complaints.len() <= MAX_COMPLAINTS);
            prop_assert!(machine.core.links.iter().all(|(_, link)| link.entries() <= 3 * MAX_TRANSFERS));
            let waiting: usize = machine.core.waiting_forwards.values().map(Vec::len).sum();
            prop_assert!(waiting <= MAX_TRANSFERS * members.count());
        }
    }
}

#[test]
fn a_silent_peer_loses_its_link_and_the_second_time_is_banned() {
    let members = Arc::new(Members::new(vec![0, 0], 0).unwrap());
    let mut machine = Member::new(config(&members, 0, Method::Flat, 1), 0);
    let ends = LinkEnds { incarnation: 7, downs: 0 };
    let link = machine.handle_link_up(0, 1, ends, false).unwrap();
    // Just within the limit, and just beyond it.
    machine.handle_timeout(LINK_TIMEOUT_US);
    assert!(machine.core.links.contains(1));
    let beyond_us = LINK_TIMEOUT_US + CHECK_EVERY_US;
    machine.handle_timeout(beyond_us);
    assert!(!machine.core.links.contains(1) && machine.complaints().is_empty());
    machine.handle_heard(1, link, beyond_us);

    assert!(machine.handle_link_up(beyond_us, 1, LinkEnds { downs: 1, ..ends }, false).is_some());
    machine.handle_timeout(2 * beyond_us + CHECK_EVERY_US);
    assert_eq!(machine.complaints(), [(1, Fault::Silent.to_string())]);
    assert!(matches!(machine.handle_hello(1, ends), Admission::Refused(_)));
}

#[test]
fn a_member_without_a_coordinator_ends_after_a_minute_of_silence() {
    let members = Arc::new(Members::new(vec![0, 0], 0).unwrap());
    let machine = Member::new(config(&members, 1, Method::Flat, 1), 5);
    assert!(!machine.may_end_alone(5 + ALONE_TIMEOUT_US - 1));
    assert!(machine.may_end_alone(5 + ALONE_TIMEOUT_US));
}

#[test]
fn heartbeats_and_requests_for_manifests_come_in_time() {
    let members = Arc::new(Members::new(vec![0, 0, 0], 0).unwrap());
    let mut machine = Member::new(config(&members, 1, Method::Flat, 1), 0);
    machine.handle_link_up(0, 2, LinkEnds { incarnation: 7, downs: 0 }, false);
    let mut alive = 0;
    let mut asks = 0;
    while machine.poll_timeout().is_some_and(|at| at < 4 * ALIVE_EVERY_US) {
        let now_us = machine.poll_timeout().unwrap();
        machine.handle_heard(2, 1, now_us);
        machine.handle_timeout(now_us);
        while let Some(action) = machine.poll_action() {
            alive += u32::from(action == Action::Send { to: 2, item: ControlItem::Alive });
            asks += u32::from(action == Action::Send { to: 2, item: ControlItem::Ask });
        }
    }
    // Heartbeats fall on the checks, which come every 1.5 s: at 6, 12 and 18 s.
    assert_eq!((alive, asks), (3, 13));
}
