//! The synchronization among hosts that die and come back, in the simulator.

use multirail_proto::multicast::members::{MemberId, Members};
use multirail_proto::multicast::message::Message;
use multirail_proto::multicast::method::sync::Sync;
use multirail_proto::multicast::node::{Input, Node, Output};
use multirail_proto::multicast::pieces::{PieceSet, Pieces};
use multirail_proto::rng::Rng;
use multirail_sim::multicast::{At, Change, End, Outcome, Scenario, Until, run};
use multirail_testing::proptest_config;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Has everything at a given time, from wherever.
#[derive(Debug)]
struct Waiter {
    sync: Sync,
    done_us: u64,
    now_us: u64,
    held: PieceSet,
    /// Whom it has sessions with for other reasons.
    friends: Vec<MemberId>,
}

impl Node for Waiter {
    fn handle(&mut self, now_us: u64, input: Input) {
        self.now_us = now_us;
        match input {
            Input::Up(peer) => self.sync.up(peer),
            Input::Down(peer) => self.sync.down(peer),
            Input::Message(from, message) => self.sync.message(from, &message),
            _ => {}
        }
        if now_us >= self.done_us {
            self.sync.done();
        }
    }
    fn poll(&mut self) -> Option<Output> {
        self.friends.pop().map(Output::Connect).or_else(|| self.sync.poll())
    }
    fn wake_at_us(&self) -> Option<u64> {
        (self.now_us < self.done_us).then_some(self.done_us)
    }
    fn held(&self) -> &PieceSet {
        &self.held
    }
}

const LAST_DONE_US: u64 = 1_000_000;

fn scenario(sizes: &[u32]) -> Scenario {
    let mut scenario = Scenario::uniform(sizes, 1e6, Pieces { total_bytes: 1, piece_bytes: 1 << 14 }).unwrap();
    scenario.until = Until::Finished;
    scenario
}

/// The outcome, and when each host had everything (the last time it was made).
fn synchronize(scenario: &Scenario, seed: u64, friends: usize) -> (Outcome, Vec<u64>) {
    let mut rng = Rng::new(seed);
    let mut done_us = vec![0; scenario.members.count()];
    let outcome = run(scenario, |me, held| {
        done_us[me as usize] = 1 + rng.below(LAST_DONE_US);
        let sync = Sync::new(&scenario.members, me);
        let count = scenario.members.count() as u64;
        let friends = (0..friends).map(|_| rng.below(count) as MemberId).filter(|friend| *friend != me).collect();
        Box::new(Waiter { sync, done_us: done_us[me as usize], now_us: 0, held, friends })
    });
    (outcome, done_us)
}

#[test]
fn all_hosts_finish_after_the_last_with_two_messages_for_each_edge() {
    for count in [1u32, 2, 3, 7, 64, 100] {
        let scenario = scenario(&[count]);
        let (outcome, done_us) = synchronize(&scenario, u64::from(count), 0);
        assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0), "{count} hosts");
        let last = done_us.iter().max().unwrap();
        assert!(outcome.finished_us.iter().all(|at| at.is_some_and(|at| at >= *last)), "{count} hosts");
        assert_eq!(outcome.control_messages, 2 * u64::from(count - 1));
    }
}

#[test]
fn no_host_finishes_before_all_are_complete() {
    let members = Members::new(vec![0; 3], 0).unwrap();
    let mut sync = Sync::new(&members, 0);
    [1, 2].into_iter().for_each(|peer| sync.up(peer));
    sync.message(1, &Message::BranchDone);
    sync.message(2, &Message::BranchDone);
    sync.message(2, &Message::AllDone);
    assert!(!sync.is_finished());
    sync.done();
    assert!(sync.is_finished());
    let told: Vec<Output> = std::iter::from_fn(|| sync.poll()).collect();
    assert_eq!(told, [Output::Send(1, Message::AllDone), Output::Finished]);
}

proptest! {
    #![proptest_config(proptest_config(200))]

    #[test]
    fn live_hosts_are_waited_for_and_dead_ones_are_not(
        sizes in prop::collection::vec(1u32..12, 1..5),
        seed in any::<u64>(),
        friends in 0usize..6,
        faults in prop::collection::vec((any::<u32>(), 0u64..LAST_DONE_US, prop::option::of(1u64..LAST_DONE_US)), 0..12),
    ) {
        let mut scenario = scenario(&sizes);
        let count = scenario.members.count() as u32;
        let mut faulty = BTreeSet::new();
        for (host, at_us, back) in faults {
            // The root among them; one at least lives on.
            let host = host % count;
            if faulty.len() as u32 + 1 < count && faulty.insert(host) {
                scenario.schedule.push(At { at_us, change: Change::Die(host) });
                let back = back.map(|after| At { at_us: at_us + after, change: Change::Return(host) });
                scenario.schedule.extend(back);
            }
        }
        let (outcome, done_us) = synchronize(&scenario, seed, friends);
        prop_assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
        let steady = || (0..count).filter(|host| !faulty.contains(host)).map(|host| host as usize);
        let last = steady().map(|host| done_us[host]).max().unwrap();
        for host in steady() {
            let finished_us = outcome.finished_us[host];
            prop_assert!(finished_us.is_some_and(|at| at >= last), "host {host}: {finished_us:?}, the last was done at {last}");
        }
        let living = outcome.finished_us.iter().zip(&outcome.alive).filter(|(_, alive)| **alive);
        prop_assert!(living.into_iter().all(|(at, _)| at.is_some()));
    }
}
