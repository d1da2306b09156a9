//! `multirail cp`.

mod job;
mod summary;
mod what;

use super::{SessionArgs, host_address};
use crate::limit::LimitArgs;
use crate::printer::Printer;
use crate::ssh::copy::{CopySshArgs, INTERRUPTED};
use crate::usage::Usage;
use crate::{interrupt, progress};
use anyhow::anyhow;
use job::{CopyLocation, Host, Job, location_parser};
use multirail::files::{self, Options};
use multirail::{Config, Session, runtime};
use std::process::ExitCode;
use std::time::Instant;
use summary::CopySummary;
use what::WhatArgs;

/// Copy files and directories to or from another host over all rails
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  multirail cp -r results storage1:/data/runs/\n  multirail cp me@storage1:models/a.bin .\n  \
    multirail cp -r results mr://storage1/runs/ --token-file token\n\n\
    HOST:PATH is a path of a host that ssh reaches, relative to the home there. The server for the copy is started over \
    ssh, and ends with the copy. As with scp, a colon before the first slash is the end of a host: write ./NAME for a \
    local name with a colon. mr://HOST/PATH is a path below the folder of a running `multirail serve`.\n\n\
    As with rsync, a source goes into DEST under its \
    name; with a slash at its end, its content goes into DEST. DEST is made if needed. A single file is named DEST unless \
    DEST is a directory or ends in a slash.\n\n\
    Permission bits, modification times and symlinks are kept. A file that DEST has with the same length and \
    modification time is not sent again. A file gets its name after its BLAKE3 hash has been compared with that of the \
    sender. An interrupted copy continues with the same command. Special files are skipped and listed."
)]
pub struct CpArgs {
    /// The sources and the destination: paths of this host, [USER@]HOST:PATH for a host of ssh, or
    /// mr://HOST[:PORT]/PATH for a server that runs
    #[arg(value_name = "PATH", required = true, value_parser = location_parser())]
    locations: Vec<CopyLocation>,
    #[command(flatten)]
    what: WhatArgs,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    ssh: CopySshArgs,
    #[command(flatten)]
    session: SessionArgs,
}

pub fn run(args: CpArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let job = Job::new(args.locations).map_err(Usage::of)?;
    check_options(&job.host, &args.ssh, &args.session)?;
    let options = args.what.options(printer)?.server_strategy(args.session.strategy, args.session.fragment_bytes);
    let background = args.limit.background;
    let options = options.server_background(background);
    let limit = args.limit.start()?;
    let interrupted = interrupt::listen()?;
    let summary = runtime::block_on(async {
        let work = async |session| copy(session, &job, &options).await;
        Ok(match &job.host {
            // Dropping the copy removes small incomplete files.
            Host::Server(address) => tokio::select! {
                copied = async {
                    let config = args.session.config()?.rate_limit(limit).background(background);
                    work(Session::connect(&host_address(address)?, config).await?).await
                } => copied,
                () = interrupted.notified() => Err(anyhow!(INTERRUPTED)),
            },
            Host::Login(login) => {
                let printer = *printer;
                let started = tokio::select! {
                    started = args.ssh.start(login, args.session.plaintext, move |line| printer.note(line)) => started,
                    () = interrupted.notified() => Err(anyhow!(INTERRUPTED)),
                };
                match started {
                    Ok(server) => {
                        let config = args.session.applied_to(Config::new()).rate_limit(limit).background(background);
                        server.run(config, interrupted.notified(), work).await
                    }
                    Err(error) => Err(error),
                }
            }
        })
    })??;
    let code = if summary.failed_count == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) };
    if !printer.is_json() {
        summary.explain(printer);
    }
    printer.row(&summary, CopySummary::line);
    Ok(code)
}

/// Refuses options that are for the other kind of host.
fn check_options(host: &Host, ssh: &CopySshArgs, session: &SessionArgs) -> anyhow::Result<()> {
    match (host, ssh.given()) {
        (Host::Server(_), Some(option)) => {
            Err(Usage::of(format!("{option} is for hosts of ssh ([USER@]HOST:PATH), and {host} is a server that runs")))
        }
        (Host::Login(_), _) if session.token_file.is_some() => {
            Err(Usage::of("--token-file is for servers that run (mr://HOST/PATH); a copy over ssh has keys of its own"))
        }
        _ => Ok(()),
    }
}

/// Copies, and closes the session.
async fn copy(mut session: Session, job: &Job, options: &Options) -> anyhow::Result<CopySummary> {
    let bars = progress::show(session.watch(), options.progress.clone(), job.upload);
    let start = Instant::now();
    let copied = if job.upload {
        files::put(&mut session, &job.sources, &job.destination, options).await
    } else {
        files::get(&mut session, &job.sources, &job.destination, options).await
    };
    drop(bars);
    let report = copied?;
    let summary = CopySummary::new(report, start.elapsed().as_secs_f64(), &session.rails(), job.upload);
    session.close().await?;
    Ok(summary)
}
