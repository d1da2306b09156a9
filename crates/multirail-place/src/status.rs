//! The present state of placement.

use crate::agent::{self, ExchangeCounts};
use crate::attached::Attached;
use crate::kernel::{netlink, ports, sysctl};
use crate::netns::Netns;
use crate::program::{self, streams};
use crate::{Policy, Result, StreamStatus};
use multirail_proto::placement::{MAX_PORTS, Mac};
use serde::Serialize;

/// The state of placement at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// How streams are given to ports.
    pub policy: Policy,
    /// When placement started, in seconds since 1970.
    pub since_unix_s: u64,
    /// The agent's process. Without an agent, the program keeps the last known state of ports.
    pub agent_pid: Option<i32>,
    /// Counts of hellos, if hosts exchange them.
    pub exchange: Option<ExchangeCounts>,
    /// The program's mean run time for a packet, in nanoseconds. None unless the kernel counts it
    /// (`sysctl kernel.bpf_stats_enabled=1`).
    pub program_ns_per_packet: Option<f64>,
    /// The ports of this host, in order.
    pub ports: Vec<PortStatus>,
    /// The other hosts.
    pub peers: Vec<PeerStatus>,
    /// The streams for which the policy keeps state, largest first.
    pub streams: Vec<StreamStatus>,
}

/// A port of this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortStatus {
    /// Its number, from 0.
    pub number: usize,
    /// Its name.
    pub port: String,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Whether packets may leave by it.
    pub usable: bool,
    /// Why packets may not leave by it.
    pub unusable_reason: Option<&'static str>,
    /// The speed that the peers file states, or else the one that the hardware reports, in Mbit/s.
    pub speed_mbit_s: Option<u32>,
    /// Packets given to it.
    pub packets: u64,
    /// Bytes given to it.
    pub bytes: u64,
    /// Bytes in its queue when the program last read it.
    pub queue_bytes: u64,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerStatus {
    /// The Ethernet addresses of its ports, in order.
    pub macs: Vec<Mac>,
    /// The numbers of the ports that lead to it.
    pub usable_ports: Vec<usize>,
    /// The total sending time of each port for this peer, in nanoseconds. Only the policy
    /// `adaptive` measures it.
    pub service_by_port_ns: Vec<u64>,
}

/// Reads the state of placement in this network namespace.
///
/// # Errors
/// [`Error::NotUp`](crate::Error::NotUp) if placement is not up, and others if its maps cannot be
/// read.
///
/// # Cancel safety
/// Cancel-safe: nothing is changed.
pub async fn status() -> Result<Status> {
    let netns = Netns::current()?;
    let Attached { state, maps, program_id } = Attached::find(netns).await?;
    let links = netlink::with_netlink(ports::links).await?;
    let mut port_rows = Vec::new();
    let usable_ports = maps.usable_ports()?;
    for (number, info) in state.ports.iter().enumerate() {
        let usable = usable_ports >> number & 1 == 1;
        let counters = maps.port_counters(number)?;
        let link = links.iter().find(|link| link.ifindex == info.ifindex);
        let unseen = (!usable).then_some("the agent has not checked it yet");
        let unusable_reason = link.map_or(Some("it is gone"), |link| link.unusable_reason(info).or(unseen));
        let name = sysctl::name_of(info.ifindex).unwrap_or_else(|| info.name.clone());
        port_rows.push(PortStatus {
            number,
            speed_mbit_s: info.stated_mbit_s.or_else(|| ports::hardware_mbit_s(&name)),
            port: name,
            mac: info.mac,
            usable,
            unusable_reason: unusable_reason.filter(|_| !usable),
            packets: counters.packets,
            bytes: counters.bytes,
            queue_bytes: counters.queue_bytes,
        });
    }
    let port_count = state.ports.len().min(MAX_PORTS);
    let peer_row = |peer: program::PeerRow| PeerStatus {
        macs: peer.macs,
        usable_ports: (0..port_count).filter(|port| peer.usable_ports >> port & 1 == 1).collect(),
        service_by_port_ns: peer.service_ns[..port_count].to_vec(),
    };
    let mut peers: Vec<PeerStatus> = maps.peers().map(peer_row).collect();
    peers.sort_by(|a, b| a.macs.cmp(&b.macs));
    let mut streams = streams::list(maps.streams()?).await?;
    streams.sort_by_key(|stream| (std::cmp::Reverse(stream.bytes), stream.local, stream.remote));
    let run = program::run_time_ns_and_count(program_id).filter(|&(_, count)| count > 0);
    Ok(Status {
        policy: state.policy,
        since_unix_s: state.since_unix_s,
        agent_pid: agent::lock::agent_pid(netns),
        exchange: ExchangeCounts::load(netns),
        program_ns_per_packet: run.map(|(ns, count)| ns as f64 / count as f64),
        ports: port_rows,
        peers,
        streams,
    })
}
