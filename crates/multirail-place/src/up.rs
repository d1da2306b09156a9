//! The start of placement.

use crate::down::undo;
use crate::kernel::hook::{self, Hooks};
use crate::kernel::ports::{self, PortInfo};
use crate::kernel::{bpffs, netlink, rights, sysctl};
use crate::netns::{Netns, private_file};
use crate::program::{self, LoadedProgram};
use crate::saved_state::{PeersFrom, SavedState};
use crate::{Error, Policy, Result};
use multirail_net::Token;
use multirail_proto::placement::Mac;
use multirail_proto::placement::hosts::{HostPort, Hosts, parse_hosts};
use std::path::Path;

/// The default threshold of the policy `backlog`, in bytes (PMCME, section 3.2).
pub const DEFAULT_THRESHOLD_BYTES: u32 = 7000;

/// The options of [`up`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Names of the ports. The first is the one whose addresses programs use.
    pub ports: Vec<String>,
    /// How streams are given to ports. The default is `adaptive`.
    pub policy: Policy,
    /// The backlog in bytes above which the policy `backlog` pins a stream; other policies ignore
    /// it. The default is [`DEFAULT_THRESHOLD_BYTES`].
    pub threshold_bytes: u32,
    /// How the ports of the other hosts are known.
    pub peers: PeersFrom,
}

impl Options {
    /// Options with the default policy and threshold.
    #[must_use]
    pub fn new(ports: Vec<String>, peers: PeersFrom) -> Self {
        Self { ports, policy: Policy::default(), threshold_bytes: DEFAULT_THRESHOLD_BYTES, peers }
    }

    /// Sets how streams are given to ports.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the backlog in bytes above which the policy `backlog` pins a stream.
    #[must_use]
    pub fn threshold_bytes(mut self, bytes: u32) -> Self {
        self.threshold_bytes = bytes;
        self
    }
}

/// The result of [`up`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Number of this host's ports.
    pub ports: usize,
    /// Number of the other hosts that are known from a file.
    pub peers: usize,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// Starts placement in this network namespace. It continues after this process has ended.
///
/// The caller then starts a process that calls [`run_agent`](crate::run_agent).
///
/// # Errors
/// If anything that is needed is missing; then nothing is changed. A later failure undoes all
/// changes.
///
/// # Cancel safety
/// Not cancel-safe: [`down`](crate::down) undoes what a cancelled call has changed.
pub async fn up(options: &Options) -> Result<Started> {
    rights::check(matches!(options.peers, PeersFrom::Exchange { .. }))?;
    let netns = Netns::current()?;
    let mut ports = ports::find(&options.ports).await?;
    let Hosts { own, others: peers } = read_peers(&options.peers, &ports)?;
    for (port, stated) in ports.iter_mut().zip(own.unwrap_or_default()) {
        port.stated_mbit_s = Some(stated.speed_mbit_s).filter(|&speed| speed > 0);
    }
    if let PeersFrom::Exchange { token_file } = &options.peers {
        Token::from_file(token_file)?;
    }
    let _lock = netns.lock()?;
    let state = SavedState::new(ports, options.policy, options.threshold_bytes, options.peers.clone())?;
    let started = start(netns, state, &peers).await;
    if !matches!(started, Ok(_) | Err(Error::AlreadyUp)) {
        // The first error says more than one of undoing.
        let _ = undo(netns).await;
    }
    started
}

async fn start(netns: Netns, mut state: SavedState, peers: &[Vec<HostPort>]) -> Result<Started> {
    if SavedState::load(netns)?.is_some() {
        return Err(Error::AlreadyUp);
    }
    let first = state.ports[0].clone();
    let mut notes = Vec::new();
    match hook::list(first.ifindex).await? {
        Hooks::Ingress => return Err(Error::IngressQdisc(first.name)),
        Hooks::Clsact { ours: Some(_), .. } => return Err(Error::AlreadyUp),
        Hooks::None => state.clsact_added = true,
        Hooks::Clsact { foreign_before, .. } => {
            if foreign_before > 0 {
                notes.push(format!(
                    "{foreign_before} other filter(s) at the egress hook of {} run first; packets that one of them accepts with TC_ACT_OK are not placed",
                    first.name
                ));
            }
        }
    }
    // The program is loaded before anything is changed, because the kernel may refuse it.
    let mut loaded = LoadedProgram::new()?;
    if !bpffs::is_mounted() {
        state.mounted_in = Some(bpffs::mount_namespace());
    }
    let links = netlink::with_netlink(ports::links).await?;
    let links: Vec<(String, u32)> = links.into_iter().map(|link| (link.name, link.ifindex)).collect();
    state.settings = sysctl::plan(&state.ports, &links, state.policy);
    state.save(netns)?;
    private_file(&netns.agent_file()).map_err(Error::io("making the agent's file"))?;

    if state.mounted_in.is_some() {
        bpffs::mount()?;
    }
    sysctl::apply(&state.settings)?;
    loaded.pin(netns)?;
    let config = program::Config {
        policy: program::policy_number(state.policy),
        port_count: state.ports.len() as u32,
        threshold_bytes: state.threshold_bytes,
        usable_ports: (1 << state.ports.len()) - 1,
    };
    loaded.fill(config, &state.ports, &ports::ns_per_kib(&state.ports))?;
    if state.clsact_added {
        hook::add_clsact(first.ifindex).await?;
    }
    hook::attach(first.ifindex, loaded.program()?).await?;
    let common_ports = |peer: &Vec<HostPort>| (1_u32 << peer.len().min(state.ports.len())) - 1;
    let peer_ports: Vec<(Vec<HostPort>, u32)> = peers.iter().map(|peer| (peer.clone(), common_ports(peer))).collect();
    loaded.take_maps()?.set_peers(&peer_ports)?;
    Ok(Started { ports: state.ports.len(), peers: peers.len(), notes })
}

fn read_peers(from: &PeersFrom, own: &[PortInfo]) -> Result<Hosts> {
    let PeersFrom::File(path) = from else { return Ok(Hosts::default()) };
    let text = read_peers_file(path).map_err(|reason| Error::PeersFile { path: path.clone(), reason })?;
    let own: Vec<Mac> = own.iter().map(|port| port.mac).collect();
    parse_hosts(&text, &own).map_err(|reason| Error::Peers { path: path.clone(), reason })
}

fn read_peers_file(path: &Path) -> std::io::Result<String> {
    /// Enough for the largest number of hosts and ports, with a comment on each line.
    const MAX_FILE_BYTES: u64 = 1 << 20;
    if std::fs::metadata(path)?.len() > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    std::fs::read_to_string(path)
}
