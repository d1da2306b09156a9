//! How many hosts of a cluster fetch from other clusters: as many as the links between clusters carry.

use super::*;
use multirail_proto::multicast::Method;
use multirail_proto::multicast::members::MemberId;
use multirail_proto::multicast::pieces::Pieces;
use proptest::prelude::*;

const PIECES: Pieces = Pieces { total_bytes: 32 << 20, piece_bytes: 16 << 10 };
const ACCESS_BYTES_S: f64 = 0.5e6;

/// Four clusters, whose hosts have slow access and whose links have none.
fn slow_access(hosts: u32) -> Scenario {
    let mut scenario = Scenario::uniform(&[hosts; 4], 125e6, PIECES).unwrap();
    for host in &mut scenario.hosts {
        (host.wan_out_bytes_s, host.wan_in_bytes_s) = (ACCESS_BYTES_S, ACCESS_BYTES_S);
    }
    scenario
}

fn run_adaptive(scenario: &Scenario, seed: u64) -> Outcome {
    let outcome = run_method(scenario, Method::Adaptive, seed).unwrap();
    assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
    outcome
}

#[test]
fn where_access_is_the_limit_more_hosts_fetch() {
    for hosts in [8, 16] {
        let s = run_adaptive(&slow_access(hosts), 1).makespan_us().unwrap() as f64 / 1e6;
        // The hosts that fetch from the beginning.
        let of_four_s = PIECES.total_bytes as f64 / (4.0 * ACCESS_BYTES_S);
        println!("{hosts} hosts: {s:.1} s; four hosts cannot receive all in less than {of_four_s:.1} s");
        assert!(s < 0.8 * of_four_s, "{hosts} hosts: {s} s");
    }
}

#[test]
fn where_links_are_the_limit_few_hosts_fetch() {
    let scenario = Scenario::four_clusters([16; 4], Wan::Fast, 0.25, PIECES).unwrap();
    let outcome = run_adaptive(&scenario, 1);
    // Each of the first four hosts of a cluster fetches, and tries one of the next four. A host knows those whose rank
    // is a power of two away: seven. Others, in other clusters, are known to the hosts of their rank that fetch.
    let others = outcome.peers.iter().enumerate().filter(|(host, _)| host / 16 > 0 && host % 16 >= 8);
    let fetch = others.filter(|(_, peers)| **peers > 7).count();
    println!("{fetch} of 24 hosts fetch that need not");
    assert!(fetch <= 8, "{fetch} of 24 hosts fetch that need not");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 6 } else { 100 }))]

    /// Hosts that gave parts of their share away, or were given some, may die.
    #[test]
    fn every_host_completes(
        dead in prop::collection::vec((1u32..40, 0u64..12_000), 0..6),
        returned in prop::collection::vec((1u32..40, 0u64..12_000), 0..3),
        seed: u64,
    ) {
        let mut scenario = slow_access(10);
        let at = |host: &MemberId, ms: &u64, change: fn(MemberId) -> Change| At { at_us: ms * 1000, change: change(*host) };
        scenario.schedule.extend(dead.iter().map(|(host, ms)| at(host, ms, Change::Die)));
        scenario.schedule.extend(returned.iter().map(|(host, ms)| at(host, ms, Change::Return)));
        let outcome = run_method(&scenario, Method::Adaptive, seed).unwrap();
        prop_assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
    }
}
