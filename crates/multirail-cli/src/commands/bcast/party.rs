//! The hosts of the broadcast, from the command line, Slurm or Kubernetes.

use super::args::{BcastArgs, read};
use crate::usage::Usage;
use anyhow::Context;
use futures_util::StreamExt;
use multirail::multicast::hosts::{
    Clustering, Entry, EntryPosition, Party, Subnet, kubernetes, parse_file, parse_list, slurm,
};
use multirail::rails::local_ports;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// The interval between two lookups of a name that does not have all hosts yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The names that are looked up at once.
const LOOKED_UP_AT_ONCE: usize = 64;

/// The role of this process.
pub enum Role {
    /// It has the data.
    Root(Invited),
    /// It serves until the broadcast is over.
    Receiver,
    /// Another process on this node has the role.
    Spare,
}

/// The root and the hosts that receive.
pub struct Invited {
    pub party: Party,
    /// Whether the same command started the receivers for this broadcast.
    pub attend: bool,
}

/// Determines the role from the command line, or else from the environment.
pub async fn role(args: &BcastArgs) -> anyhow::Result<Role> {
    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let Some(hosts) = &args.hosts else {
        let task = slurm::Task::from_env(&env).map_err(Usage::of)?;
        if let (None, Some(_)) = (&task, args.joining()) {
            return Ok(Role::Root(Invited { party: Party::alone(), attend: false }));
        }
        let task = task.ok_or_else(|| {
            Usage::of(
                "no hosts are given; use --hosts FILE or --hosts ADDRESS,ADDRESS,..., or run the command with srun in a Slurm job",
            )
        })?;
        return match task.role {
            slurm::Role::Spare => Ok(Role::Spare),
            slurm::Role::Receiver => Ok(Role::Receiver),
            slurm::Role::Root => {
                let entries = task.nodes.iter().enumerate();
                let entries =
                    entries.map(|(number, node)| Entry::named(node, EntryPosition::Item(number + 1))).collect();
                let party = Party::with_first(with_port(entries, args.port)).map_err(Usage::of)?;
                Ok(Role::Root(Invited { party, attend: true }))
            }
        };
    };
    let (names, addresses) = own().await?;
    let (entries, attend) = match kubernetes::Service::parse(hosts) {
        Some(service) => {
            let service = service.map_err(|error| Usage::of(format!("--hosts: {error}")))?;
            let role = kubernetes::role(&env, names.first().map_or("", String::as_str));
            if role == Some(kubernetes::Role::Receiver) {
                return Ok(Role::Receiver);
            }
            (look_up_all(&service, args).await?, role.is_some())
        }
        None if hosts.contains('/') || Path::new(hosts).is_file() => {
            let text = read(Path::new(hosts))?;
            (parse_file(&text).map_err(|error| Usage::of(format!("{hosts}: {error}")))?, false)
        }
        None => {
            let hint = "; there is no file of that name";
            let hint = if hosts.contains(',') { "" } else { hint };
            (parse_list(hosts).map_err(|error| Usage::of(format!("--hosts: {error}{hint}")))?, false)
        }
    };
    let party = Party::new(with_port(entries, args.port), args.clusters.as_deref(), &names, &addresses);
    Ok(Role::Root(Invited { party: party.map_err(Usage::of)?, attend }))
}

impl Invited {
    /// The given clusters: of the root, then of the receivers.
    pub async fn clusters(&self, args: &BcastArgs) -> anyhow::Result<Option<Clustering>> {
        if let Some(text) = &args.clusters {
            return Ok(Some(self.party.clusters_of_list(text).map_err(Usage::of)?));
        }
        let Some(subnet) = args.cluster_by else { return self.party.clusters_of_entries().map_err(Usage::of) };
        let mut addresses = Vec::with_capacity(self.party.receivers.len());
        for entry in &self.party.receivers {
            addresses.push(look_up(&entry.address()).await?);
        }
        let root = match self.party.root.name.parse() {
            Ok(address) => address,
            Err(_) => address_towards(addresses[0])?,
        };
        Ok(Some(Party::clusters_by_subnet(root, &addresses, subnet)))
    }
}

/// A guess at the clusters of this host and of `hosts` (`name:port`): hosts of one subnet are near each other.
/// A name without an address is alone.
pub async fn guess_clusters(hosts: &[String]) -> Clustering {
    let found = hosts.iter().map(|host| async move { look_up(host).await.ok() });
    let found: Vec<Option<IpAddr>> = futures_util::stream::iter(found).buffered(LOOKED_UP_AT_ONCE).collect().await;
    let subnet = Subnet { bits: None };
    // This host may have an address in several subnets. It belongs to the first one that has another host.
    let own = |address: &IpAddr| address_towards(*address).ok();
    let shares = |address: &&IpAddr| {
        own(address).is_some_and(|own| Clustering::by_subnet(&[own, **address], subnet).names.len() == 1)
    };
    let root = found.iter().flatten().find(shares).or(found.iter().flatten().next()).and_then(own);
    let mut alone = 0;
    let numbers = std::iter::once(root).chain(found).map(|address| match address {
        Some(address) => Clustering::by_subnet(&[address], subnet).names.remove(0),
        None => {
            alone += 1;
            alone.to_string()
        }
    });
    let by_name = Clustering::from_names(numbers);
    Clustering::from_numbers(&by_name.of)
}

fn with_port(mut entries: Vec<Entry>, port: Option<u16>) -> Vec<Entry> {
    entries.iter_mut().for_each(|entry| entry.port = entry.port.or(port));
    entries
}

/// This host's names and addresses.
async fn own() -> anyhow::Result<(Vec<String>, Vec<IpAddr>)> {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").context("reading this host's name")?;
    let hostname = hostname.trim();
    let short = hostname.split('.').next().unwrap_or_default();
    // In a list, `localhost` is a server on this machine, not this host.
    let names = [hostname, short].into_iter().filter(|n| !n.is_empty() && *n != "localhost").map(str::to_owned);
    let ports = local_ports().await.context("reading this host's addresses")?;
    let left_out = ports.left_out.iter().filter_map(|l| l.address);
    let addresses = ports.ports.iter().map(|p| p.address).chain(left_out).map(|a| a.to_canonical());
    Ok((names.collect(), addresses.collect()))
}

async fn look_up(address: &str) -> anyhow::Result<IpAddr> {
    let found = tokio::net::lookup_host(address).await;
    let found = found.with_context(|| format!("{address} has no address, and --cluster-by needs one"))?;
    found.map(|a| a.ip().to_canonical()).next().with_context(|| format!("{address} has no address"))
}

/// The hosts behind a name. Waits until there are as many as required.
async fn look_up_all(service: &kubernetes::Service, args: &BcastArgs) -> anyhow::Result<Vec<Entry>> {
    let end = Instant::now() + Duration::from_secs(args.wait.into());
    let wanted = args.wait_hosts.unwrap_or(1);
    loop {
        let found = tokio::net::lookup_host((service.name.as_str(), 0)).await;
        let found = found.map(|found| found.map(|a| a.ip()).collect::<Vec<_>>());
        let count = found.as_ref().map_or(0, Vec::len);
        if count >= wanted || Instant::now() >= end {
            let found = found.with_context(|| format!("looking up {}", service.name))?;
            anyhow::ensure!(
                count >= wanted,
                "{} has {count} addresses, but --wait-hosts requires {wanted}; do the others run, and does the service publish \
                 addresses that are not ready?",
                service.name
            );
            return service.entries(found).map_err(|error| anyhow::anyhow!("{}: {error}", service.name));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The address from which this host reaches another. Nothing is sent.
fn address_towards(other: IpAddr) -> anyhow::Result<IpAddr> {
    let any: IpAddr = match other {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0)).and_then(|s| s.connect((other, 9)).map(|()| s));
    let own = socket.and_then(|s| s.local_addr()).with_context(|| format!("there is no route to {other}"))?;
    Ok(own.ip())
}
