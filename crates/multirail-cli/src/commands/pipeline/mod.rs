//! `multirail pipeline`.

mod chunk;
mod plan;
mod run;
mod servers;
mod stall;
mod view;

use super::{SessionArgs, host_address};
use crate::printer::Printer;
use crate::ssh::SshArgs;
use crate::usage::Usage;
use anyhow::Context;
use multirail::Config;
use multirail::pipeline::describe::Description;
use multirail::pipeline::{Filters, Group};
use multirail::transport::Transport;
use multirail_proto::units::parse_size;
use std::path::{Path, PathBuf};
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

/// The description, and what the command line says differently.
#[derive(clap::Args)]
struct GroupArgs {
    /// The filters and streams, in TOML
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Addresses of hosts that the file names: NAME=ADDRESS[:PORT],...
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named_host)]
    hosts: Vec<(String, String)>,
    /// What sources cut their data into [default: what the file says, or what its guarantee asks for, or 64k]
    #[arg(long, value_name = "SIZE", value_parser = chunk_bytes)]
    chunk: Option<u64>,
    /// What carries streams between hosts: shm, tcp, striped or ucx [default: what the file says, or the best that both hosts can do]
    #[arg(long, value_name = "NAME")]
    transport: Option<Transport>,
    #[command(flatten)]
    ssh: SshArgs,
    /// With --ssh, where the files and programs of the other hosts begin [default: where ssh arrives]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true, requires = "ssh")]
    ssh_root: PathBuf,
    #[command(flatten)]
    session: SessionArgs,
}

/// A description, ready to be started.
struct Described {
    description: Description,
    known: Filters,
    config: Config,
}

pub fn run(args: PipelineArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    super::raise_file_limit();
    match args.command {
        Command::Run(args) => run::run(&args, printer),
        Command::Plan(args) => plan::run(&args, printer),
    }
}

impl GroupArgs {
    /// Reads the file. Its paths and programs begin at this directory.
    fn read(&self) -> anyhow::Result<Described> {
        let text = std::fs::read_to_string(&self.file).with_context(|| self.file.display().to_string())?;
        let mut description: Description = text.parse().map_err(|e| self.wrong(e))?;
        description.hosts.extend(self.hosts.iter().cloned());
        // A server that is started has the port that its host's address says, or any.
        if !self.ssh.is_given() {
            for (name, address) in &mut description.hosts {
                *address = host_address(address).with_context(|| format!("host {name}"))?;
            }
        }
        description.chunk_bytes = self.chunk.or(description.chunk_bytes);
        description.transport = self.transport;
        let known = Filters::built_in(Path::new(".")).with_programs(Path::new("."));
        let described = Described { description, known, config: self.session.config()? };
        described.description.group(Config::default(), &described.known).map_err(|e| self.wrong(e))?;
        Ok(described)
    }

    fn wrong(&self, error: impl std::fmt::Display) -> anyhow::Error {
        Usage::of(format!("{}: {error}", self.file.display()))
    }
}

impl Described {
    fn group(&self) -> anyhow::Result<Group> {
        Ok(self.description.group(self.config.clone(), &self.known)?)
    }
}

fn named_host(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() && !address.is_empty() => Ok((name.to_owned(), address.to_owned())),
        _ => Err("write NAME=ADDRESS or NAME=ADDRESS:PORT, separated by commas".to_owned()),
    }
}

fn chunk_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("a chunk has at least 1 byte".to_owned()),
        bytes => bytes.map_err(|e| e.to_string()),
    }
}
