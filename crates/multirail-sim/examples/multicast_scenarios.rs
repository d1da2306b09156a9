//! The five scenarios of the paper (MOB, section 4.1), and hosts whose own access is the limit (section 4.2),
//! simulated: `cargo run --release -p multirail-sim --example multicast_scenarios`.
//!
//! Each line has the hosts, the round trip, the scenario, the method, the share of the bound, and
//! the copies of the data that crossed between clusters. The data has 120 MB. With 64 hosts, links
//! have a quarter of their rates, as in `experiments/mob/scenarios`. The scenario `access` is as in
//! `experiments/mob/access`: hosts send and receive 0.25 MB/s to and from other clusters, and the data has 6 MB for each
//! host of a cluster.

use multirail_proto::multicast::plan::bound::bound_bytes_s;
use multirail_proto::multicast::{Method, Pieces};
use multirail_sim::multicast::{Scenario, Wan, run_method};
use std::error::Error;

const TOTAL_BYTES: u64 = 120_000_000;
const SEED: u64 = 1;
const ACCESS_BYTES_S: f64 = 0.25e6;
/// A gigabit.
const LINK_BYTES_S: f64 = 125e6;

fn main() -> Result<(), Box<dyn Error>> {
    let pieces = Pieces::of(TOTAL_BYTES);
    for (sizes, scale) in [([4; 4], 1.0), ([16; 4], 0.25), ([4, 12, 16, 32], 0.25)] {
        for round_trip_ms in [20, 100] {
            for name in ["fast", "slow", "fast-slow", "slow-fast", "mayhem"] {
                let wan = if name.starts_with("slow") { Wan::Slow } else { Wan::Fast };
                let scenario = Scenario::four_clusters(sizes, wan, scale, pieces)?.round_trip_us(round_trip_ms * 1000);
                let fast_us = (TOTAL_BYTES as f64 / (15.0 * scale)) as u64;
                let scenario = match name {
                    "fast-slow" => scenario.then(fast_us / 2, Wan::Slow, scale),
                    "slow-fast" => scenario.then(fast_us / 2, Wan::Fast, scale),
                    "mayhem" => scenario.mayhem(SEED, fast_us / 8, 20 * fast_us),
                    _ => scenario,
                };
                let bound_us = scenario.bound_us().ok_or("a scenario without a bound")?;
                print(&scenario, &format!("{sizes:?} {round_trip_ms} ms {name}"), bound_us as f64)?;
            }
        }
    }
    for hosts in [1, 2, 4, 8, 16] {
        let pieces = Pieces::of(6_000_000 * u64::from(hosts));
        let mut scenario = Scenario::uniform(&[hosts; 4], LINK_BYTES_S, pieces)?;
        for host in &mut scenario.hosts {
            (host.wan_out_bytes_s, host.wan_in_bytes_s) = (ACCESS_BYTES_S, ACCESS_BYTES_S);
        }
        let bound_bytes_s = bound_bytes_s(&scenario.members, &scenario.bandwidths());
        let bound_us = pieces.total_bytes as f64 / bound_bytes_s * 1e6 + scenario.wan_delay_us as f64;
        print(&scenario, &format!("[{hosts}; 4] 20 ms access"), bound_us)?;
    }
    Ok(())
}

/// Runs the methods and prints a line for each.
fn print(scenario: &Scenario, name: &str, bound_us: f64) -> Result<(), Box<dyn Error>> {
    for method in [Method::Adaptive, Method::Mob] {
        let outcome = run_method(scenario, method, SEED)?;
        let share = bound_us / outcome.makespan_us().ok_or("a method that does not end")? as f64;
        let copies = outcome.wan_bytes() as f64 / scenario.pieces.total_bytes as f64;
        println!("{name} {method} {share:.2} {copies:.2}");
    }
    Ok(())
}
