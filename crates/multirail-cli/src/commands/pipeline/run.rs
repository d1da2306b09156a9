//! `multirail pipeline run`.

use super::args::{Described, GroupArgs};
use super::chunk;
use super::servers::with_servers;
use super::stall::Stall;
use super::view::{Screen, UnitRow, View};
use crate::interrupt;
use crate::printer::Printer;
use anyhow::Context as _;
use multirail::pipeline::{Group, PipelineError, RunningGroup};
use multirail_proto::units::format_size;
use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The interval between two checks of the copies and of interrupts.
const TICK: Duration = Duration::from_millis(200);
/// The interval between two progress objects in JSON mode.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long all copies may take to give up a unit of work.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// Start the filters, process the units of work, and end the filters
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail pipeline run view.toml --hosts a=node1,b=node2 --token-file token\n\n\
    Paths of files and programs are relative to the current directory on this host, and to the served folder on other hosts. \
    Other hosts run programs only if their servers have the option --allow-programs, or if --ssh starts them. \
    Exit codes: 1 a unit of work failed, with the reason on stderr; 2 a mistake in the command line or the file.")]
pub struct RunArgs {
    #[command(flatten)]
    group: GroupArgs,
    /// The number of units of work [default: that of the file, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    units: Option<u32>,
    /// Give up if no buffer moves for this time, and name the filters that cause it; 0 means never
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    stall: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if Duration::try_from_secs_f64(s).is_ok() => Ok(s),
        _ => Err("write a number of seconds, 0 or more".to_owned()),
    }
}

pub fn run(args: &RunArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let interrupted = interrupt::listen()?;
    let described = args.group.read()?;
    with_servers(&args.group, described, interrupted.notified(), |described| {
        all_units(args, described, printer, &interrupted)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn all_units(args: &RunArgs, mut described: Described, printer: &Printer, interrupted: &Notify) -> anyhow::Result<()> {
    let units = args.units.unwrap_or(described.description.units);
    if let Some(planned) = chunk::plan(&described)? {
        let plan = planned.plan;
        described.description.chunk_bytes = Some(plan.chunk_bytes);
        printer.note(format!("chunk {} for the guarantee", format_size(plan.chunk_bytes)));
    }
    let query = described.description.query.clone();
    let mut running = start(described.group()?, interrupted)?;
    for number in 1..=units {
        unit(args, printer, &mut running, number, units, &query, interrupted)?;
    }
    Ok(())
}

/// Starts the group on a thread of its own. It may take long if a host does not answer, and an
/// interrupt must end the wait.
fn start(group: Group, interrupted: &Notify) -> anyhow::Result<RunningGroup> {
    let (tell, told) = channel();
    std::thread::Builder::new().name("start".to_owned()).spawn(move || drop(tell.send(group.start())))?;
    loop {
        match told.recv_timeout(TICK) {
            Ok(started) => return Ok(started?),
            Err(RecvTimeoutError::Timeout) if is_interrupted(interrupted) => anyhow::bail!("interrupted"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the group could not be started"),
        }
    }
}

fn unit(
    args: &RunArgs,
    printer: &Printer,
    running: &mut RunningGroup,
    number: u32,
    units: u32,
    query: &str,
    interrupted: &Notify,
) -> anyhow::Result<()> {
    let mut stall = Stall::new(args.stall, &running.status());
    let mut view = View::new(number, units, running.status());
    let mut screen = Screen::new(printer.is_json());
    let mut told = Instant::now();
    let unit = running.begin(query.as_bytes());
    let failure = loop {
        match running.wait_for(unit, TICK) {
            Some(Ok(())) => break None,
            Some(Err(failure)) => break Some(anyhow::Error::from(failure)),
            None => {}
        }
        let status = running.status();
        let why = if is_interrupted(interrupted) { Some("interrupted".to_owned()) } else { stall.look(&status) };
        if let Some(why) = why {
            running.abort(unit);
            // The copies end because of this request, so only the loss of a host is of interest.
            let told = running.wait_for(unit, GIVE_UP_TIMEOUT);
            break Some(match told {
                Some(Err(failure @ (PipelineError::Host { .. } | PipelineError::CopyLost { .. }))) => {
                    anyhow::Error::from(failure).context(why)
                }
                _ => anyhow::anyhow!("unit of work {unit}: {why}"),
            });
        }
        screen.show(|| view.now(&status));
        if printer.is_json() && told.elapsed() >= REPORT_EVERY {
            told = Instant::now();
            printer.row(&view.progress(&status), |_| String::new());
        }
    };
    drop(screen);
    let row = view.end(&running.status(), failure.as_ref().map(|f| format!("{f:#}")));
    if failure.is_none() || printer.is_json() {
        printer.row(&row, UnitRow::text);
    }
    match failure {
        None => Ok(()),
        Some(failure) => Err(failure).with_context(|| args.group.file.display().to_string()),
    }
}

fn is_interrupted(interrupted: &Notify) -> bool {
    let told = pin!(interrupted.notified());
    matches!(told.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
}
