//! `multirail place up`.

use super::block_on;
use crate::printer::Printer;
use anyhow::Context;
use multirail::placement::{self, DEFAULT_THRESHOLD_BYTES, Options, PeersFrom, Policy};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Begin placement: it goes on until `multirail place down`
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  multirail place up --ports eth0,eth1 --token-file token
  multirail place up --ports eth0,eth1 --policy backlog --peers hosts.txt")]
pub struct UpArgs {
    /// The host's ports; the first is the one whose addresses programs use, and port k must lead to port k of other hosts
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', required = true)]
    ports: Vec<String>,
    /// How streams are given to ports: single, layer2, layer3+4, round-robin, backlog or adaptive
    #[arg(long, value_name = "NAME", default_value = "adaptive")]
    policy: Policy,
    /// A file with the other hosts' ports: a line a host, its ports' Ethernet addresses in order
    #[arg(long, value_name = "FILE")]
    peers: PathBuf,
    /// Bytes under way from which `backlog` pins a stream to a port
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_THRESHOLD_BYTES)]
    threshold: u32,
}

pub fn run(args: UpArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Row {
        policy: Policy,
        ports: usize,
        peers: usize,
        notes: Vec<String>,
    }
    // Whoever reads it again later may be in another directory.
    let peers = std::path::absolute(&args.peers).context("--peers")?;
    let options = Options {
        ports: args.ports,
        policy: args.policy,
        threshold_bytes: args.threshold,
        peers: PeersFrom::File(peers),
    };
    let started = block_on(placement::up(&options))?;
    for note in &started.notes {
        printer.note(note);
    }
    let row = Row { policy: args.policy, ports: started.ports, peers: started.peers, notes: started.notes };
    printer.row(&row, |row| {
        format!("placement is up: {} over {} ports, {} other hosts", row.policy, row.ports, row.peers)
    });
    Ok(ExitCode::SUCCESS)
}
