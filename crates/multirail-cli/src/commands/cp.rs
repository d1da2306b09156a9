//! `multirail cp`.

use super::{SessionArgs, host_address};
use crate::printer::Printer;
use crate::usage::Usage;
use crate::{interrupt, progress};
use clap::builder::{OsStringValueParser, TypedValueParser};
use multirail::files::{self, Failure, Options, Progress, Report, Skipped};
use multirail::{Session, service};
use multirail_proto::units::format_size;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Lines of skipped and of failed files shown to people; JSON has more.
const MAX_LINES: usize = 100;

/// Copy files and directories to or from a host that runs `multirail serve`, over all rails
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  multirail cp -r results/ mr://storage1/runs/\n  multirail cp mr://storage1/models/a.bin .\n\n\
    Paths on the server start at the folder that it serves. As with cp: into DEST if it is a directory, else under that name; \
    permission bits and modification times are kept. A file gets its name when its BLAKE3 hash has been compared with the \
    sender's. Symlinks and special files are left out and named."
)]
pub struct CpArgs {
    /// What to copy, then where to: paths of this host, or mr://HOST[:PORT]/PATH
    #[arg(value_name = "PATH", required = true, value_parser = place_parser())]
    places: Vec<Place>,
    /// Copy directories and all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Give no file its name before its content is on the disk
    #[arg(long)]
    fsync: bool,
    #[command(flatten)]
    session: SessionArgs,
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Local(PathBuf),
    Remote { host: String, path: PathBuf },
}

/// What is printed at the end.
#[derive(Serialize)]
struct Summary {
    files: u64,
    directories: u64,
    bytes: u64,
    seconds: f64,
    rate_mbit_s: f64,
    retried: u64,
    rails: Vec<RailRow>,
    skipped_count: u64,
    skipped: Vec<Skipped>,
    failed_count: u64,
    failed: Vec<FailedRow>,
}

#[derive(Serialize)]
struct RailRow {
    local: String,
    remote: String,
    bytes: u64,
    share: f64,
    rate_mbit_s: f64,
    rtt_us: u32,
}

#[derive(Serialize)]
struct FailedRow {
    message: String,
    #[serde(flatten)]
    failure: Failure,
}

pub fn run(args: CpArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let job = Job::new(args.places).map_err(Usage::of)?;
    let options = Options {
        recursive: args.recursive,
        sync: args.fsync,
        server_strategy: Some((args.session.strategy, args.session.fragment_bytes)),
        progress: Arc::new(Progress::default()),
    };
    let config = args.session.config()?;
    let interrupted = interrupt::listen()?;
    let summary = service::block_on(async {
        let copy = async {
            let mut session = Session::connect(&host_address(&job.host)?, config).await?;
            let bars = progress::show(session.watch(), options.progress.clone(), job.upload);
            let start = Instant::now();
            let copied = if job.upload {
                files::put(&mut session, &job.sources, &job.destination, &options).await
            } else {
                files::get(&mut session, &job.sources, &job.destination, &options).await
            };
            drop(bars);
            let report = copied?;
            let summary = Summary::new(report, start.elapsed().as_secs_f64(), &session.rails(), job.upload);
            session.close().await?;
            anyhow::Ok(summary)
        };
        // Dropping the copy removes its unfinished file.
        Ok(tokio::select! {
            copied = copy => copied,
            () = interrupted.notified() => Err(anyhow::anyhow!("interrupted; files that were not finished are not there")),
        })
    })??;
    let code = if summary.failed_count == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) };
    if !printer.is_json() {
        summary.explain(printer);
    }
    printer.row(&summary, Summary::line);
    Ok(code)
}

/// A copy that makes sense.
struct Job {
    host: String,
    upload: bool,
    sources: Vec<PathBuf>,
    destination: PathBuf,
}

impl Job {
    fn new(mut places: Vec<Place>) -> anyhow::Result<Job> {
        let last = places.pop().filter(|_| !places.is_empty());
        let Some(last) = last else { anyhow::bail!("there must be one SRC at least, and a DEST") };
        match last {
            Place::Remote { host, path: destination } => {
                let sources = places.into_iter().map(|place| match place {
                    Place::Local(path) => Ok(path),
                    Place::Remote { host: from, .. } => Err(anyhow::anyhow!(
                        "mr://{from} and mr://{host} are both remote; copy to this host first, or run cp on one of them"
                    )),
                });
                Ok(Job { sources: sources.collect::<anyhow::Result<_>>()?, host, upload: true, destination })
            }
            Place::Local(destination) => {
                let mut from: Option<String> = None;
                let mut sources = Vec::new();
                for place in places {
                    let Place::Remote { host, path } = place else {
                        anyhow::bail!(
                            "neither end is remote: one must be mr://HOST[:PORT]/PATH; for two local paths there is cp"
                        )
                    };
                    if from.as_ref().is_some_and(|other| *other != host) {
                        anyhow::bail!(
                            "the sources are on two hosts, {} and {host}; copy from one at a time",
                            from.unwrap_or_default()
                        );
                    }
                    from = Some(host);
                    sources.push(path);
                }
                Ok(Job { host: from.unwrap_or_default(), upload: false, sources, destination })
            }
        }
    }
}

impl Summary {
    fn new(report: Report, seconds: f64, rails: &[multirail::session::RailStatus], upload: bool) -> Self {
        let moved = |r: &multirail::session::RailStatus| if upload { r.sent_bytes } else { r.received_bytes };
        let sum: u64 = rails.iter().map(moved).sum();
        let rate = |bytes: u64| bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9);
        let rails = rails.iter().map(|rail| {
            let (local, remote) = rail
                .addresses
                .map_or_else(|| ("down".to_owned(), "down".to_owned()), |(l, r)| (l.to_string(), r.to_string()));
            let bytes = moved(rail);
            let share = bytes as f64 / sum.max(1) as f64;
            RailRow { local, remote, bytes, share, rate_mbit_s: rate(bytes), rtt_us: rail.rtt_us }
        });
        Self {
            files: report.files,
            directories: report.directories,
            bytes: report.bytes,
            seconds,
            rate_mbit_s: rate(report.bytes),
            retried: report.retried,
            rails: rails.collect(),
            skipped_count: report.skipped_count,
            skipped: report.skipped,
            failed_count: report.failed_count,
            failed: report.failed.into_iter().map(|f| FailedRow { message: f.to_string(), failure: f }).collect(),
        }
    }

    /// Names what is not there.
    fn explain(&self, printer: &Printer) {
        for skipped in self.skipped.iter().take(MAX_LINES) {
            printer.note(format!("skipped {}: {}", skipped.path.display(), skipped.what));
        }
        for failed in self.failed.iter().take(MAX_LINES) {
            printer.note(format!("error: {}", failed.message));
        }
        let unnamed = |count: u64, named: usize| count.saturating_sub(named.min(MAX_LINES) as u64);
        match unnamed(self.skipped_count, self.skipped.len()) + unnamed(self.failed_count, self.failed.len()) {
            0 => {}
            more => printer.note(format!("... and {more} more")),
        }
    }

    fn line(&self) -> String {
        let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut line = format!(
            "{}, {} in {:.1} s, {:.0} Mbit/s on {}",
            count(self.files, "file"),
            format_size(self.bytes),
            self.seconds,
            self.rate_mbit_s,
            count(self.rails.len() as u64, "rail"),
        );
        for (number, what) in
            [(self.retried, "sent twice"), (self.skipped_count, "skipped"), (self.failed_count, "failed")]
        {
            if number > 0 {
                line += &format!("; {number} {what}");
            }
        }
        line
    }
}

fn place_parser() -> impl TypedValueParser<Value = Place> {
    OsStringValueParser::new().try_map(|text| parse_place(&text))
}

fn parse_place(text: &OsStr) -> Result<Place, String> {
    const FORM: &str = "write mr://HOST[:PORT]/PATH, an IPv6 address in brackets";
    let Some(rest) = text.as_bytes().strip_prefix(b"mr://") else {
        return match text.as_bytes() {
            b"" => Err("an empty path".to_owned()),
            t if t.starts_with(b"mr:") => Err(format!("{FORM}; for a local file of that name, ./{}", text.display())),
            _ => Ok(Place::Local(PathBuf::from(text))),
        };
    };
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let host = std::str::from_utf8(&rest[..slash]).map_err(|_| format!("the host is not text; {FORM}"))?;
    let path = OsString::from(OsStr::from_bytes(rest.get(slash + 1..).unwrap_or_default()));
    check_host(host).map_err(|why| format!("{why}; {FORM}"))?;
    Ok(Place::Remote { host: host.to_owned(), path: PathBuf::from(path) })
}

fn check_host(host: &str) -> Result<(), String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or("a bracket is not closed")?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| format!("[{address}] is not an IPv6 address"))?;
            match port {
                "" => (address, None),
                port => (address, Some(port.strip_prefix(':').ok_or("there is something between bracket and port")?)),
            }
        }
        None if host.matches(':').count() > 1 => return Err(format!("{host} has more than one colon")),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    match port.map(str::parse::<u16>) {
        _ if name.is_empty() => Err("the host is missing".to_owned()),
        Some(Err(_) | Ok(0)) => Err(format!("{} is not a port", port.unwrap_or_default())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let remote = |host: &str, path: &str| Ok(Place::Remote { host: host.to_owned(), path: path.into() });
        let parse = |text: &str| parse_place(OsStr::new(text));
        assert_eq!(parse("mr://node2/a/b c"), remote("node2", "a/b c"));
        assert_eq!(parse("mr://node2:99/"), remote("node2:99", ""));
        assert_eq!(parse("mr://node2"), remote("node2", ""));
        assert_eq!(parse("mr://[fd00::1]:99/x"), remote("[fd00::1]:99", "x"));
        assert_eq!(parse("mr://[::1]/x"), remote("[::1]", "x"));
        assert_eq!(parse("mr://node2//etc"), remote("node2", "/etc"), "the server refuses it");
        assert_eq!(parse("./mr:x"), Ok(Place::Local("./mr:x".into())));
        for bad in [
            "",
            "mr:x",
            "mr:/x",
            "mr:///x",
            "mr://:99/x",
            "mr://a:x/b",
            "mr://a:70000/b",
            "mr://fd00::1/x",
            "mr://[fd00::1/x",
            "mr://[a]/x",
            "mr://[::1]99/x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn jobs() {
        let job = |places: &[&str]| Job::new(places.iter().map(|p| parse_place(OsStr::new(p)).unwrap()).collect());
        assert!(job(&["a", "mr://h/b"]).unwrap().upload);
        assert!(!job(&["mr://h/a", "mr://h/c", "b"]).unwrap().upload);
        for (places, why) in [
            (&["mr://h/a", "mr://g/b"][..], "both remote"),
            (&["mr://h/a", "mr://g/b", "c"], "two hosts"),
            (&["a", "b"], "neither end"),
            (&["mr://h/a", "b", "c"], "neither end"),
        ] {
            assert!(job(places).err().unwrap().to_string().contains(why), "{places:?}");
        }
    }
}
