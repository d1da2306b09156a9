//! The root of a broadcast.

use super::args::{BcastArgs, read, split_destination};
use super::output;
use super::party::{Invited, guess_clusters};
use super::progress;
use super::ready::{ClustersFrom, Ready};
use crate::printer::Printer;
use crate::ssh;
use crate::usage::Usage;
use anyhow::Context;
use multirail::Config;
use multirail::multicast::attend::{Attendants, Verdict};
use multirail::multicast::discover::discover;
use multirail::multicast::hosts::{BandwidthsError, Clustering, Entry, parse_bandwidths};
use multirail::multicast::{Bandwidths, Joining, Method, Options, Outcome, broadcast_path};
use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Prepares and runs the broadcast.
pub(super) async fn run(
    args: &BcastArgs,
    invited: Invited,
    printer: &Printer,
    (began, joining): (Instant, Option<Joining>),
) -> anyhow::Result<ExitCode> {
    // Errors of the command line are found before anything is started.
    let given = invited.clusters(args).await?;
    let rates = args.bandwidth.as_deref().map(read).transpose()?;
    if args.method.needs_bandwidths() && rates.is_none() {
        let method = args.method;
        return Err(Usage::of(format!(
            "{method} requires the rates between clusters; give them with --bandwidth FILE"
        )));
    }
    check_source(args)?;
    let mut config = args.session.config()?;
    let mut destination = args.to().to_owned();
    let (root, name) = split_destination(args.to());
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
            "--to {to}: the path is relative to the folder that the servers serve; remove the first `/`"
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
    let options = Options::new()
        .method(args.method)
        .destination(destination)
        .recursive(args.recursive)
        .sync(args.fsync)
        .bandwidths(ready.bandwidths.clone())
        .find_clusters(matches!(ready.source, ClustersFrom::Addresses))
        .joining(joining.clone())
        .began(began)
        .config(config)
        .advertise(args.advertise.clone())
        .piece_bytes(args.piece_bytes);
    let (hosts, root_cluster) = (ready.hosts(), ready.clusters.of[0]);
    let shown = progress::show(
        options.progress.clone(),
        ready.given_names().map(<[_]>::to_vec),
        args.progress,
        printer.is_json(),
    );
    let broadcast = broadcast_path(&args.source, &hosts, root_cluster, &options);
    let done = match &joining {
        Some(joining) => {
            let tell = async {
                output::ticket(&joining.ticket().await, printer);
                std::future::pending::<Infallible>().await
            };
            tokio::select! {
                done = broadcast => done,
                never = tell => match never {},
            }
        }
        None => broadcast.await,
    };
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

/// Asks the hosts that the same command started to stay until the end.
async fn gather(
    args: &BcastArgs,
    addresses: &[Result<String, String>],
    config: &Config,
    printer: &Printer,
) -> Attendants {
    let hosts: Vec<String> = addresses.iter().flatten().cloned().collect();
    let attendants = Attendants::gather(&hosts, config, Duration::from_secs(args.wait.into())).await;
    for (host, why) in attendants.absent() {
        printer.note(format!("warning: {} is absent so far: {why}", hosts[*host]));
    }
    attendants
}

/// Ends the servers that were started for this broadcast.
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
        anyhow::bail!("no host can be reached; the first error: {why}");
    }
    let clusters_given = given.is_some();
    let source = match clusters_given {
        true if !args.plan => ClustersFrom::User,
        false if !args.plan && args.method == Method::Adaptive => ClustersFrom::Addresses,
        _ => ClustersFrom::Measurements(discover(&hosts, config).await),
    };
    let clusters = match (&given, &source) {
        (Some(given), _) => given.clone(),
        (None, ClustersFrom::Measurements(found)) => Clustering::from_numbers(&found.clusters),
        (None, _) => guess_clusters(&hosts).await,
    };
    let places = addresses.iter().enumerate().filter(|(_, a)| a.is_ok()).map(|(receiver, _)| receiver + 1);
    let present = match &given {
        Some(given) => given.of_some(std::iter::once(0).chain(places)),
        None => clusters.clone(),
    };
    let bandwidths = match rates {
        None => None,
        Some(text) => {
            let hosts = std::iter::once(&invited.party.root).chain(&invited.party.receivers);
            let there = std::iter::once(true).chain(addresses.iter().map(Result::is_ok));
            let hosts: Vec<(Entry, bool)> = hosts.cloned().zip(there).collect();
            let read = read_bandwidths(&text, &clusters, &hosts, &present).map_err(|error| {
                let path = args.bandwidth.as_deref().unwrap_or(Path::new(""));
                Usage::of(format!("--bandwidth {}: {error}", path.display()))
            });
            Some(read?)
        }
    };
    Ok(Ready { invited, addresses, clusters: present, clusters_given, source, bandwidths })
}

/// The bandwidths of the hosts that are there and of their clusters. The file may have those of all.
fn read_bandwidths(
    text: &str,
    clusters: &Clustering,
    hosts: &[(Entry, bool)],
    present: &Clustering,
) -> Result<Bandwidths, BandwidthsError> {
    let entries: Vec<Entry> = hosts.iter().map(|(host, _)| host.clone()).collect();
    let all = parse_bandwidths(text, clusters, &entries)?;
    let rows = present.names.iter().filter_map(|name| clusters.names.iter().position(|c| c == name));
    let rows: Vec<usize> = rows.collect();
    let link_bytes_s = rows.iter().map(|from| rows.iter().map(|to| all.link_bytes_s[*from][*to]).collect()).collect();
    let access_bytes_s = all.access_bytes_s.map(|rates| {
        let there = rates.into_iter().zip(hosts).filter(|(_, (_, is_there))| *is_there);
        there.map(|(rate, _)| rate).collect()
    });
    Ok(Bandwidths { link_bytes_s, access_bytes_s })
}

fn check_source(args: &BcastArgs) -> anyhow::Result<()> {
    let source = args.source.display();
    let meta = std::fs::metadata(&args.source).with_context(|| format!("cannot read {source}"))?;
    if meta.is_dir() && !args.recursive {
        return Err(Usage::of(format!("{source} is a directory; add -r")));
    }
    Ok(())
}
