//! Runs a scenario with a method by name.

use super::outcome::Outcome;
use super::scenario::Scenario;
use super::simulation::run;
use multirail_proto::multicast::Method;
use multirail_proto::multicast::Nodes;
use multirail_proto::multicast::bandwidths::Bandwidths;
use multirail_proto::multicast::plan::PlanError;

/// Simulates `scenario` with `method`. `seed` is for the methods with random choices. Methods that
/// plan get the rates at the beginning.
pub fn run_method(scenario: &Scenario, method: Method, seed: u64) -> Result<Outcome, PlanError> {
    let bandwidths = scenario.bandwidths();
    let believed = scenario.believed.as_ref().unwrap_or(&scenario.members);
    let nodes = Nodes::new(method, believed.clone(), scenario.pieces, seed, Some(&bandwidths))?;
    Ok(run(scenario, |me, held| nodes.node(me, held)))
}

impl Scenario {
    /// The bandwidths for planners: the rates at the beginning, and the rate of each host to and
    /// from outside.
    pub fn bandwidths(&self) -> Bandwidths {
        let access =
            |host: &super::scenario::HostLinks| host.lan_bytes_s.min(host.wan_out_bytes_s).min(host.wan_in_bytes_s);
        let access_bytes_s = Some(self.hosts.iter().map(access).collect());
        Bandwidths { link_bytes_s: self.wan_bytes_s.clone(), access_bytes_s }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{End, Wan};
    use super::*;
    use multirail_proto::multicast::pieces::Pieces;

    #[test]
    fn every_method_completes_all_hosts_and_none_beats_the_bound() {
        let pieces = Pieces { total_bytes: 16 << 20, piece_bytes: 64 << 10 };
        for (sizes, seed) in [([4; 4], 1), ([1, 2, 3, 5], 2)] {
            let scenario = Scenario::four_clusters(sizes, Wan::Fast, 1.0, pieces).unwrap();
            let bound_us = scenario.bound_us().unwrap();
            for &method in Method::ALL {
                let outcome = run_method(&scenario, method, seed).unwrap();
                assert_eq!((outcome.end, outcome.mistakes), (End::Done, 0), "{method}, {sizes:?}");
                let makespan_us = outcome.makespan_us().unwrap();
                assert!(makespan_us + 1 >= bound_us, "{method}, {sizes:?}: {makespan_us} us beats {bound_us} us");
                let sum = outcome.arrived_bytes + outcome.lost_bytes + outcome.under_way_bytes;
                assert_eq!(outcome.sent_bytes, sum, "{method}");
            }
        }
    }
}
