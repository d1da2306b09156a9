//! `multirail place`: the streams of all programs over all ports of a host.

mod agent;
mod prometheus;
mod runtime;
mod status;
mod up;

use crate::printer::Printer;
use clap::{Args, Subcommand};
use multirail::placement;
use runtime::block_on;
use serde::Serialize;
use std::process::ExitCode;

/// Spread the streams of all programs on this host over all its ports
#[derive(Args)]
#[command(after_help = "\
Example:
  multirail place up --ports eth0,eth1,eth2,eth3 --token-file token
  multirail place status
  multirail place down

Needs root or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW.")]
pub struct PlaceArgs {
    #[command(subcommand)]
    command: PlaceCommand,
}

#[derive(Subcommand)]
enum PlaceCommand {
    Up(up::UpArgs),
    Down(DownArgs),
    Status(status::StatusArgs),
    Watch(status::WatchArgs),
    Agent(agent::AgentArgs),
}

/// End placement and restore the host, even after a crash
#[derive(Args)]
#[command(after_help = "Example:\n  multirail place down")]
struct DownArgs {}

pub fn run(args: PlaceArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    match args.command {
        PlaceCommand::Up(args) => up::run(args, printer),
        PlaceCommand::Down(DownArgs {}) => down(printer),
        PlaceCommand::Status(args) => status::run(&args, printer),
        PlaceCommand::Watch(args) => status::watch(&args, printer),
        PlaceCommand::Agent(args) => agent::run(&args, printer),
    }
}

fn down(printer: &Printer) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Row {
        was_up: bool,
        failures: Vec<String>,
    }
    let ended = block_on(placement::down())?;
    for failure in &ended.failures {
        printer.note(failure);
    }
    let row = Row { was_up: ended.was_up, failures: ended.failures };
    printer.row(&row, |row| match (row.was_up, row.failures.as_slice()) {
        (false, _) => "placement was not up here".into(),
        (true, []) => "placement has ended; the host is as it was before".into(),
        (true, _) => "placement has ended; not everything could be restored".into(),
    });
    Ok(if row.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
