//! `multirail place`: streams of all programs over all ports of the host.

mod agent;
mod prometheus;
mod status;
mod up;

use crate::printer::Printer;
use anyhow::Context;
use clap::{Args, Subcommand};
use multirail::placement;
use serde::Serialize;
use std::process::ExitCode;

/// Spread the streams of all programs on this host over all its ports, without their knowing
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

/// End placement and put everything back as it was, also after a crash
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
        (true, []) => "placement has ended; everything is as it was before".into(),
        (true, _) => "placement has ended; not everything could be put back".into(),
    });
    Ok(if row.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// On a runtime of this thread, which stays in its network namespace.
fn block_on<T>(future: impl Future<Output = placement::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    Ok(runtime.block_on(future)?)
}
