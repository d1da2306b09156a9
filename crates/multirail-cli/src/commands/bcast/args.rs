//! The options of `multirail bcast`.

use super::super::SessionArgs;
use crate::ssh::SshArgs;
use crate::usage::Usage;
use clap::builder::{PathBufValueParser, TypedValueParser};
use multirail::multicast::hosts::Subnet;
use multirail::multicast::{Joining, Method};
use multirail_proto::units::parse_duration;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Send a file or a directory to many hosts, over all links between all clusters
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  multirail bcast model.bin --to models/ --hosts node1,node2,node3 --token-file token\n  \
    multirail bcast -r dataset/ --to /scratch/data --hosts hosts.txt --ssh\n  \
    srun --ntasks-per-node=1 multirail bcast model.bin --to /scratch/model.bin --token-file ~/token\n  \
    multirail bcast model.bin --ticket\n\n\
    A hosts file has lines `ADDRESS[:PORT] [cluster=NAME]`. It may list this host, which already has the data. \
    Clusters that are not given are measured. Exit code 1: at least one host is incomplete; the summary says which and why."
)]
pub struct BcastArgs {
    /// The file or directory to send
    #[arg(value_name = "SRC", value_parser = PathBufValueParser::new().try_map(non_empty))]
    pub(super) source: PathBuf,
    /// The destination, as with multirail cp: below the folder that the servers serve; with --ssh, Slurm and
    /// Kubernetes any path
    #[arg(long, value_name = "DEST", required_unless_present = "ticket",
        value_parser = PathBufValueParser::new().try_map(non_empty))]
    to: Option<PathBuf>,
    /// The hosts that receive: a file, a list ADDRESS[:PORT],..., or dns:NAME[:PORT] [default: the
    /// nodes of the Slurm job]
    #[arg(long, value_name = "FILE|LIST")]
    pub(super) hosts: Option<String>,
    /// Let further hosts join: print a ticket for `multirail fetch`, and stay for them
    #[arg(long)]
    ticket: bool,
    /// How long to stay after the last host is complete, as 90s, 10m or 2h [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", requires = "ticket", value_parser = parse_duration)]
    seed_for: Option<Duration>,
    /// The clusters of hosts that are near each other: "a,b;c,d", or with names "x=a,b;y=c,d"
    #[arg(long, value_name = "LIST", conflicts_with = "cluster_by")]
    pub(super) clusters: Option<String>,
    /// Make each subnet a cluster: `subnet` (24 bits of IPv4, 64 of IPv6) or subnet/BITS
    #[arg(long, value_name = "subnet[/BITS]")]
    pub(super) cluster_by: Option<Subnet>,
    /// Who sends what to whom: adaptive, mob, bittorrent, balanced, fpfr, magpie, chain or flat
    #[arg(long, value_name = "NAME", default_value_t)]
    pub(super) method: Method,
    /// A file for balanced and fpfr: lines A-B=RATE (between clusters) and HOST=RATE (between a host and other
    /// clusters; *=RATE: all hosts without a line)
    #[arg(long, value_name = "FILE")]
    pub(super) bandwidth: Option<PathBuf>,
    /// Send directories and their content
    #[arg(short, long)]
    pub(super) recursive: bool,
    /// On each host, write each file and its name to disk before the host counts as complete
    #[arg(long)]
    pub(super) fsync: bool,
    /// Measure, show the hosts, the clusters and the links between them, and stop
    #[arg(long)]
    pub(super) plan: bool,
    #[command(flatten)]
    pub(super) ssh: SshArgs,
    /// The port of hosts whose entry has none [default: 7717; with --ssh any]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: Option<u16>,
    /// The address at which other hosts reach this one [default: the address from which this host
    /// reaches each of them]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub(super) advertise: Option<String>,
    /// Under Slurm and in Kubernetes: how long to wait for hosts that are being started, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub(super) wait: u32,
    /// In Kubernetes: the number of hosts to wait for, including this one [default: those that the
    /// name has at first]
    #[arg(long, value_name = "N")]
    pub(super) wait_hosts: Option<usize>,
    /// Show progress even if stderr is not a terminal; with --json as objects on stdout
    #[arg(long)]
    pub(super) progress: bool,
    /// The size of a piece in bytes, a power of two from 16k to 1m [default: one that makes some
    /// thousand pieces]
    #[arg(long, value_name = "BYTES", value_parser = piece)]
    pub(super) piece_bytes: Option<u32>,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

impl BcastArgs {
    /// Where the hosts put the data. With a ticket, there need not be any hosts that are told.
    pub(super) fn to(&self) -> &Path {
        self.to.as_deref().unwrap_or(Path::new(""))
    }

    /// Whether hosts may join by a ticket.
    pub(super) fn joining(&self) -> Option<Joining> {
        self.ticket.then(|| Joining::new(self.seed_for))
    }
}

/// Splits a destination into the folder that a server serves and the path below it: `/a/b` is `b`
/// in `/a`, and `/a/b/` is all of `/a/b`.
pub(in crate::commands) fn split_destination(to: &Path) -> (PathBuf, PathBuf) {
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

/// Reads a file that the command line names.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
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
