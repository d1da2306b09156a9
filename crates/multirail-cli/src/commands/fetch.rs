//! `multirail fetch`.

use super::SessionArgs;
use super::bcast::{progress, split_destination};
use crate::escape::one_line;
use crate::hints::error_with_hint;
use crate::interrupt;
use crate::printer::Printer;
use crate::usage::Usage;
use anyhow::Context;
use multirail::multicast::{FetchError, FetchOptions, Fetched, Ticket, fetch};
use multirail::{Error, runtime};
use multirail_proto::units::{format_size, parse_duration, rate_mbit_s};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Get the data of a broadcast with its ticket, from all hosts that have any
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  multirail fetch mr1ae5x...\n  \
    multirail fetch mr1ae5x... --to /data/models/ --seed-for 10m\n\n\
    `multirail bcast --ticket` on the host that has the data prints the ticket. Every piece is verified by the hash in \
    the ticket. An interrupted fetch continues with the same command.")]
pub struct FetchArgs {
    /// The ticket; `-` reads it from stdin
    #[arg(value_name = "TICKET")]
    ticket: String,
    /// The destination, as with multirail cp
    #[arg(long, value_name = "DEST", default_value = ".")]
    to: PathBuf,
    /// How long to serve other hosts once everything is here, as 90s, 10m or 2h
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    seed_for: Duration,
    /// Write each file and its name to disk before the fetch is complete
    #[arg(long)]
    fsync: bool,
    /// Show progress even if stderr is not a terminal; with --json as objects on stdout
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct FetchRow {
    bytes: u64,
    resumed_bytes: u64,
    senders: usize,
    seconds: f64,
    rate_mbit_s: f64,
}

pub fn run(args: FetchArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let ticket: Ticket = read(&args.ticket)?.parse().map_err(Usage::of)?;
    super::raise_file_limit();
    let (folder, destination) = match args.to.is_dir() {
        true => (args.to.clone(), PathBuf::new()),
        false => split_destination(&args.to),
    };
    let root = folder.canonicalize().with_context(|| format!("--to: there is no {} here", folder.display()))?;
    let options = FetchOptions::new()
        .root(root)
        .destination(destination)
        .sync(args.fsync)
        .seed_for(args.seed_for)
        .config(args.session.config()?);
    let shown = progress::show(options.progress.clone(), None, args.progress, printer.is_json());
    let interrupted = interrupt::listen()?;
    let fetched = runtime::block_on(async {
        Ok(tokio::select! {
            fetched = fetch(&ticket, &options) => fetched.map_err(|error| explained(error, &ticket)),
            () = interrupted.notified() => Err(anyhow::anyhow!("interrupted; the same command continues")),
        })
    })?;
    drop(shown);
    printer.row(&FetchRow::new(&fetched?), FetchRow::line);
    Ok(ExitCode::SUCCESS)
}

fn read(ticket: &str) -> anyhow::Result<String> {
    match ticket {
        "-" => std::io::read_to_string(std::io::stdin()).context("reading the ticket from stdin"),
        ticket => Ok(ticket.to_owned()),
    }
}

/// The error with what to do about it.
fn explained(error: FetchError, ticket: &Ticket) -> anyhow::Error {
    let FetchError::Own(own) = error else { return error.into() };
    let addresses = ticket.addresses().join(", ");
    match own {
        Error::Unreachable { cause, .. } => error_with_hint(
            format!("the root of the broadcast is not reached at {}: {cause}", one_line(&addresses)),
            "check that `multirail bcast --ticket` still runs there, and that a firewall lets its port through",
        ),
        Error::TokenMissing { .. } | Error::TokenUnknown => error_with_hint(
            own.to_string(),
            "this ticket has no secret; give the token of the broadcast with `--token-file FILE`",
        ),
        Error::HostChanged { .. } => {
            anyhow::anyhow!("the host at {} is not the one that gave the ticket", one_line(&addresses))
        }
        own => own.into(),
    }
}

impl FetchRow {
    fn new(fetched: &Fetched) -> Self {
        let seconds = fetched.elapsed.as_secs_f64();
        Self {
            bytes: fetched.total_bytes,
            resumed_bytes: fetched.resumed_bytes,
            senders: fetched.senders,
            seconds,
            rate_mbit_s: rate_mbit_s(fetched.total_bytes - fetched.resumed_bytes, seconds.max(1e-9)),
        }
    }

    fn line(&self) -> String {
        let resumed = match self.resumed_bytes {
            0 => String::new(),
            bytes => format!(", of which {} were here", format_size(bytes)),
        };
        let hosts = if self.senders == 1 { "host" } else { "hosts" };
        format!(
            "complete: {}{resumed} in {:.1} s, {:.0} Mbit/s from {} {hosts}",
            format_size(self.bytes),
            self.seconds,
            self.rate_mbit_s,
            self.senders
        )
    }
}
