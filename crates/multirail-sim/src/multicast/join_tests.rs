//! Hosts that join while pieces move, and leave again.

use super::*;
use multirail_proto::multicast::members::{MemberId, Members};
use multirail_proto::multicast::pieces::Pieces;
use multirail_proto::multicast::{Method, Nodes};
use proptest::prelude::*;
use std::sync::Arc;

const PIECES: Pieces = Pieces { total_bytes: 24 << 20, piece_bytes: 64 << 10 };

/// The hosts that are there from the start; the root is the first.
const FIRST: usize = 8;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 12 } else { 200 }))]

    /// Whenever hosts join, whichever cluster they are in, and whenever others learn of them: all hosts complete
    /// that do not leave before.
    #[test]
    fn every_host_completes(
        clusters in prop::collection::vec(0u32..4, 1..9),
        joins_ms in prop::collection::vec(200u64..5000, 8),
        learns_ms in prop::collection::vec(0u64..200, FIRST),
        leaves in prop::collection::vec((1u32..16, 0u64..6000), 0..3),
        seed: u64,
    ) {
        // Two hosts of each cluster are there.
        let first: Vec<u32> = (0..FIRST as u32).map(|host| host / 2).collect();
        let all = [&first[..], &clusters].concat();
        let sizes = [0, 1, 2, 3].map(|cluster| all.iter().filter(|of| **of == cluster).count() as u32);
        let mut scenario = Scenario::four_clusters(sizes, Wan::Fast, 1.0, PIECES).unwrap();
        scenario.members = Arc::new(Members::new(all, 0).unwrap());
        let believed = Arc::new(Members::new(first, 0).unwrap());
        for (at, joins_ms) in (0..clusters.len()).zip(&joins_ms) {
            let host = (FIRST + at) as MemberId;
            scenario.schedule.push(At { at_us: 0, change: Change::Die(host) });
            scenario.schedule.push(At { at_us: joins_ms * 1000, change: Change::Return(host) });
        }
        // The first join is told to the others just before it. Those that join know all.
        let first_ms = joins_ms[..clusters.len()].iter().min().unwrap();
        let learn = (0..).zip(&learns_ms).map(|(host, before_ms)| {
            At { at_us: (first_ms - before_ms) * 1000, change: Change::Regroup(host) }
        });
        scenario.schedule.extend(learn);
        let count = scenario.members.count() as u32;
        let leaves = leaves.iter().filter(|(host, _)| *host < count);
        scenario.schedule.extend(leaves.map(|(host, ms)| At { at_us: ms * 1000, change: Change::Die(*host) }));
        scenario.schedule.sort_by_key(|at| at.at_us);
        let nodes = |members: &Arc<Members>| Nodes::new(Method::Adaptive, members.clone(), PIECES, seed, None).unwrap();
        let (known, grown) = (nodes(&believed), nodes(&scenario.members));
        let outcome = run(&scenario, |me, held| match (me as usize) < FIRST {
            true => known.node(me, held),
            false => grown.node(me, held),
        });
        prop_assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0));
    }
}
