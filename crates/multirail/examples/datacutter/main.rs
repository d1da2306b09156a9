//! The applications of "Impact of High Performance Sockets on Data Intensive Applications", section
//! 5.2.1, for experiments/datacutter: a server of images with partial and complete updates, and a
//! load balancer over nodes of which one is slow.
//!
//! ```text
//! datacutter host          a host; says where it listens, and ends with its input
//! datacutter run JOB.json  takes measurements; a JSON object a line
//! ```
//!
//! A job names the hosts' addresses, the transport, and what to measure: [`Job`].

mod balance;
mod edge;
mod filters;
mod images;

use multirail::pipeline::Failure;
use multirail::pipeline::edge::Transport;
use multirail::runtime;
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Config, Token};
use serde::Deserialize;
use std::io::Write;

/// What to measure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    /// `host:port` of the hosts.
    hosts: Vec<String>,
    transport: Transport,
    /// What a filter computes on a byte, in nanoseconds.
    compute_ns_per_byte: f64,
    measure: Measure,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Measure {
    /// Figures 7 and 8: complete and partial updates with chunks of each size, and what the planner
    /// thinks of them.
    Updates { image_bytes: u64, chunks: Vec<u64>, seconds: f64 },
    /// Figure 9: a mixture of zooms (four chunks) and complete updates.
    Mixture { image_bytes: u64, chunk_bytes: u64, complete_shares: Vec<f64>, queries: u32, seed: u64 },
    /// Figures 10 and 11: nodes of which the second is slower.
    Balance(balance::Work),
    /// An edge within a process.
    Within { buffer_bytes: usize, buffers: u64 },
}

/// Only programs of this machine can reach it, and only for the time of an experiment.
fn config() -> Config {
    Config::new().token(Token::new(b"experiments/datacutter"))
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host"] => host(),
        ["run", job] => run(&serde_json::from_slice(&std::fs::read(job)?)?),
        _ => Err("usage: datacutter host | datacutter run JOB.json".into()),
    }
}

fn host() -> Result<(), Failure> {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), config());
    runtime::block_on(Server::new(listen, std::env::temp_dir()).with_filters(filters::all()).serve(|address| {
        println!("{address}");
        let _ = std::io::stdout().flush();
    }))?;
    Ok(())
}

fn run(job: &Job) -> Result<(), Failure> {
    match &job.measure {
        Measure::Updates { image_bytes, chunks, seconds } => images::updates(job, *image_bytes, chunks, *seconds),
        Measure::Mixture { image_bytes, chunk_bytes, complete_shares, queries, seed } => {
            images::mixture(job, *image_bytes, *chunk_bytes, complete_shares, *queries, *seed)
        }
        Measure::Balance(work) => balance::run(job, work),
        Measure::Within { buffer_bytes, buffers } => edge::within(*buffer_bytes, *buffers),
    }
}

fn emit(row: &serde_json::Value) {
    println!("{row}");
}
