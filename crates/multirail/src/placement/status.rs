//! What placement does at this moment.

use super::agent_lock::agent_pid;
use super::program::{self, map_error};
use super::state::Place;
use super::{ExchangeCounts, Policy, Result, StreamStatus, netlink, open, ports, settings, streams};
use multirail_proto::placement::{MAX_PORTS, Mac};
use serde::Serialize;

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// How streams are given to ports.
    pub policy: Policy,
    /// When it began, UTC.
    pub since: String,
    /// The process that follows links and hosts; none: its last word counts.
    pub agent_pid: Option<i32>,
    /// Hellos of other hosts, if there is an exchange.
    pub exchange: Option<ExchangeCounts>,
    /// How long the program took for a packet on average, in nanoseconds, where the kernel counts it (`sysctl kernel.bpf_stats_enabled=1`).
    pub program_ns_per_packet: Option<f64>,
    /// This host's ports, in order.
    pub ports: Vec<PortStatus>,
    /// Other hosts.
    pub peers: Vec<PeerStatus>,
    /// Streams of programs that the policy keeps something of, the one with the most bytes first.
    pub streams: Vec<StreamStatus>,
}

/// A port of this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortStatus {
    /// Counted from 0.
    pub number: usize,
    /// Its name.
    pub port: String,
    /// Its address.
    pub mac: Mac,
    /// Whether packets may leave by it.
    pub usable: bool,
    /// Why not.
    pub why_not: Option<&'static str>,
    /// As the file of hosts states, or else as its hardware says; none if neither does.
    pub speed_mbit_s: Option<u32>,
    /// Packets given to it.
    pub packets: u64,
    /// Bytes given to it.
    pub bytes: u64,
    /// What waited in its queue when the program last looked.
    pub backlog_bytes: u64,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerStatus {
    /// Its ports' addresses, in order.
    pub macs: Vec<Mac>,
    /// Numbers of the ports that lead to it.
    pub usable_ports: Vec<usize>,
    /// How long each port has worked for it, where the policy is `adaptive`.
    pub worked_by_port_ns: Vec<u64>,
}

/// What is going on in this network namespace.
pub async fn status() -> Result<Status> {
    let place = Place::here()?;
    let (state, tables, id) = open().await?;
    let links = netlink::with_netlink(ports::links).await?;
    let mut port_rows = Vec::new();
    let usable_ports = tables.usable()?;
    for (number, info) in state.ports.iter().enumerate() {
        let usable = usable_ports >> number & 1 == 1;
        let counted = tables.port_states.get(&(number as u32), 0).map_err(map_error)?;
        let link = links.iter().find(|link| link.ifindex == info.ifindex);
        let left_out = (!usable).then_some("the agent has not yet looked at it");
        let why_not = link.map_or(Some("it is gone"), |link| link.why_not(info).or(left_out));
        let name = settings::name_of(info.ifindex).unwrap_or_else(|| info.name.clone());
        port_rows.push(PortStatus {
            number,
            speed_mbit_s: info.stated_mbit_s.or_else(|| ports::hardware_mbit_s(&name)),
            port: name,
            mac: info.mac,
            usable,
            why_not: why_not.filter(|_| !usable),
            packets: counted.packets,
            bytes: counted.bytes,
            backlog_bytes: counted.backlog_bytes,
        });
    }
    let mut peers = Vec::new();
    for (_, peer) in tables.peers.iter().filter_map(std::result::Result::ok) {
        let macs: Vec<Mac> = peer.macs.iter().map(|&mac| mac.into()).filter(|mac: &Mac| mac.is_unicast()).collect();
        let given = tables.peer_states.get(&peer.number, 0).map(|state| state.given).unwrap_or_default();
        let usable_ports = (0..MAX_PORTS.min(state.ports.len())).filter(|p| peer.usable >> p & 1 == 1).collect();
        peers.push(PeerStatus {
            macs,
            usable_ports,
            worked_by_port_ns: given[..state.ports.len().min(MAX_PORTS)].to_vec(),
        });
    }
    peers.sort_by(|a, b| a.macs.cmp(&b.macs));
    let mut streams = streams::list(tables.streams()?)?;
    streams.sort_by_key(|stream| (std::cmp::Reverse(stream.bytes), stream.local, stream.remote));
    let run = program::run_time_ns_and_count(id).filter(|&(_, count)| count > 0);
    Ok(Status {
        policy: state.policy,
        since: state.since,
        agent_pid: agent_pid(place),
        exchange: std::fs::read(place.counts_file()).ok().and_then(|text| serde_json::from_slice(&text).ok()),
        program_ns_per_packet: run.map(|(ns, count)| ns as f64 / count as f64),
        ports: port_rows,
        peers,
        streams,
    })
}
