//! Placement: streams of programs that know nothing of it, spread over all ports of the host.
//!
//! A BPF program at the egress hook of the first port decides for each packet by which port it leaves (`bpf/place.bpf.c`). This module is its
//! control plane: it checks what is needed, sets what receiving at any port needs, loads the program, fills its tables and reads them, and
//! undoes all of it. What it changes it writes to a file before it changes it.
//!
//! All functions take the network namespace of the thread that first polls them, and need a tokio runtime with I/O enabled.

mod agent;
mod agent_lock;
mod bpffs;
mod error;
mod frames;
mod hook;
mod layout;
#[cfg(test)]
mod model_tests;
mod netlink;
mod ports;
mod program;
mod rights;
mod settings;
mod state;
mod status;
mod streams;
mod test_run;

pub use agent::{ExchangeCounts, run_agent};
pub use error::{Error, Result};
pub use frames::Refused;
pub use multirail_proto::placement::exchange::Counts;
pub use multirail_proto::placement::{Mac, Policy};
pub use state::{PeersFrom, agent_log};
pub use status::{PeerStatus, PortStatus, Status, status};
pub use streams::StreamStatus;

use crate::handshake::Token;
use hook::Hooks;
use layout::Config;
use multirail_proto::placement::hosts::{HostPort, Hosts, parse_hosts};
use ports::PortInfo;
use program::{Loaded, Tables};
use state::{Place, State};

/// The paper's threshold, with which the policy `backlog` pins streams.
pub const DEFAULT_THRESHOLD_BYTES: u32 = 7000;

/// What to begin with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of the ports; the first has the addresses that programs use.
    pub ports: Vec<String>,
    /// How streams are given to ports.
    pub policy: Policy,
    /// Bytes under way from which the policy `backlog` pins a stream; default 7000, no other policy uses it.
    pub threshold_bytes: u32,
    /// Where the other hosts' ports are known from.
    pub peers: PeersFrom,
}

/// What `up` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// How many ports are used.
    pub ports: usize,
    /// How many other hosts are known from the beginning.
    pub peers: usize,
    /// What is worth knowing, for people.
    pub notes: Vec<String>,
}

/// Begins placement in this network namespace. It goes on when this process has ended; the links' state and the other hosts' is followed by
/// an agent, which the caller starts.
///
/// # Errors
/// If anything needed is missing; then nothing is changed. What fails later is undone.
pub async fn up(options: &Options) -> Result<Started> {
    rights::check(matches!(options.peers, PeersFrom::Exchange { .. }))?;
    let place = Place::here()?;
    let mut ports = ports::find(&options.ports).await?;
    let Hosts { own, others: peers } = read_peers(&options.peers, &ports)?;
    for (port, stated) in ports.iter_mut().zip(own.unwrap_or_default()) {
        port.stated_mbit_s = Some(stated.speed_mbit_s).filter(|&speed| speed > 0);
    }
    if let PeersFrom::Exchange { token_file } = &options.peers {
        Token::from_file(token_file).map_err(|e| Error::Token(e.to_string()))?;
    }
    let _lock = state::lock(place)?;
    let state = State::new(ports, options.policy, options.threshold_bytes, options.peers.clone())?;
    let begun = begin(place, state, &peers).await;
    if !matches!(begun, Ok(_) | Err(Error::AlreadyUp { .. })) {
        // Whatever was done so far; the error that led here says more than one on the way back.
        let _ = undo(place).await;
    }
    begun
}

async fn begin(place: Place, mut state: State, peers: &[Vec<HostPort>]) -> Result<Started> {
    if let Some(earlier) = State::load(place)? {
        return Err(Error::AlreadyUp { since: earlier.since });
    }
    let first = state.ports[0].clone();
    let mut notes = Vec::new();
    match hook::look(first.ifindex).await? {
        Hooks::Ingress => return Err(Error::IngressQdisc(first.name)),
        Hooks::Clsact { ours: Some(_), .. } => return Err(Error::AlreadyUp { since: "an unknown time".into() }),
        Hooks::None => state.clsact_added = true,
        Hooks::Clsact { foreign_before, .. } => {
            if foreign_before > 0 {
                notes.push(format!(
                    "{foreign_before} other filter(s) at the egress hook of {} come first; packets that one of them lets pass for good are not placed",
                    first.name
                ));
            }
        }
    }
    // Loaded before anything is changed: what the kernel refuses leaves no trace.
    let mut loaded = Loaded::new()?;
    if !bpffs::is_mounted() {
        state.mounted_in = Some(bpffs::mount_namespace());
    }
    let links = netlink::with_netlink(ports::links).await?;
    let links: Vec<(String, u32)> = links.into_iter().map(|link| (link.name, link.ifindex)).collect();
    state.settings = settings::plan(&state.ports, &links, state.policy);
    state.save(place)?;
    std::fs::write(place.agent_file(), "").map_err(Error::io("making the agent's file"))?;

    if state.mounted_in.is_some() {
        bpffs::mount()?;
    }
    settings::apply(&state.settings)?;
    loaded.pin(place)?;
    let mask = |of_peer: &Vec<HostPort>| (1_u32 << of_peer.len().min(state.ports.len())) - 1;
    let table: Vec<(Vec<HostPort>, u32)> = peers.iter().map(|ports| (ports.clone(), mask(ports))).collect();
    let config = Config {
        policy: state.policy as u32,
        ports: state.ports.len() as u32,
        threshold_bytes: state.threshold_bytes,
        usable: (1 << state.ports.len()) - 1,
    };
    loaded.fill(config, &state.ports, &ports::ns_per_kib(&state.ports))?;
    if state.clsact_added {
        hook::add_clsact(first.ifindex).await?;
    }
    hook::attach(first.ifindex, loaded.program()?).await?;
    loaded.tables()?.set_peers(&table)?;
    Ok(Started { ports: state.ports.len(), peers: peers.len(), notes })
}

/// What `down` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Whether there was anything.
    pub was_up: bool,
    /// What could not be put back, and why.
    pub failures: Vec<String>,
}

/// Ends placement in this network namespace, also where it was cut short, and puts everything back as it was.
pub async fn down() -> Result<Ended> {
    rights::check(false)?;
    let place = Place::here()?;
    let _lock = state::lock(place)?;
    undo(place).await
}

async fn undo(place: Place) -> Result<Ended> {
    agent_lock::end_agent(place)?;
    let Some(state) = State::load(place)? else {
        // Of an earlier boot, or there is none; or somebody has removed it.
        let was_up = remove_strays(place).await?;
        state::forget(place)?;
        let lost =
            "the file of what was changed is gone: settings of ports stay as they are, and so does a clsact hook";
        return Ok(Ended { was_up, failures: was_up.then(|| lost.to_owned()).into_iter().collect() });
    };
    let mut failures = Vec::new();
    if let Some(first) = state.ports.first().filter(|port| settings::name_of(port.ifindex).is_some()) {
        hook::remove(first.ifindex, state.clsact_added).await?;
    }
    program::unpin(place)?;
    failures.extend(settings::restore(&state.settings));
    if let Some(mounted_in) = &state.mounted_in
        && let Err(error) = bpffs::unmount(mounted_in)
    {
        failures.push(error.to_string());
    }
    state::forget(place)?;
    Ok(Ended { was_up: true, failures })
}

/// What can be recognised without the file; whether there was anything.
async fn remove_strays(place: Place) -> Result<bool> {
    let mut found = false;
    for link in netlink::with_netlink(ports::links).await? {
        if let Hooks::Clsact { ours: Some(_), .. } = hook::look(link.ifindex).await? {
            hook::remove(link.ifindex, false).await?;
            found = true;
        }
    }
    program::unpin(place)?;
    Ok(found)
}

fn read_peers(from: &PeersFrom, own: &[PortInfo]) -> Result<Hosts> {
    let PeersFrom::File(path) = from else { return Ok(Hosts::default()) };
    /// Of the most hosts with the most ports, and a comment each.
    const MAX_FILE_BYTES: u64 = 1 << 20;
    let bytes = std::fs::metadata(path).and_then(|found| {
        if found.len() > MAX_FILE_BYTES {
            return Err(std::io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        std::fs::read_to_string(path)
    });
    let text = bytes.map_err(|reason| Error::PeersFile { path: path.clone(), reason })?;
    let own: Vec<Mac> = own.iter().map(|port| port.mac).collect();
    parse_hosts(&text, &own).map_err(|reason| Error::Peers { path: path.clone(), reason })
}

/// The process that follows links and hosts in this network namespace, if there is one.
pub fn agent() -> Result<Option<i32>> {
    Ok(agent_lock::agent_pid(Place::here()?))
}

/// The tables of what is attached here, and what was written of it.
async fn open() -> Result<(State, Tables, u32)> {
    let place = Place::here()?;
    let state = State::load(place)?.ok_or(Error::NotUp)?;
    let first = state.ports.first().ok_or(Error::NotUp)?;
    match hook::look(first.ifindex).await? {
        Hooks::Clsact { ours: Some(id), .. } => Ok((state, Tables::open(place, id)?, id)),
        _ => Err(Error::NotUp),
    }
}
