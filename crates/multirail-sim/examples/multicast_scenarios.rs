//! The five scenarios of the paper (MOB, section 4.1), simulated: `cargo run --release -p
//! multirail-sim --example multicast_scenarios`.
//!
//! Each line has the hosts, the round trip, the scenario, the method, the share of the bound, and
//! the copies of the data that crossed between clusters. The data has 120 MB. With 64 hosts, links
//! have a quarter of their rates, as in `experiments/mob/scenarios`.

use multirail_proto::multicast::{Method, Pieces};
use multirail_sim::multicast::{Scenario, Wan, run_method};
use std::error::Error;

const TOTAL_BYTES: u64 = 120_000_000;
const SEED: u64 = 1;

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
                for method in [Method::Adaptive, Method::Mob] {
                    let outcome = run_method(&scenario, method, SEED)?;
                    let took_us = outcome.makespan_us().ok_or("a method that does not end")?;
                    let share = bound_us as f64 / took_us as f64;
                    let copies = outcome.wan_bytes() as f64 / TOTAL_BYTES as f64;
                    println!("{sizes:?} {round_trip_ms} ms {name} {method} {share:.2} {copies:.2}");
                }
            }
        }
    }
    Ok(())
}
