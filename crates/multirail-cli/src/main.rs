//! The `multirail` command. It parses arguments, calls the library and prints; it has no
//! algorithms.

mod commands;
mod escape;
mod hints;
mod interrupt;
mod keys;
mod limit;
mod printer;
mod progress;
mod ssh;
mod usage;

use clap::{Parser, Subcommand};
use printer::Printer;
use std::process::ExitCode;
use usage::Usage;

/// Move data between machines over every network path they have.
#[derive(Parser)]
#[command(name = "multirail", version, propagate_version = true, after_help = EXIT_CODES)]
struct Cli {
    /// Print results as JSON on stdout, one object per line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 success; 1 failure, with the reason on stderr; 2 a mistake in the command line.";

#[derive(Subcommand)]
enum Command {
    Serve(commands::serve::ServeArgs),
    Token(commands::token::TokenArgs),
    Id(commands::id::IdArgs),
    Pair(commands::pair::PairArgs),
    Cp(commands::cp::CpArgs),
    #[command(hide = true)]
    CopyServer(commands::copy_server::CopyServerArgs),
    Bcast(commands::bcast::BcastArgs),
    Fetch(commands::fetch::FetchArgs),
    Pipeline(commands::pipeline::PipelineArgs),
    Run(commands::run::RunArgs),
    Connect(commands::connect::ConnectArgs),
    Forward(commands::forward::ForwardArgs),
    Rails(commands::rails::RailsArgs),
    Bench(commands::bench::BenchArgs),
    Place(commands::place::PlaceArgs),
    Lab(commands::lab::LabArgs),
    Doctor(commands::doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let printer = Printer::new(cli.json);
    let filter = tracing_subscriber::EnvFilter::try_from_env("MULTIRAIL_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| escape::LogLine).with_target(false).init();
    let outcome = match cli.command {
        Command::Serve(args) => commands::serve::run(args, &printer),
        Command::Token(args) => commands::token::run(args, &printer),
        Command::Id(args) => commands::id::run(args, &printer),
        Command::Pair(args) => commands::pair::run(args, &printer),
        Command::Cp(args) => commands::cp::run(args, &printer),
        Command::CopyServer(args) => commands::copy_server::run(args, &printer),
        Command::Bcast(args) => commands::bcast::run(args, &printer),
        Command::Fetch(args) => commands::fetch::run(args, &printer),
        Command::Pipeline(args) => commands::pipeline::run(args, &printer),
        Command::Run(args) => commands::run::run(args, &printer),
        Command::Connect(args) => commands::connect::run(args, &printer),
        Command::Forward(args) => commands::forward::run(args, &printer),
        Command::Rails(args) => commands::rails::run(args, &printer),
        Command::Bench(args) => commands::bench::run(args, &printer),
        Command::Place(args) => commands::place::run(args, &printer),
        Command::Lab(args) => commands::lab::run(args, &printer),
        Command::Doctor(args) => commands::doctor::run(args, &printer),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            printer.error(&error);
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}
