//! `multirail place up`.

use super::agent;
use super::runtime::block_on;
use crate::hints::error_with_hint;
use crate::printer::Printer;
use anyhow::Context;
use multirail::placement::{self, DEFAULT_THRESHOLD_BYTES, Options, PeersFrom, Policy};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Start placement, which continues until `multirail place down`
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  multirail place up --ports eth0,eth1 --token-file token
  multirail place up --ports eth0,eth1 --policy backlog --peers hosts.txt")]
pub struct UpArgs {
    /// The ports of this host: first the one whose addresses programs use; port k must lead to port
    /// k of the other hosts
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', required = true)]
    ports: Vec<String>,
    /// How streams are given to ports: single, layer2, layer3+4, round-robin, backlog or adaptive
    #[arg(long, value_name = "NAME", default_value = "adaptive")]
    policy: Policy,
    /// How the ports of other hosts are known: `auto`, by hellos of the hosts, or from a file,
    /// which has a line for each host with the Ethernet addresses of its ports in order, each
    /// optionally followed by =RATE
    #[arg(long, value_name = "auto|FILE", default_value = "auto")]
    peers: PathBuf,
    /// File with the token that all hosts share; hosts ignore hellos without it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Unacknowledged bytes above which `backlog` pins a stream to a port
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_THRESHOLD_BYTES)]
    threshold: u32,
    /// Do not start the agent; a service manager runs `multirail place agent`
    #[arg(long)]
    no_agent: bool,
}

impl UpArgs {
    fn peers_from(&self) -> anyhow::Result<PeersFrom> {
        // The agent reads it from another directory.
        let absolute = |path: &PathBuf| std::path::absolute(path).with_context(|| path.display().to_string());
        match (self.peers.as_os_str() == "auto", &self.token_file) {
            (true, Some(token_file)) => Ok(PeersFrom::Exchange { token_file: absolute(token_file)? }),
            (true, None) => {
                Err(error_with_hint("hosts need a token to find each other", "give --token-file, or --peers FILE"))
            }
            (false, None) => Ok(PeersFrom::File(absolute(&self.peers)?)),
            (false, Some(_)) => {
                Err(error_with_hint("--token-file has no effect with --peers FILE", "give one of them"))
            }
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
    let options = Options::new(args.ports, peers).policy(args.policy).threshold_bytes(args.threshold);
    let started = block_on(placement::up(&options))?;
    for note in &started.notes {
        printer.note(note);
    }
    if !args.no_agent
        && let Err(error) = agent::start()
    {
        // Without an agent, a port that fails would still be used.
        block_on(placement::down())?;
        return Err(error);
    }
    let row = Row { policy: args.policy, ports: started.ports, peers: started.peers, notes: started.notes };
    printer.row(&row, |row| {
        let known = match options.peers {
            PeersFrom::File(_) => format!("{} other hosts", row.peers),
            PeersFrom::Exchange { .. } => "other hosts are found by their hellos".into(),
        };
        format!("placement is up: {} over {} ports, {known}", row.policy, row.ports)
    });
    Ok(ExitCode::SUCCESS)
}
