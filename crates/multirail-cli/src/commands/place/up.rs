//! `multirail place up`.

use super::{agent, block_on};
use crate::printer::Printer;
use anyhow::{Context, bail};
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
    /// Where the other hosts' ports are known from: `auto`, they tell each other, or a file: a line a host, its ports' Ethernet
    /// addresses in order, each with =RATE where its speed is to be known
    #[arg(long, value_name = "auto|FILE", default_value = "auto")]
    peers: PathBuf,
    /// File with the token that all hosts share, without which they do not believe each other
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Bytes under way from which `backlog` pins a stream to a port
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_THRESHOLD_BYTES)]
    threshold: u32,
    /// Leave it to the caller to run `multirail place agent`, as a service manager does
    #[arg(long)]
    no_agent: bool,
}

impl UpArgs {
    fn peers_from(&self) -> anyhow::Result<PeersFrom> {
        // Whoever reads it later may be in another directory.
        let absolute = |path: &PathBuf| std::path::absolute(path).with_context(|| path.display().to_string());
        match (self.peers.as_os_str() == "auto", &self.token_file) {
            (true, Some(token_file)) => Ok(PeersFrom::Exchange { token_file: absolute(token_file)? }),
            (true, None) => bail!("hosts find each other only with a token: give --token-file, or --peers FILE"),
            (false, None) => Ok(PeersFrom::File(absolute(&self.peers)?)),
            (false, Some(_)) => bail!("--token-file is for hosts that find each other; with --peers FILE they do not"),
        }
    }
}

pub fn run(args: UpArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Row {
        policy: Policy,
        ports: usize,
        peers: usize,
        notes: Vec<String>,
    }
    let peers = args.peers_from()?;
    let options = Options { ports: args.ports, policy: args.policy, threshold_bytes: args.threshold, peers };
    let started = block_on(placement::up(&options))?;
    for note in &started.notes {
        printer.note(note);
    }
    if !args.no_agent
        && let Err(error) = agent::start()
    {
        // Without it a port that fails would go on being used.
        block_on(placement::down())?;
        return Err(error);
    }
    let row = Row { policy: args.policy, ports: started.ports, peers: started.peers, notes: started.notes };
    printer.row(&row, |row| {
        let known = match options.peers {
            PeersFrom::File(_) => format!("{} other hosts", row.peers),
            PeersFrom::Exchange { .. } => "other hosts are found as they come".into(),
        };
        format!("placement is up: {} over {} ports, {known}", row.policy, row.ports)
    });
    Ok(ExitCode::SUCCESS)
}
