//! `multirail pipeline`.

mod args;
mod chunk;
mod plan;
mod run;
mod servers;
mod stall;
mod view;

use crate::printer::Printer;
use std::process::ExitCode;

/// Run filters as a pipeline, on this host and others
#[derive(clap::Args)]
pub struct PipelineArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(run::RunArgs),
    Plan(plan::PlanArgs),
}

pub fn run(args: PipelineArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    super::raise_file_limit();
    match args.command {
        Command::Run(args) => run::run(&args, printer),
        Command::Plan(args) => plan::run(&args, printer),
    }
}
