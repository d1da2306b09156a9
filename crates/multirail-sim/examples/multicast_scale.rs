//! The methods with 10 to 10,000 hosts in 2 to 100 clusters, simulated.
//!
//! `multicast_scale [METHOD...] [HOSTSxCLUSTERS...]` (default: all; without `--release` it takes an
//! hour) prints a line of JSON for each run: the run, the time of the last host, the bound, the
//! bytes between clusters, control messages, and the cost of the simulation.
//!
//! Hosts have gigabit ports. A full mesh of links of 2 to 10 MB/s with a round trip of 20 ms joins
//! the clusters. With many clusters the root's port is the limit.

use multirail_proto::multicast::{Method, Pieces};
use multirail_proto::rng::Rng;
use multirail_sim::multicast::{End, GIGABIT_BYTES_S, Outcome, Scenario, run_method};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

/// 256 MiB in 512 pieces.
const PIECES: Pieces = Pieces { total_bytes: 256 << 20, piece_bytes: 512 << 10 };
const CHUNK_BYTES: u32 = 256 << 10;
const SEED: u64 = 4;
/// A flat tree of 10,000 hosts takes six hours of simulated time.
const MAX_US: u64 = 12 * 3_600_000_000;

const SIZES: [(u32, u32); 10] =
    [(10, 2), (30, 3), (100, 4), (300, 4), (1000, 4), (1000, 10), (3000, 10), (3000, 30), (10_000, 10), (10_000, 100)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("multicast_scale: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (mut methods, mut sizes) = (Vec::new(), Vec::new());
    for argument in arguments {
        match argument.split_once('x').map(|(hosts, clusters)| (hosts.parse(), clusters.parse())) {
            Some((Ok(hosts), Ok(clusters))) if clusters > 0 && clusters <= hosts => sizes.push((hosts, clusters)),
            _ => methods.push(argument.parse::<Method>()?),
        }
    }
    if methods.is_empty() {
        methods.extend(Method::ALL);
    }
    if sizes.is_empty() {
        sizes.extend(SIZES);
    }
    for (hosts, clusters) in sizes {
        let scenario = scenario(hosts, clusters)?;
        // The ports of the root and of a receiver are a bound, too.
        let port_us = (PIECES.total_bytes as f64 / GIGABIT_BYTES_S * 1e6) as u64;
        let bound_us = scenario.bound_us().map(|links_us| links_us.max(port_us));
        for method in &methods {
            let began = Instant::now();
            match run_method(&scenario, *method, SEED) {
                Ok(outcome) => print(&scenario, *method, bound_us, &outcome, began.elapsed().as_secs_f64()),
                Err(problem) => eprintln!("{hosts} hosts in {clusters} clusters, {method}: {problem}"),
            }
        }
    }
    Ok(())
}

fn scenario(hosts: u32, clusters: u32) -> Result<Scenario, Box<dyn Error>> {
    let sizes: Vec<u32> = (0..clusters).map(|c| hosts / clusters + u32::from(c < hosts % clusters)).collect();
    let mut rng = Rng::new(SEED);
    let mut wan_bytes_s = vec![vec![0.0; clusters as usize]; clusters as usize];
    let pairs = (0..clusters as usize).flat_map(|from| (0..from).map(move |to| (from, to)));
    for (from, to) in pairs {
        let rate = 2e6 + 8e6 * rng.unit();
        (wan_bytes_s[from][to], wan_bytes_s[to][from]) = (rate, rate);
    }
    let mut scenario = Scenario::new(&sizes, wan_bytes_s, PIECES)?;
    scenario.chunk_bytes = CHUNK_BYTES;
    scenario.max_us = MAX_US;
    Ok(scenario)
}

fn print(scenario: &Scenario, method: Method, bound_us: Option<u64>, outcome: &Outcome, run_s: f64) {
    let (complete, _) = outcome.counts(&scenario.members);
    let seconds = |us: Option<u64>| us.map_or("null".to_owned(), |us| format!("{:.6}", us as f64 / 1e6));
    let end = match outcome.end {
        End::Done => "done",
        End::Stalled => "stalled",
        End::TimeLimit => "time limit",
        End::StepLimit => "step limit",
    };
    println!(
        "{{\"method\": \"{method}\", \"hosts\": {}, \"clusters\": {}, \"bytes\": {}, \"pieces\": {}, \"seed\": {SEED}, \
         \"end\": \"{end}\", \"complete\": {complete}, \"seconds\": {}, \"bound_s\": {}, \"wan_copies\": {:.4}, \
         \"control_messages\": {}, \"control_bytes\": {}, \"piece_bytes\": {}, \"duplicate_pieces\": {}, \
         \"repeated_entries\": {}, \"steps\": {}, \"run_s\": {run_s:.2}}}",
        scenario.members.count(),
        scenario.members.clusters().len(),
        scenario.pieces.total_bytes,
        scenario.pieces.count(),
        seconds(outcome.makespan_us()),
        seconds(bound_us),
        outcome.wan_bytes() as f64 / scenario.pieces.total_bytes as f64,
        outcome.control_messages,
        outcome.control_bytes,
        outcome.arrived_bytes,
        outcome.duplicate_pieces,
        outcome.repeated_entries,
        outcome.steps,
    );
}
