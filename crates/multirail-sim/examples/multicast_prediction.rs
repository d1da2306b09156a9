//! Predicts how long a broadcast takes, for comparison with a real one.
//!
//! `multicast_prediction BROADCAST.json` prints a line of JSON for each seed: the seconds until the last host is
//! complete, and the bytes that cross between clusters, in copies of the data. The argument has the fields of
//! [`Broadcast`]. Pieces are as `bcast` cuts them.

use multirail_proto::multicast::{Method, Pieces};
use multirail_sim::multicast::{Scenario, run_method};
use serde::Deserialize;
use std::error::Error;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Broadcast {
    /// The hosts of each cluster. The root is the first host of the first one.
    clusters: Vec<u32>,
    /// The rate of payload from each cluster to each other.
    link_bytes_s: Vec<Vec<f64>>,
    /// The one-way delay between clusters.
    delay_us: u64,
    total_bytes: u64,
    method: String,
    seeds: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: multicast_prediction BROADCAST.json")?;
    let Broadcast { clusters, link_bytes_s, delay_us, total_bytes, method, seeds } =
        serde_json::from_str(&std::fs::read_to_string(path)?)?;
    if link_bytes_s.len() != clusters.len() || link_bytes_s.iter().any(|row| row.len() != clusters.len()) {
        return Err("link_bytes_s needs a row and a column for each cluster".into());
    }
    let method: Method = method.parse()?;
    let pieces = Pieces::of(total_bytes);
    let mut scenario = Scenario::new(&clusters, link_bytes_s, pieces)?;
    scenario.wan_delay_us = delay_us;
    for seed in seeds {
        let outcome = run_method(&scenario, method, seed)?;
        let seconds = outcome.makespan_us().ok_or("a host is never complete")? as f64 / 1e6;
        let wan_copies = outcome.wan_bytes() as f64 / total_bytes.max(1) as f64;
        let row = serde_json::json!({
            "seed": seed,
            "seconds": seconds,
            "wan_copies": wan_copies,
            "piece_bytes": pieces.piece_bytes,
        });
        println!("{row}");
    }
    Ok(())
}
