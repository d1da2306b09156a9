//! `multirail lab`: test networks on this machine.

mod list;
mod optional;
mod play;
mod set;
mod target;
mod up;

use crate::printer::Printer;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use multirail_lab::Lab;
use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// Create test networks on this machine: hosts are network namespaces, joined by rails with a rate,
/// a delay and a loss, by clusters with links between them, or by several ports each to as many
/// switches
#[derive(Args)]
#[command(after_help = "\
Example:
  multirail lab up --hosts a,b --rails 100mbit,25mbit
  multirail lab exec a -- ip address
  multirail lab set 1 --cut
  multirail lab down

  multirail lab up --clusters a=4,b=12 --link a-b=80mbit,delay=10ms
  multirail lab exec a3 -- ping -c 1 10.81.0.2
  multirail lab set --link a-b=8mbit

  multirail lab up --hosts 4 --ports 4 --rate 100mbit
  multirail lab exec h1 -- ping -c 1 10.90.0.2
  multirail lab set h2:eth3 --rate 20mbit

Needs root, and `ip` and `tc` (package iproute2).")]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    Up(up::UpArgs),
    Exec(ExecArgs),
    Set(set::SetArgs),
    Play(play::PlayArgs),
    List(list::ListArgs),
    Down(DownArgs),
}

/// The name of a lab if none is given.
const DEFAULT_NAME: &str = "default";

/// Run a command on a host of a lab and return its exit code
#[derive(Args)]
#[command(after_help = "Example:\n  multirail lab exec b -- iperf3 -s -1 -B 10.77.0.2")]
struct ExecArgs {
    /// The host
    host: String,
    /// The command and its arguments
    #[arg(required = true, last = true)]
    command: Vec<String>,
    /// The lab's name
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
}

/// Take a lab down, also an incomplete one
#[derive(Args)]
#[command(after_help = "Example:\n  multirail lab down --all")]
struct DownArgs {
    /// The lab's name
    #[arg(long, default_value = DEFAULT_NAME, conflicts_with = "all")]
    name: String,
    /// Take down all labs
    #[arg(long)]
    all: bool,
}

pub fn run(args: LabArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    match args.command {
        LabCommand::Up(args) => up::run(args, printer)?,
        LabCommand::Exec(args) => return exec(args),
        LabCommand::Set(args) => set::run(args, printer)?,
        LabCommand::Play(args) => play::run(args, printer)?,
        LabCommand::List(_) => list::run(printer)?,
        LabCommand::Down(args) => down(args, printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn exec(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let (program, rest) = args.command.split_first().context("no command was given")?;
    let error = Lab::open(&args.name)?.command(&args.host, program)?.args(rest).exec();
    Err(error).with_context(|| format!("cannot run {program} on host {}", args.host))
}

fn down(args: DownArgs, printer: &Printer) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct DownRow {
        lab: String,
        namespaces: usize,
        processes: usize,
    }
    let names = if args.all { Lab::list()?.into_iter().map(|lab| lab.name).collect() } else { vec![args.name] };
    let mut failures = Vec::new();
    for lab in names {
        match Lab::take_down(&lab) {
            Ok(removed) => {
                let row = DownRow { lab, namespaces: removed.namespaces, processes: removed.processes };
                printer.row(&row, |row| match row.namespaces {
                    0 => format!("lab {}: does not exist", row.lab),
                    count => format!("lab {}: {count} namespaces removed", row.lab),
                });
                if row.processes > 0 {
                    printer.note(format!(
                        "{} processes in the lab have lost their network and continue to run",
                        row.processes
                    ));
                }
            }
            Err(error) => failures.push(format!("{lab}: {:#}", anyhow::Error::from(error))),
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("; ")) }
}
