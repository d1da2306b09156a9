//! The output of `bcast`: the plan, and the outcome of each host.

use super::args::BcastArgs;
use super::ready::Ready;
use crate::escape::one_line;
use crate::printer::Printer;
use multirail::multicast::hosts::grouping::Decided;
use multirail::multicast::{HostSummary, Outcome, Summary, Ticket};
use multirail_proto::multicast::Members;
use multirail_proto::multicast::plan::bound;
use multirail_proto::units::{format_size, rate_mbit_s};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// The most hosts that are listed as text. JSON output lists all.
const MAX_LINES: usize = 100;

/// Bytes from one cluster to another.
#[derive(Debug, Clone, Serialize)]
pub struct Wan {
    pub from: String,
    pub to: String,
    pub bytes: u64,
}

/// The names of all clusters: the given ones. Others have numbers from 1.
pub fn cluster_names(given: Option<&[String]>, count: usize) -> Vec<String> {
    let given = given.unwrap_or_default();
    let others = (given.len() + 1..=count).map(|number| number.to_string());
    given.iter().cloned().chain(others).collect()
}

/// The traffic between clusters, without pairs that exchanged nothing.
pub fn wan(clusters: &[String], bytes: &[Vec<u64>]) -> Vec<Wan> {
    let mut pairs = Vec::new();
    for (from, row) in clusters.iter().zip(bytes) {
        for (to, bytes) in clusters.iter().zip(row) {
            if from != to && *bytes > 0 {
                pairs.push(Wan { from: from.clone(), to: to.clone(), bytes: *bytes });
            }
        }
    }
    pairs
}

/// Prints the ticket, and how to use it.
pub fn ticket(ticket: &Ticket, printer: &Printer) {
    #[derive(Serialize)]
    struct TicketRow {
        ticket: String,
    }
    printer.row(&TicketRow { ticket: ticket.to_string() }, |row| row.ticket.clone());
    if !printer.is_json() {
        let who = match ticket.has_secret() {
            true => "everyone who has this ticket gets the data",
            false => "a host that has the ticket and the token gets the data",
        };
        printer.note(format!("on another host: multirail fetch TICKET; {who}"));
    }
}

#[derive(Serialize)]
struct SummaryRow {
    method: String,
    bytes: u64,
    piece_bytes: u32,
    pieces: u32,
    /// From the start of the command until the last complete host had reported.
    seconds: f64,
    /// The part for reading and hashing the source.
    prepared_seconds: f64,
    /// The part from the first invitation until hosts had answered.
    setup_seconds: f64,
    rate_mbit_s: f64,
    complete: usize,
    failed: usize,
    root_cluster: Option<String>,
    hosts: Vec<HostRow>,
    /// The hosts that joined by a ticket. They are not counted above.
    joined: Vec<HostRow>,
    wan: Vec<Wan>,
    /// How many copies of the data crossed from one cluster to another.
    wan_copies: f64,
}

#[derive(Serialize)]
struct HostRow {
    address: String,
    cluster: Option<String>,
    complete: bool,
    seconds: Option<f64>,
    held_bytes: u64,
    resumed_bytes: u64,
    reason: Option<String>,
    complaints: Vec<String>,
}

/// Prints the outcome of the broadcast; returns exit code 0 if every host is complete.
pub fn summary(args: &BcastArgs, ready: &Ready, summary: &Summary, printer: &Printer) -> ExitCode {
    let names = &cluster_names(ready.given_names(), summary.wan_bytes.len());
    let (joined, given): (Vec<&HostSummary>, Vec<_>) = summary.hosts.iter().partition(|host| host.has_joined_later);
    let mut told = given.into_iter();
    let hosts: Vec<HostRow> = (ready.addresses.iter().zip(&ready.invited.party.receivers))
        .map(|(address, entry)| match address {
            Err(why) => HostRow::left_out(entry.shown(), why),
            Ok(address) => match told.next() {
                None => HostRow::left_out(address.clone(), "its outcome is unknown; please report this"),
                Some(host) => HostRow::new(host, names),
            },
        })
        .collect();
    let joined: Vec<HostRow> = joined.into_iter().map(|host| HostRow::new(host, names)).collect();
    let wan = wan(names, &summary.wan_bytes);
    let crossed: u64 = wan.iter().map(|w| w.bytes).sum();
    let complete = hosts.iter().filter(|h| h.complete).count();
    let seconds = summary.elapsed.as_secs_f64();
    let row = SummaryRow {
        method: args.method.to_string(),
        bytes: summary.total_bytes,
        piece_bytes: summary.piece_bytes,
        pieces: summary.pieces,
        seconds,
        prepared_seconds: summary.prepared.as_secs_f64(),
        setup_seconds: summary.setup.as_secs_f64(),
        rate_mbit_s: rate_mbit_s(summary.total_bytes, seconds.max(1e-9)),
        complete,
        failed: hosts.len() - complete,
        root_cluster: names.get(summary.root_cluster as usize).cloned(),
        hosts,
        joined,
        wan_copies: crossed as f64 / summary.total_bytes.max(1) as f64,
        wan,
    };
    if !printer.is_json() {
        row.explain(printer);
    }
    printer.row(&row, SummaryRow::line);
    if row.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

impl HostRow {
    fn new(host: &HostSummary, names: &[String]) -> Self {
        Self {
            address: host.address.clone(),
            cluster: names.get(host.cluster as usize).cloned(),
            complete: host.outcome == Outcome::Complete,
            seconds: host.complete_after.map(|after| after.as_secs_f64()),
            held_bytes: host.held_bytes,
            resumed_bytes: host.resumed_bytes,
            reason: match &host.outcome {
                Outcome::Complete => None,
                Outcome::Failed(why) => Some(why.clone()),
            },
            complaints: host.complaints.clone(),
        }
    }

    fn left_out(address: String, why: &str) -> Self {
        Self {
            address,
            cluster: None,
            complete: false,
            seconds: None,
            held_bytes: 0,
            resumed_bytes: 0,
            reason: Some(why.to_owned()),
            complaints: Vec::new(),
        }
    }
}

impl SummaryRow {
    /// Lists incomplete hosts and the complaints about hosts.
    fn explain(&self, printer: &Printer) {
        let joined = self.joined.iter().filter_map(|host| Some((host, host.reason.as_ref()?)));
        for (host, why) in joined.take(MAX_LINES) {
            printer.note(format!("warning: {}, which had joined, is incomplete: {why}", host.address));
        }
        let failed = self.hosts.iter().filter_map(|host| Some((host, host.reason.as_ref()?)));
        for (host, why) in failed.take(MAX_LINES) {
            let held = match host.held_bytes {
                0 => String::new(),
                bytes => format!(" (it has {}; the same command continues from there)", format_size(bytes)),
            };
            printer.note(format!("error: {} is incomplete{held}: {why}", host.address));
        }
        if self.failed > MAX_LINES {
            printer.note(format!("... and {} more", self.failed - MAX_LINES));
        }
        for (host, complaint) in
            self.hosts.iter().chain(&self.joined).flat_map(|h| h.complaints.iter().map(move |c| (h, c))).take(MAX_LINES)
        {
            printer.note(format!("warning: {}: {complaint}", host.address));
        }
    }

    fn line(&self) -> String {
        let mut line = format!(
            "{} of {} hosts are complete: {} in {:.1} s, {:.0} Mbit/s by {}",
            self.complete,
            self.hosts.len(),
            format_size(self.bytes),
            self.seconds,
            self.rate_mbit_s,
            self.method
        );
        if !self.joined.is_empty() {
            let complete = self.joined.iter().filter(|host| host.complete).count();
            line += &format!("; of {} that joined, {complete} are complete", self.joined.len());
        }
        if !self.wan.is_empty() {
            line += &format!("; {:.2} copies between clusters", self.wan_copies);
        }
        line
    }
}

#[derive(Serialize)]
struct PlanRow {
    method: String,
    root: PlanHost,
    hosts: Vec<PlanHost>,
    clusters: Vec<PlanCluster>,
    decided_by: &'static str,
    between: Vec<Between>,
    bound_mbit_s: Option<f64>,
}

#[derive(Serialize)]
struct PlanHost {
    address: String,
    cluster: Option<String>,
    reason: Option<String>,
}

#[derive(Serialize)]
struct PlanCluster {
    name: String,
    hosts: usize,
}

/// The medians of what was measured between the hosts of two clusters, or of one.
#[derive(Serialize)]
struct Between {
    from: String,
    to: String,
    pairs: usize,
    rtt_us: f64,
    rate_mbit_s: Option<f64>,
}

/// Prints the hosts, the clusters and the measured links between them.
pub fn plan(args: &BcastArgs, ready: &Ready, printer: &Printer) -> anyhow::Result<()> {
    let (names, of) = (&ready.clusters.names, &ready.clusters.of);
    let name = |member: usize| names[of[member] as usize].clone();
    let unreachable = |member: usize| {
        let found = ready.found()?;
        found.unreachable.iter().find(|(host, _)| *host as usize == member).map(|(_, why)| why.clone())
    };
    let mut member = 0;
    let hosts = (ready.addresses.iter().zip(&ready.invited.party.receivers)).map(|(address, entry)| match address {
        Err(why) => PlanHost { address: entry.shown(), cluster: None, reason: Some(why.clone()) },
        Ok(address) => {
            member += 1;
            PlanHost { address: address.clone(), cluster: Some(name(member)), reason: unreachable(member) }
        }
    });
    let hosts: Vec<PlanHost> = hosts.collect();
    let count = |cluster: usize| of.iter().filter(|c| **c as usize == cluster).count();
    let clusters = names.iter().enumerate();
    let decided = ready.found().map(|f| f.decided);
    let row = PlanRow {
        method: args.method.to_string(),
        root: PlanHost { address: ready.invited.party.root.shown(), cluster: Some(name(0)), reason: None },
        clusters: clusters.map(|(number, name)| PlanCluster { name: name.clone(), hosts: count(number) }).collect(),
        decided_by: match (ready.clusters_given, decided) {
            (true, _) | (_, None) => "given",
            (_, Some(Decided::RoundTrips)) => "round-trips",
            (_, Some(Decided::Rates)) => "rates",
            (_, Some(Decided::Alike)) => "alike",
        },
        between: between(ready),
        bound_mbit_s: match &ready.bandwidths {
            None => None,
            Some(given) => {
                let members = Members::new(of.clone(), 0)?;
                Some(bound::bound_bytes_s(&members, given) * 8.0 / 1e6)
            }
        },
        hosts,
    };
    printer.row(&row, PlanRow::text);
    Ok(())
}

fn between(ready: &Ready) -> Vec<Between> {
    let (names, of) = (&ready.clusters.names, &ready.clusters.of);
    let Some(found) = ready.found() else { return Vec::new() };
    let mut rows = Vec::new();
    for from in 0..names.len() as u32 {
        for to in from..names.len() as u32 {
            let edges = found.edges.iter().filter(|e| {
                let (one, other) = (of[e.from as usize], of[e.to as usize]);
                (one.min(other), one.max(other)) == (from, to)
            });
            let edges: Vec<_> = edges.collect();
            let Some(rtt_us) = median(edges.iter().map(|e| e.rtt_us).collect()) else { continue };
            let rate = median(edges.iter().filter_map(|e| e.rate_bytes_s).collect());
            rows.push(Between {
                from: names[from as usize].clone(),
                to: names[to as usize].clone(),
                pairs: edges.len(),
                rtt_us,
                rate_mbit_s: rate.map(|r| r * 8.0 / 1e6),
            });
        }
    }
    rows
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl PlanRow {
    fn text(&self) -> String {
        let mut lines = vec![format!("method {}, clusters by {}", self.method, self.decided_by)];
        for cluster in &self.clusters {
            let hosts = self.hosts.iter().filter(|h| h.cluster.as_ref() == Some(&cluster.name));
            let mut hosts: Vec<String> = hosts.take(MAX_LINES).map(|h| h.address.clone()).collect();
            if self.root.cluster.as_ref() == Some(&cluster.name) {
                hosts.insert(0, format!("{} (root)", self.root.address));
            }
            lines.push(format!("cluster {}, {} hosts: {}", cluster.name, cluster.hosts, hosts.join(" ")));
        }
        if !self.between.is_empty() {
            lines.push(format!("{:<20} {:<20} {:>7} {:>10} {:>13}", "from", "to", "pairs", "RTT us", "rate Mbit/s"));
        }
        for row in &self.between {
            let rate = row.rate_mbit_s.map_or_else(|| "-".to_owned(), |r| format!("{r:.1}"));
            lines.push(format!("{:<20} {:<20} {:>7} {:>10.0} {rate:>13}", row.from, row.to, row.pairs, row.rtt_us));
        }
        if let Some(bound) = self.bound_mbit_s {
            lines.push(format!("no method is faster than {bound:.1} Mbit/s over these links"));
        }
        for (host, why) in self.hosts.iter().filter_map(|h| Some((h, h.reason.as_ref()?))).take(MAX_LINES) {
            lines.push(format!("{} is absent: {}", host.address, one_line(why)));
        }
        lines.join("\n")
    }
}

/// Formats a time as `12.3 s`, or in minutes and hours.
pub fn format_time(time: Duration) -> String {
    match time.as_secs() {
        0..=59 => format!("{:.0} s", time.as_secs_f64()),
        seconds @ 60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}
