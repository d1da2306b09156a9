//! Hosts that begin with wrong clusters and learn the true ones while pieces move.

use super::*;
use multirail_proto::multicast::members::{MemberId, Members};
use multirail_proto::multicast::pieces::Pieces;
use multirail_proto::multicast::{Method, Nodes};
use proptest::prelude::*;
use std::sync::Arc;

const PIECES: Pieces = Pieces { total_bytes: 24 << 20, piece_bytes: 64 << 10 };

/// When hosts learn the true clusters.
const LEARNT_S: f64 = 0.3;

/// The hosts of a network in the clusters `of`, numbered without gaps.
fn members(of: &[u32]) -> Arc<Members> {
    let mut seen: Vec<u32> = Vec::new();
    let number = |cluster: &u32| {
        seen.iter().position(|s| s == cluster).unwrap_or_else(|| {
            seen.push(*cluster);
            seen.len() - 1
        }) as u32
    };
    Arc::new(Members::new(of.iter().map(number).collect(), 0).unwrap())
}

/// Four clusters of four hosts.
fn scenario() -> Scenario {
    Scenario::four_clusters([4; 4], Wan::Fast, 1.0, PIECES).unwrap()
}

fn all_learn(scenario: &mut Scenario, at_us: impl Fn(MemberId) -> u64) {
    let hosts = 0..scenario.members.count() as MemberId;
    scenario.schedule.extend(hosts.map(|host| At { at_us: at_us(host), change: Change::Regroup(host) }));
}

fn seconds(scenario: &Scenario, seed: u64) -> (f64, f64) {
    let outcome = run_method(scenario, Method::Adaptive, seed).unwrap();
    assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
    (outcome.makespan_us().unwrap() as f64 / 1e6, outcome.wan_bytes() as f64 / PIECES.total_bytes as f64)
}

/// A wrong guess costs what crosses before it is corrected, and little more.
#[test]
fn wrong_clusters_are_corrected_at_the_cost_of_their_time() {
    let (told_s, told_copies) = seconds(&scenario(), 1);
    for (name, wrong) in [
        ("one cluster", vec![0; 16]),
        ("a cluster of hosts of four sites", (0..16).map(|host| host % 4).collect()),
        ("each alone", (0..16).collect()),
    ] {
        let mut at_start = scenario();
        at_start.believed = Some(members(&wrong));
        let mut never = at_start.clone();
        all_learn(&mut at_start, |host| (LEARNT_S * 1e6) as u64 + 1000 * u64::from(host));
        never.schedule.clear();
        let (s, copies) = seconds(&at_start, 1);
        let (never_s, never_copies) = seconds(&never, 1);
        println!(
            "{name}: {s:.2} s, {copies:.2} copies; told {told_s:.2}, {told_copies:.2}; never {never_s:.2}, {never_copies:.2}"
        );
        // All links in both directions carry 72 MB/s, of which none may be of use until the hosts know.
        let lost = 72e6 * LEARNT_S / PIECES.total_bytes as f64;
        assert!(s < told_s + 2.0 * LEARNT_S + 0.3 && copies < told_copies + lost, "{name}: {s} s, {copies} copies");
        assert!(s < never_s, "{name}: corrected {s} s, never {never_s} s");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 12 } else { 200 }))]

    /// Whatever hosts believe at first, and whenever they learn better, all complete that do not die.
    #[test]
    fn every_host_completes(
        wrong in prop::collection::vec(0u32..6, 16),
        learns_ms in prop::collection::vec(0u64..4000, 16),
        dead in prop::collection::vec((1u32..16, 0u64..4000), 0..3),
        seed: u64,
    ) {
        let mut scenario = scenario();
        scenario.believed = Some(members(&wrong));
        all_learn(&mut scenario, |host| learns_ms[host as usize] * 1000);
        scenario.schedule.extend(dead.iter().map(|(host, ms)| At { at_us: ms * 1000, change: Change::Die(*host) }));
        let believed = scenario.believed.clone().unwrap();
        let nodes = Nodes::new(Method::Adaptive, believed, PIECES, seed, None).unwrap();
        let outcome = run(&scenario, |me, held| nodes.node(me, held));
        prop_assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
    }
}
