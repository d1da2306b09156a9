//! The simulator against results computed by hand, with the simplest node.

use super::*;
use multirail_proto::multicast::members::MemberId;
use multirail_proto::multicast::message::Message;
use multirail_proto::multicast::node::{Input, Node, Output};
use multirail_proto::multicast::pieces::{PieceSet, Pieces};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Sends all it has to each of its targets, as soon as there is a session.
#[derive(Debug)]
struct Flat {
    targets: Vec<MemberId>,
    held: PieceSet,
    out: VecDeque<Output>,
    /// Forwards every piece it gets to the targets.
    forwards: bool,
    up: Vec<MemberId>,
}

impl Flat {
    fn new(targets: Vec<MemberId>, held: PieceSet) -> Self {
        Self { targets, held, out: VecDeque::new(), forwards: false, up: Vec::new() }
    }
}

impl Node for Flat {
    fn handle(&mut self, _: u64, input: Input) {
        match input {
            Input::Start => self.out.extend(self.targets.iter().map(|t| Output::Connect(*t))),
            Input::Up(peer) if self.targets.contains(&peer) => {
                self.up.push(peer);
                self.out.extend(self.held.iter().map(|piece| Output::SendPiece(peer, piece)));
            }
            Input::Down(peer) => {
                self.up.retain(|p| *p != peer);
                self.out.extend(self.targets.contains(&peer).then_some(Output::Connect(peer)));
            }
            Input::Stored { piece, .. } => {
                if self.held.insert(piece) && self.forwards {
                    self.out.extend(self.up.iter().map(|peer| Output::SendPiece(*peer, piece)));
                }
                if self.held.is_full() {
                    self.out.push_back(Output::Finished);
                }
            }
            _ => {}
        }
    }
    fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }
    fn wake_at_us(&self) -> Option<u64> {
        None
    }
    fn held(&self) -> &PieceSet {
        &self.held
    }
}

/// The root sends to all hosts.
fn flat(scenario: &Scenario) -> Outcome {
    let others = 1..scenario.members.count() as MemberId;
    run(scenario, |me, held| Box::new(Flat::new(if me == 0 { others.clone().collect() } else { vec![] }, held)))
}

/// Hosts that send to their `targets`.
fn fixed(scenario: &Scenario, targets: &[&[MemberId]]) -> Outcome {
    run(scenario, |me, held| Box::new(Flat::new(targets[me as usize].to_vec(), held)))
}

/// Hosts in one line.
fn chain(scenario: &Scenario) -> Outcome {
    let count = scenario.members.count() as MemberId;
    run(scenario, |me, held| {
        let mut node = Flat::new(if me + 1 < count { vec![me + 1] } else { vec![] }, held);
        node.forwards = true;
        Box::new(node)
    })
}

const MIB: u64 = 1 << 20;

fn data(mib: u64) -> Pieces {
    Pieces { total_bytes: mib * MIB, piece_bytes: 256 << 10 }
}

/// A piece costs its header, too.
fn wire_bytes(pieces: Pieces) -> f64 {
    pieces.total_bytes as f64 + f64::from(pieces.count()) * 20.0
}

/// When all had everything, in seconds.
fn seconds(outcome: &Outcome) -> f64 {
    assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0), "{outcome:?}");
    assert_eq!(outcome.sent_bytes, outcome.arrived_bytes + outcome.lost_bytes + outcome.under_way_bytes);
    outcome.makespan_us().unwrap() as f64 / 1e6
}

/// A link may idle for this part of the time: chunks are not a fluid.
const CLOSE: f64 = 0.01;

#[track_caller]
fn assert_close(found: f64, by_hand: f64) {
    // Times are whole microseconds.
    assert!(found >= by_hand - 2e-6, "{found} s is faster than {by_hand} s");
    assert!(found <= by_hand * (1.0 + CLOSE), "{found} s, {by_hand} s by hand");
}

#[test]
fn one_link() {
    let scenario = Scenario::uniform(&[2], 1e6, data(64)).unwrap();
    // The connection takes a round trip; then follow the data and the one-way delay.
    assert_close(seconds(&flat(&scenario)), 100e-6 + wire_bytes(data(64)) / 125e6 + 50e-6);
}

#[test]
fn one_wan_link_is_filled_by_one_flow_whatever_the_delay() {
    for delay_us in [0, 10_000, 500_000] {
        let mut scenario = Scenario::uniform(&[1, 1], 4e6, data(64)).unwrap();
        scenario.wan_delay_us = delay_us;
        let by_hand = 3.0 * delay_us as f64 / 1e6 + wire_bytes(data(64)) / 4e6;
        assert_close(seconds(&flat(&scenario)), by_hand);
    }
}

#[test]
fn two_flows_share_a_port() {
    let scenario = Scenario::uniform(&[3], 1e6, data(64)).unwrap();
    let outcome = flat(&scenario);
    assert_close(seconds(&outcome), 2.0 * wire_bytes(data(64)) / 125e6 + 150e-6);
    let (first, second) = (outcome.complete_us[1].unwrap() as f64, outcome.complete_us[2].unwrap() as f64);
    assert!(first > 0.98 * second, "in fair turns, both end together: {first}, {second}");
}

#[test]
fn two_flows_share_a_wan_link() {
    // 0 sends to 2 and 3 in the other cluster: each gets half of the link.
    let scenario = Scenario::uniform(&[1, 2], 4e6, data(32)).unwrap();
    let outcome = flat(&scenario);
    assert_close(seconds(&outcome), 2.0 * wire_bytes(data(32)) / 4e6 + 0.03);
    let (first, second) = (outcome.complete_us[1].unwrap() as f64, outcome.complete_us[2].unwrap() as f64);
    assert!(first > 0.98 * second, "{first}, {second}");
}

#[test]
fn a_slow_peer_does_not_hold_up_a_fast_one() {
    let mut wan = vec![vec![1e6; 3]; 3];
    wan[0][1] = 20e6;
    let scenario = Scenario::new(&[1, 1, 1], wan, data(32)).unwrap();
    let outcome = flat(&scenario);
    assert_close(outcome.complete_us[1].unwrap() as f64 / 1e6, wire_bytes(data(32)) / 20e6 + 0.03);
    assert_close(seconds(&outcome), wire_bytes(data(32)) / 1e6 + 0.03);
}

#[test]
fn a_wan_link_changes_its_rate() {
    let mut scenario = Scenario::uniform(&[1, 1], 8e6, data(64)).unwrap();
    for (at_us, bytes_s) in [(2_000_000, 1e6), (6_000_000, 4e6)] {
        scenario.schedule.push(At { at_us, change: Change::WanRate { from: 0, to: 1, bytes_s } });
    }
    // From 20 ms on 8 MB/s until 2 s, then 4 MB until 6 s, the rest at 4 MB/s; and 10 ms.
    let rest = wire_bytes(data(64)) - 8e6 * 1.98 - 4e6;
    assert_close(seconds(&flat(&scenario)), 6.01 + rest / 4e6);
}

#[test]
fn hosts_have_limits_towards_other_clusters() {
    let mut scenario = Scenario::uniform(&[2, 2], 100e6, data(16)).unwrap();
    scenario.hosts[0].wan_out_bytes_s = 6e6;
    // To 1 in its own cluster it is not limited; 2 and 3 share the limit.
    let outcome = flat(&scenario);
    assert_close(seconds(&outcome), 2.0 * wire_bytes(data(16)) / 6e6 + 0.03);
    let local = outcome.complete_us[1].unwrap() as f64 / 1e6;
    assert!(local < 3.0 * wire_bytes(data(16)) / 125e6, "{local}");

    scenario.hosts[0].wan_out_bytes_s = f64::INFINITY;
    scenario.hosts[3].wan_in_bytes_s = 2e6;
    assert_close(seconds(&flat(&scenario)), wire_bytes(data(16)) / 2e6 + 0.03);
}

#[test]
fn two_senders_share_a_receiver() {
    let scenario = Scenario::uniform(&[3], 1e6, data(32)).unwrap();
    // 0 sends all to 1 and 2, and 2 forwards to 1, which receives everything twice.
    let outcome = run(&scenario, |me, held| {
        let mut node = Flat::new([vec![1, 2], vec![], vec![1]][me as usize].clone(), held);
        node.forwards = true;
        Box::new(node)
    });
    assert!(outcome.duplicate_pieces > 0);
    assert_close(seconds(&outcome), 2.0 * wire_bytes(data(32)) / 125e6 + 150e-6);
}

#[test]
fn a_chain_is_a_pipeline() {
    let scenario = Scenario::uniform(&[10], 1e6, data(64)).unwrap();
    let piece_s = f64::from(data(64).piece_bytes) / 125e6;
    let by_hand = wire_bytes(data(64)) / 125e6 + 8.0 * piece_s;
    assert_close(seconds(&chain(&scenario)), by_hand);
}

#[test]
fn traffic_between_clusters_is_counted() {
    let scenario = Scenario::uniform(&[1, 3], 4e6, data(4)).unwrap();
    let outcome = flat(&scenario);
    let once = wire_bytes(data(4)) as u64;
    assert_eq!(outcome.traffic[0][1].piece_bytes, 3 * once);
    assert_eq!(outcome.traffic[1][0].piece_bytes, 0);
    assert_eq!(outcome.wan_bytes(), 3 * once);
    assert_eq!(outcome.repeated_entries, 2 * u64::from(data(4).count()));
    assert_eq!((outcome.control_messages, outcome.duplicate_pieces), (0, 0));
}

/// Two hosts exchange this many messages, each after the answer to the last.
#[derive(Debug)]
struct Chatter(PieceSet, VecDeque<Output>, u32);

impl Node for Chatter {
    fn handle(&mut self, _: u64, input: Input) {
        match input {
            Input::Start if self.0.is_full() => self.1.push_back(Output::Connect(1)),
            Input::Up(1) => self.1.push_back(Output::Send(1, Message::Interested)),
            Input::Message(peer, message) if self.2 > 0 => {
                self.2 -= 1;
                self.1.push_back(Output::Send(peer, message));
            }
            Input::Message(peer, _) if self.0.is_full() => self.1.push_back(Output::SendPiece(peer, 0)),
            _ => {}
        }
    }
    fn poll(&mut self) -> Option<Output> {
        self.1.pop_front()
    }
    fn wake_at_us(&self) -> Option<u64> {
        None
    }
    fn held(&self) -> &PieceSet {
        &self.0
    }
}

#[test]
fn control_messages_take_their_time_and_are_counted() {
    let pieces = Pieces { total_bytes: 1000, piece_bytes: 16 << 10 };
    let scenario = Scenario::uniform(&[1, 1], 1e6, pieces).unwrap();
    let outcome = run(&scenario, |me, held| Box::new(Chatter(held, VecDeque::new(), 9 + me)));
    // The round trip of connecting, then messages of 21 bytes to and fro: the first, and the
    // answers; the last makes 0 send.
    assert_eq!((outcome.control_messages, outcome.control_bytes), (20, 20 * 21));
    assert_close(seconds(&outcome), 0.02 + 20.0 * (0.01 + 21e-6) + 1020e-6 + 0.01);
}

#[test]
fn a_dead_host_is_not_waited_for() {
    let mut scenario = Scenario::uniform(&[3], 1e6, data(64)).unwrap();
    scenario.schedule.push(At { at_us: 100_000, change: Change::Die(2) });
    let outcome = flat(&scenario);
    let until = seconds(&outcome);
    assert_eq!(outcome.complete_us[2], None);
    assert!(!outcome.alive[2] && outcome.lost_bytes > 0);
    assert_eq!(outcome.counts(&scenario.members), (2, 2));
    // 100 ms shared, but for a chunk, the rest alone.
    assert_close(until, 0.1 + (wire_bytes(data(64)) - 0.05 * 125e6 - 65536.0) / 125e6);
}

#[test]
fn a_returning_host_keeps_its_pieces() {
    let mut scenario = Scenario::uniform(&[2], 1e6, data(64)).unwrap();
    scenario.schedule.push(At { at_us: 200_000, change: Change::Die(1) });
    scenario.schedule.push(At { at_us: 300_000, change: Change::Return(1) });
    let mut made = Vec::new();
    let outcome = run(&scenario, |me, held| {
        made.push((me, held.len()));
        Box::new(Flat::new(if me == 0 { vec![1] } else { vec![] }, held))
    });
    assert_eq!(made.len(), 3);
    assert!(made[2].0 == 1 && made[2].1 > 0 && outcome.complete_us[1].unwrap() > 300_000, "{made:?}");
    // 0 does not know which pieces 1 holds, and sends them again once it learns of the return.
    assert_eq!(outcome.duplicate_pieces, u64::from(made[2].1));
    assert_close(seconds(&outcome), 0.4 + wire_bytes(data(64)) / 125e6);
}

#[test]
fn limits_are_enforced_and_reported() {
    let mut scenario = Scenario::uniform(&[2], 1e6, data(64)).unwrap();
    scenario.max_us = 1000;
    assert_eq!(flat(&scenario).end, End::TimeLimit);
    scenario.max_us = u64::MAX;
    scenario.max_steps = 100;
    let outcome = flat(&scenario);
    assert!(outcome.end == End::StepLimit && outcome.steps == 100 && outcome.makespan_us().is_none());
    let without_targets = fixed(&Scenario::uniform(&[2], 1e6, data(1)).unwrap(), &[&[], &[]]);
    assert_eq!(without_targets.end, End::Stalled);
}

#[test]
fn mistakes_are_told() {
    #[derive(Debug)]
    struct Wrong(PieceSet, u32);
    impl Node for Wrong {
        fn handle(&mut self, _: u64, _: Input) {}
        fn poll(&mut self) -> Option<Output> {
            self.1 += 1;
            [Output::SendPiece(1, 0), Output::Send(1, Message::Choke), Output::Connect(0)]
                .get(self.1 as usize - 1)
                .cloned()
        }
        fn wake_at_us(&self) -> Option<u64> {
            None
        }
        fn held(&self) -> &PieceSet {
            &self.0
        }
    }
    let scenario = Scenario::uniform(&[2], 1e6, data(1)).unwrap();
    let outcome = run(&scenario, |me, held| Box::new(Wrong(held, 100 * me)));
    assert_eq!((outcome.end, outcome.mistakes), (End::Stalled, 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bytes_are_neither_lost_nor_created(
        sizes in prop::collection::vec(1u32..5, 1..4),
        seed in any::<u64>(),
        share in 0.0..0.5f64,
        chunk_kib in 1u32..300,
    ) {
        let mut scenario = Scenario::uniform(&sizes, 5e6, data(4)).unwrap().mayhem(seed, 200_000, 3_000_000);
        scenario = scenario.deaths(seed, share, 2_000_000);
        scenario.chunk_bytes = chunk_kib << 10;
        let outcome = flat(&scenario);
        prop_assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
        prop_assert_eq!(outcome.sent_bytes, outcome.arrived_bytes + outcome.lost_bytes + outcome.under_way_bytes);
        prop_assert!(outcome.complete_us.iter().zip(&outcome.alive).all(|(at, alive)| !alive || at.is_some()));
        prop_assert_eq!(&outcome, &flat(&scenario), "the same again");
    }
}
