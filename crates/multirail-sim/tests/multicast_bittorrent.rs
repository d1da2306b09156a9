//! Swarms of BitTorrent in the simulator.

use multirail_proto::multicast::method::bittorrent::Bittorrent;
use multirail_proto::multicast::pieces::Pieces;
use multirail_sim::multicast::{At, Change, End, Outcome, Scenario, Until, Wan, run};
use multirail_testing::proptest_config;
use proptest::prelude::*;

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
    #![proptest_config(proptest_config(16))]

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
    fn swarms_complete_when_hosts_die_and_return(
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
