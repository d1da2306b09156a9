//! The description of a lab: hosts, rails, clusters and ports.

use crate::spec::names;
use crate::spec::rate::Rate;
use crate::spec::wan::{Delay, Loss, Queue, Wan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The MTU of a rail that names none, in bytes of IP packets.
const MTU_DEFAULT_BYTES: u32 = 1500;

/// Hosts, the rails between them, and the clusters that they belong to. In TOML:
///
/// ```toml
/// [[host]]
/// name = "a"
///
/// [[host]]
/// name = "b"
/// [host.sysctl]
/// "net.ipv4.tcp_rmem" = "4096 131072 4194304"
///
/// [[rail]]
/// rate = "100mbit"
/// delay = "10ms"       # one way: the round trip is 20 ms
/// jitter = "1ms"
/// loss = "0.1%"
/// queue = "100p"       # packets; or bytes: "64k"
///
/// [[rail]]             # no rate: no limit
/// mtu = 9000
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Topology {
    /// The hosts, in the order of their addresses. With clusters, the routers are the first hosts.
    #[serde(rename = "host", default)]
    pub hosts: Vec<LabHost>,
    /// The rails, in the order of their networks.
    #[serde(rename = "rail", default)]
    pub rails: Vec<LabRail>,
    /// The clusters, in the order of their networks. [`crate::Clusters`] builds them, with a router
    /// each among the hosts and a rail for each pair of routers.
    #[serde(rename = "cluster", default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Cluster>,
    /// If present, each rail is a switch, and every host has a port to it. Default: absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
}

/// A host of a lab, which is a network namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LabHost {
    /// The name: 1 to 64 letters, digits and underscores.
    pub name: String,
    /// Sysctls of the namespace by their names with dots, for example
    /// `net.ipv4.tcp_congestion_control`. Default: those of the kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
}

/// A rail of a lab: a network of its own that joins two or more hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LabRail {
    /// The rate of each port, in each direction. Default: no limit, and segmentation offload stays
    /// on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The rates of the ports of single hosts, which replace `rate`. On a rail of two hosts it is
    /// the rate at which the host sends; on a rail with a switch, also the rate at which it
    /// receives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<String, Rate>,
    /// How long packets travel one way. Default: no delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// The largest deviation from the delay, in either direction. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Delay>,
    /// The share of packets that are lost. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// The capacity of the queue of a rail with a rate. Default: the bytes of 20 ms, on a WAN at
    /// least those of a round trip, and at least 16 packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// The hosts that the rail joins. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The size of the largest IP packet in bytes. Default: 1500.
    #[serde(default = "default_mtu_bytes")]
    pub mtu: u32,
    /// Whether the ports have IPv6 addresses beside the IPv4 ones. Default: yes.
    #[serde(default = "default_ipv6")]
    pub ipv6: bool,
}

/// A cluster: hosts of one network, and a router that forwards their traffic to other clusters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Cluster {
    /// The name: 1 to 64 letters, digits and underscores.
    pub name: String,
    /// The hosts, in the order of their addresses.
    pub hosts: Vec<String>,
    /// The rate of each host's traffic with other clusters, in each direction. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Rate>,
}

/// Says that every host has a port `eth0`, `eth1`, ... to each rail of the topology. Each rail is
/// a switch.
///
/// ```
/// use multirail_lab::{Ports, Rate};
///
/// let rate: Rate = "100mbit".parse()?;
/// let topology = Ports::new().with_subnets(true).topology(&["h1", "h2"], &[Some(rate); 4])?;
/// assert_eq!(topology.rails.len(), 4);
/// # Ok::<(), multirail_lab::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Ports {
    /// Whether links without a rate limit join the switches in a row. Default: no.
    #[serde(default)]
    pub trunk: bool,
    /// Whether every port has an address, in a network for each switch. Default: no, only `eth0`
    /// has one.
    #[serde(default)]
    pub subnets: bool,
}

fn default_mtu_bytes() -> u32 {
    MTU_DEFAULT_BYTES
}

fn default_ipv6() -> bool {
    true
}

impl LabHost {
    /// A host with the sysctls of the kernel.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), sysctl: BTreeMap::new() }
    }
}

impl Default for LabRail {
    fn default() -> Self {
        Self {
            rate: None,
            rates: BTreeMap::new(),
            delay: None,
            jitter: None,
            loss: None,
            queue: None,
            hosts: Vec::new(),
            mtu: default_mtu_bytes(),
            ipv6: default_ipv6(),
        }
    }
}

impl LabRail {
    /// A rail that joins all hosts, with this rate or with no limit.
    pub fn new(rate: Option<Rate>) -> Self {
        Self { rate, ..Self::default() }
    }

    /// The rate of the port of a host on this rail. `None` means no limit.
    pub fn rate_of(&self, host: &str) -> Option<Rate> {
        self.rates.get(host).copied().or(self.rate)
    }

    /// The properties of the rail beside its rate.
    pub fn wan(&self) -> Wan {
        Wan { delay: self.delay, jitter: self.jitter, loss: self.loss, queue: self.queue }
    }

    /// Replaces the properties of the rail beside its rate.
    pub fn set_wan(&mut self, wan: Wan) {
        Wan { delay: self.delay, jitter: self.jitter, loss: self.loss, queue: self.queue } = wan;
    }
}

impl Cluster {
    /// The name of the router of the cluster, which is one of the hosts of the topology.
    pub fn router(&self) -> String {
        names::router(&self.name)
    }
}

impl Topology {
    /// The indices of the hosts that a rail joins, in ascending order.
    pub(crate) fn hosts_on(&self, rail: usize) -> Vec<usize> {
        let on = &self.rails[rail].hosts;
        let joins = |name: &String| if on.is_empty() { !names::is_router(name) } else { on.contains(name) };
        (0..self.hosts.len()).filter(|&host| joins(&self.hosts[host].name)).collect()
    }

    pub(crate) fn host_index(&self, host: &str) -> Option<usize> {
        self.hosts.iter().position(|h| h.name == host)
    }
}
