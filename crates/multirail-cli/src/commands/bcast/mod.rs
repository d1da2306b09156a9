//! `multirail bcast`.

mod output;
mod party;
mod progress;
mod receive;

use super::SessionArgs;
use crate::interrupt;
use crate::printer::Printer;
use crate::ssh::{self, SshArgs};
use crate::usage::Usage;
use anyhow::Context;
use clap::builder::{PathBufValueParser, TypedValueParser};
use multirail::multicast::attend::{Attendants, Verdict};
use multirail::multicast::discover::{Discovered, discover};
use multirail::multicast::hosts::{Clustering, Subnet, parse_link_rates};
use multirail::multicast::{Bandwidths, Host, Method, Options, Outcome, broadcast_path};
use multirail::{Config, service};
use party::{Invited, Role};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Send a file or a directory to many hosts, over all links between all clusters
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  multirail bcast model.bin --to models/ --hosts node1,node2,node3 --token-file token\n  \
    multirail bcast -r dataset --to /scratch/data --hosts hosts.txt --ssh\n  \
    srun --ntasks-per-node=1 multirail bcast model.bin --to /scratch/model.bin --token-file ~/token\n\n\
    A hosts file has lines `ADDRESS[:PORT] [cluster=NAME]`. The host that this runs on may be in it: it has the data already. \
    Clusters that nobody gives are found by measuring. Exit code 1: some host has not the whole; the summary says which and why."
)]
pub struct BcastArgs {
    /// What to send
    #[arg(value_name = "SRC", value_parser = PathBufValueParser::new().try_map(non_empty))]
    source: PathBuf,
    /// Where the hosts put it, as with cp: below the folder that their servers serve; with --ssh, Slurm and Kubernetes any path
    #[arg(long, value_name = "DEST", value_parser = PathBufValueParser::new().try_map(non_empty))]
    to: PathBuf,
    /// Who shall have it: a file, a list ADDRESS[:PORT],..., or dns:NAME[:PORT] [default: what Slurm says]
    #[arg(long, value_name = "FILE|LIST")]
    hosts: Option<String>,
    /// Which hosts are near each other: "a,b;c,d", or with names "x=a,b;y=c,d"
    #[arg(long, value_name = "LIST", conflicts_with = "cluster_by")]
    clusters: Option<String>,
    /// A cluster is a subnet: `subnet` (24 bits of IPv4, 64 of IPv6) or subnet/BITS
    #[arg(long, value_name = "subnet[/BITS]")]
    cluster_by: Option<Subnet>,
    /// adaptive, mob, bittorrent, balanced, fpfr, magpie, chain or flat
    #[arg(long, value_name = "NAME", default_value_t)]
    method: Method,
    /// File with lines A-B=RATE: the rates between clusters, which balanced and fpfr plan with
    #[arg(long, value_name = "FILE")]
    bandwidth: Option<PathBuf>,
    /// Send directories and all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Measure, show who takes part and what lies between them, and stop
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    ssh: SshArgs,
    /// Where hosts listen whose entry does not say [default: 7717; with --ssh any]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// The address at which the others reach this host, if it is not the one it reaches them from
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    advertise: Option<String>,
    /// Under Slurm and in Kubernetes: how long hosts are waited for that are being started, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86400))]
    wait: u32,
    /// In Kubernetes: how many hosts there will be, this one among them [default: those that the name has at first]
    #[arg(long, value_name = "N")]
    wait_hosts: Option<usize>,
    /// Show progress also where stderr is no terminal; with --json as objects on stdout
    #[arg(long)]
    progress: bool,
    /// Size of a piece in bytes, a power of two from 16k to 1m [default: so that there are some thousand]
    #[arg(long, value_name = "BYTES", value_parser = piece)]
    piece_bytes: Option<u32>,
    #[command(flatten)]
    session: SessionArgs,
}

pub fn run(args: BcastArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    super::raise_file_limit();
    let interrupted = interrupt::listen()?;
    service::block_on(async {
        let broadcast = async {
            match party::role(&args).await? {
                Role::Root(invited) => run_root(&args, invited, printer).await,
                Role::Receiver => receive::run(&args, printer).await,
                Role::Spare => Ok(ExitCode::SUCCESS),
            }
        };
        Ok(tokio::select! {
            done = broadcast => done,
            () = interrupted.notified() => Err(anyhow::anyhow!(
                "interrupted; the same command goes on with what the hosts have"
            )),
        })
    })?
}

/// What the root knows when it begins.
struct Ready {
    /// Everyone, the root first.
    invited: Invited,
    /// Where each receiver is dialled, or why it is left out.
    addresses: Vec<Result<String, String>>,
    /// Of the root and of those receivers that are not left out.
    clusters: Clustering,
    /// Somebody said so, nothing was measured for it.
    clusters_given: bool,
    /// What was measured between them, if it was.
    found: Option<Discovered>,
    bandwidths: Option<Bandwidths>,
}

impl Ready {
    /// The receivers that are not left out, by their places.
    fn present(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().enumerate().filter(|(_, a)| a.is_ok()).map(|(receiver, _)| receiver)
    }

    fn hosts(&self) -> Vec<Host> {
        let addresses = self.addresses.iter().flatten().zip(&self.clusters.of[1..]);
        addresses.map(|(address, cluster)| Host { address: address.clone(), cluster: *cluster }).collect()
    }
}

async fn run_root(args: &BcastArgs, invited: Invited, printer: &Printer) -> anyhow::Result<ExitCode> {
    // All that can be wrong with the command line is found before anything is started.
    let given = invited.clusters(args).await?;
    let rates = args.bandwidth.as_deref().map(read).transpose()?;
    if args.method.needs_bandwidths() && rates.is_none() {
        let method = args.method;
        return Err(Usage::of(format!(
            "{method} plans with the rates between clusters; give them by --bandwidth FILE"
        )));
    }
    check_source(args)?;
    let mut config = args.session.config()?;
    let mut destination = args.to.clone();
    let (root, name) = split_destination(&args.to);
    let purpose = ssh::Purpose { root: &root, allow_programs: false };
    let started = args.ssh.start(&invited.party.receivers, purpose).await?;
    if let Some(started) = &started {
        config.token = Some(started.token.clone());
    }
    if invited.attend || started.is_some() {
        destination = name;
    } else if destination.has_root() {
        let to = destination.display();
        return Err(Usage::of(format!(
            "--to {to}: paths start at the folder that the servers serve; leave out the first `/`"
        )));
    }
    let addresses = match &started {
        Some(started) => started.addresses.clone(),
        None => invited.party.receivers.iter().map(|e| Ok(e.address())).collect(),
    };
    let attendants = match invited.attend {
        true => Some(gather(args, &addresses, &config, printer).await),
        false => None,
    };
    let ready = get_ready(args, invited, addresses, given, rates, &config).await?;
    if args.plan {
        output::plan(args, &ready, printer)?;
        end(attendants, started, |_| Verdict::Complete).await;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        method: args.method,
        destination,
        recursive: args.recursive,
        bandwidths: ready.bandwidths.clone(),
        config,
        advertise: args.advertise.clone(),
        piece_bytes: args.piece_bytes,
        ..Options::default()
    };
    let (hosts, root_cluster) = (ready.hosts(), ready.clusters.of[0]);
    let shown =
        progress::show(options.progress.clone(), ready.clusters.names.clone(), args.progress, printer.is_json());
    let done = broadcast_path(&args.source, &hosts, root_cluster, &options).await;
    drop(shown);
    let places: Vec<usize> = ready.present().collect();
    let verdict = |receiver: usize| match &done {
        Err(error) => Verdict::Failed(error.to_string()),
        Ok(summary) => match places.iter().position(|p| *p == receiver).and_then(|at| summary.hosts.get(at)) {
            Some(host) if host.outcome == Outcome::Complete => Verdict::Complete,
            Some(multirail::multicast::HostSummary { outcome: Outcome::Failed(why), .. }) => {
                Verdict::Failed(why.clone())
            }
            _ => Verdict::Failed("it was left out".to_owned()),
        },
    };
    end(attendants, started, verdict).await;
    Ok(output::summary(args, &ready, &done?, printer))
}

/// Has the hosts that were started by the same command stay until the end.
async fn gather(
    args: &BcastArgs,
    addresses: &[Result<String, String>],
    config: &Config,
    printer: &Printer,
) -> Attendants {
    let hosts: Vec<String> = addresses.iter().flatten().cloned().collect();
    let attendants = Attendants::gather(&hosts, config, Duration::from_secs(args.wait.into())).await;
    for (host, why) in attendants.absent() {
        printer.note(format!("warning: {} is not there (yet): {why}", hosts[*host]));
    }
    attendants
}

/// Lets go of the servers that were started for this broadcast.
async fn end(attendants: Option<Attendants>, started: Option<ssh::Servers>, verdict: impl Fn(usize) -> Verdict) {
    if let Some(attendants) = attendants {
        let count = attendants.count();
        attendants.dismiss((0..count).map(verdict)).await;
    }
    if let Some(started) = started {
        started.end().await;
    }
}

async fn get_ready(
    args: &BcastArgs,
    invited: Invited,
    addresses: Vec<Result<String, String>>,
    given: Option<Clustering>,
    rates: Option<String>,
    config: &Config,
) -> anyhow::Result<Ready> {
    let hosts: Vec<String> = addresses.iter().flatten().cloned().collect();
    if let (true, Some(Err(why))) = (hosts.is_empty(), addresses.first()) {
        anyhow::bail!("no host can be reached; the first one: {why}");
    }
    let found = match given.is_none() || args.plan {
        true => Some(discover(&hosts, config).await),
        false => None,
    };
    let clusters = match (&given, &found) {
        (Some(given), _) => given.clone(),
        (None, found) => Clustering::from_numbers(found.as_ref().map_or(&[][..], |f| &f.clusters)),
    };
    let places = addresses.iter().enumerate().filter(|(_, a)| a.is_ok()).map(|(receiver, _)| receiver + 1);
    let present = match &given {
        Some(given) => given.of_some(std::iter::once(0).chain(places)),
        None => clusters.clone(),
    };
    let bandwidths = match rates {
        None => None,
        Some(text) => {
            let all = parse_link_rates(&text, &clusters).map_err(|error| {
                Usage::of(format!(
                    "--bandwidth {}: {error}",
                    args.bandwidth.as_deref().unwrap_or(Path::new("")).display()
                ))
            })?;
            let rows = present.names.iter().map(|n| clusters.names.iter().position(|c| c == n).unwrap_or(0));
            let rows: Vec<usize> = rows.collect();
            let link_bytes_s = rows.iter().map(|from| rows.iter().map(|to| all[*from][*to]).collect()).collect();
            Some(Bandwidths::of_links(link_bytes_s))
        }
    };
    Ok(Ready { invited, addresses, clusters: present, clusters_given: given.is_some(), found, bandwidths })
}

/// The folder that a server shall serve, and the destination below it: `/a/b` is `b` in `/a`, `/a/b/` is all of `/a/b`.
fn split_destination(to: &Path) -> (PathBuf, PathBuf) {
    use std::os::unix::ffi::OsStrExt;
    let folder = to.as_os_str().as_bytes().ends_with(b"/");
    match (to.parent(), to.file_name()) {
        (Some(parent), Some(name)) if !folder => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            (parent.to_owned(), name.into())
        }
        _ => (to.to_owned(), PathBuf::new()),
    }
}

fn check_source(args: &BcastArgs) -> anyhow::Result<()> {
    let source = args.source.display();
    let meta = std::fs::metadata(&args.source).with_context(|| format!("cannot read {source}"))?;
    if meta.is_dir() && !args.recursive {
        return Err(Usage::of(format!("{source} is a directory; add -r")));
    }
    Ok(())
}

/// A file that the command line names.
fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).map_err(|error| Usage::of(format!("cannot read {}: {error}", path.display())))
}

fn non_empty(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str().is_empty() { Err("an empty path") } else { Ok(path) }
}

fn piece(text: &str) -> Result<u32, String> {
    match multirail_proto::units::parse_size(text) {
        Ok(bytes @ 0x4000..=0x10_0000) if bytes.is_power_of_two() => Ok(bytes as u32),
        Ok(_) => Err("a power of two from 16k to 1m".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations() {
        for (to, root, name) in [
            ("/a/b", "/a", "b"),
            ("/a", "/", "a"),
            ("/", "/", ""),
            ("/a/b/", "/a/b/", ""),
            ("b", ".", "b"),
            ("a/b", "a", "b"),
            (".", ".", ""),
            ("..", "..", ""),
        ] {
            assert_eq!(split_destination(Path::new(to)), (root.into(), name.into()), "{to}");
        }
    }

    #[test]
    fn pieces() {
        assert_eq!((piece("16k"), piece("1m")), (Ok(16 << 10), Ok(1 << 20)));
        assert!(["8k", "2m", "24k", "x"].iter().all(|text| piece(text).is_err()));
    }
}
