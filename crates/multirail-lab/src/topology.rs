//! What a lab should look like: hosts and the rails between them.

use crate::clusters::Cluster;
use crate::error::{Error, Result};
use crate::names;
use crate::ports::{self, Ports};
use crate::rate::Rate;
use crate::wan::{Delay, Loss, Queue, Wan};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The third byte of a rail's IPv4 network is its index.
pub(crate) const RAILS_MAX: usize = 256;
/// The last byte of a host's IPv4 address is its index and one; .255 is broadcast.
const HOSTS_MAX: usize = 254;
/// Hosts of clusters know each other's hardware addresses beforehand, which are as many as the square of this.
const CLUSTER_HOSTS_MAX: usize = 1024;
/// IPv6 asks for 1280 at least, IPv4 for 68.
const MTU_MIN_BYTES: u32 = 1280;
const MTU_MAX_BYTES: u32 = 65_521;

/// Hosts, the rails between them, and the clusters that they are in. In TOML:
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
/// delay = "10ms"       # one way: a round trip of 20 ms
/// jitter = "1ms"
/// loss = "0.1%"
/// queue = "100p"       # packets; or bytes: "64k"
///
/// [[rail]]             # no rate: as fast as the machine
/// mtu = 9000
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The hosts, in the order of their addresses.
    #[serde(rename = "host", default)]
    pub hosts: Vec<Host>,
    /// The rails, in the order of their networks.
    #[serde(rename = "rail", default)]
    pub rails: Vec<Rail>,
    /// The clusters, in the order of their networks. [`crate::Clusters`] makes them, with their routers among the hosts
    /// and the links between these among the rails.
    #[serde(rename = "cluster", default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Cluster>,
    /// Whether the rails are switches to which every host has a port. Default: they are rails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
}

/// A host: a network namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Letters, digits and underscores.
    pub name: String,
    /// Sysctls of the namespace, names with dots, for example `net.ipv4.tcp_congestion_control`. Default: the kernel's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
}

/// A rail: a network of its own that joins two or more hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rail {
    /// How fast each port is, in each direction. Default: no limit, and offloads stay on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Rates of single hosts' ports, in place of `rate`. On a rail of two hosts this is what the host sends;
    /// on a rail with a switch also what it receives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<String, Rate>,
    /// How long packets travel, one way. With this, `jitter` or `loss` the rail is a WAN. Default: no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// How far a packet's delay is off at most, to either side. Default: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Delay>,
    /// The share of packets that is lost. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// What may wait at a rail with a rate. Default: what passes in [`crate::QUEUE_TIME_MS`], on a WAN at least in a
    /// round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// The hosts that it joins. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The largest IP packet, in bytes. Default: 1500.
    #[serde(default = "default_mtu_bytes")]
    pub mtu: u32,
    /// Whether the ports get IPv6 addresses beside the IPv4 ones. Default: yes.
    #[serde(default = "default_ipv6")]
    pub ipv6: bool,
}

fn default_mtu_bytes() -> u32 {
    1500
}

fn default_ipv6() -> bool {
    true
}

impl Default for Rail {
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

impl Topology {
    /// Hosts that are all joined by each of the rails. A rail is a rate such as `100mbit`, or `-` for none.
    pub fn simple<H: AsRef<str>, R: AsRef<str>>(hosts: &[H], rails: &[R]) -> Result<Self> {
        let host = |name: &H| Host { name: name.as_ref().to_owned(), sysctl: BTreeMap::new() };
        let rail = |rate: &R| Ok(Rail { rate: Rate::parse_optional(rate.as_ref())?, ..Rail::default() });
        let topology = Self {
            hosts: hosts.iter().map(host).collect(),
            rails: rails.iter().map(rail).collect::<Result<_>>()?,
            ..Self::default()
        };
        topology.check()?;
        Ok(topology)
    }

    /// Reads TOML.
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::from_toml_named(text, "<text>")
    }

    /// Reads a TOML file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::TopologyFile { path: name.clone(), reason: e.to_string() })?;
        Self::from_toml_named(&text, &name)
    }

    fn from_toml_named(text: &str, path: &str) -> Result<Self> {
        let topology: Self = toml::from_str(text)
            .map_err(|e| Error::TopologyFile { path: path.to_owned(), reason: e.to_string().trim_end().to_owned() })?;
        topology.check()?;
        Ok(topology)
    }

    /// Whether a lab can be made of this.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(Error::BadTopology(reason));
        if self.hosts.is_empty() {
            return bad("there is no host".into());
        }
        let hosts_max = if self.clusters.is_empty() { HOSTS_MAX } else { CLUSTER_HOSTS_MAX };
        if self.hosts.len() > hosts_max {
            return bad(format!("{} hosts are more than {hosts_max}", self.hosts.len()));
        }
        if self.rails.len() > RAILS_MAX {
            return bad(format!("{} rails are more than {RAILS_MAX}", self.rails.len()));
        }
        let mut seen = BTreeSet::new();
        for host in &self.hosts {
            if !self.clusters.iter().any(|cluster| cluster.router() == host.name) {
                names::check_host(&host.name)?;
            }
            if !seen.insert(&host.name) {
                return bad(format!("host {:?} is there twice", host.name));
            }
        }
        for (index, rail) in self.rails.iter().enumerate() {
            if !(MTU_MIN_BYTES..=MTU_MAX_BYTES).contains(&rail.mtu) {
                return bad(format!("rail {index}: mtu {} is not in {MTU_MIN_BYTES}..={MTU_MAX_BYTES}", rail.mtu));
            }
            if let Some(host) = rail.hosts.iter().chain(rail.rates.keys()).find(|&host| !seen.contains(host)) {
                return bad(format!("rail {index}: there is no host {host:?}"));
            }
            if rail.hosts.iter().collect::<BTreeSet<_>>().len() != rail.hosts.len() {
                return bad(format!("rail {index}: a host is there twice"));
            }
            let hosts = self.hosts_on(index);
            if hosts.len() < 2 {
                return bad(format!("rail {index} joins fewer than two hosts"));
            }
            if hosts.iter().any(|&host| host >= HOSTS_MAX) {
                return bad(format!("rail {index} joins a host that is not one of the first {HOSTS_MAX}"));
            }
        }
        ports::check(self)?;
        crate::clusters::check(self)
    }

    /// The indices of the hosts that a rail joins, in order.
    pub(crate) fn hosts_on(&self, rail: usize) -> Vec<usize> {
        let on = &self.rails[rail].hosts;
        let joins = |name: &String| if on.is_empty() { !names::is_router(name) } else { on.contains(name) };
        (0..self.hosts.len()).filter(|&host| joins(&self.hosts[host].name)).collect()
    }

    /// A host's IPv4 address on a rail: 10.77.rail.(host + 1) in a network of 24 bits, where hosts have no ports.
    pub(crate) fn ipv4(&self, rail: usize, host: usize) -> Option<Ipv4Addr> {
        self.ports.map_or_else(|| Some(ipv4(rail, host)), |ports| ports.ipv4(rail, host))
    }

    /// A host's IPv6 address on a rail: fd77:0:0:rail::(host + 1) in a network of 64 bits, where hosts have no ports.
    pub(crate) fn ipv6(&self, rail: usize, host: usize) -> Option<Ipv6Addr> {
        let address = self.ports.map_or_else(|| Some(ipv6(rail, host)), |ports| ports.ipv6(rail, host));
        address.filter(|_| self.rails[rail].ipv6)
    }

    pub(crate) fn host_index(&self, host: &str) -> Option<usize> {
        self.hosts.iter().position(|h| h.name == host)
    }
}

impl Rail {
    /// The rate of a host's port on this rail.
    pub fn rate_of(&self, host: &str) -> Option<Rate> {
        self.rates.get(host).copied().or(self.rate)
    }

    /// What it does beside its rate.
    pub fn wan(&self) -> Wan {
        Wan { delay: self.delay, jitter: self.jitter, loss: self.loss, queue: self.queue }
    }

    /// Replaces what it does beside its rate.
    pub fn set_wan(&mut self, wan: Wan) {
        Wan { delay: self.delay, jitter: self.jitter, loss: self.loss, queue: self.queue } = wan;
    }
}

/// 10.77.rail.(host + 1), in a network of 24 bits.
pub(crate) fn ipv4(rail: usize, host: usize) -> Ipv4Addr {
    // `check` bounds both.
    Ipv4Addr::new(10, 77, rail as u8, (host + 1) as u8)
}

/// fd77:0:0:rail::(host + 1), in a network of 64 bits.
fn ipv6(rail: usize, host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, rail as u16, 0, 0, 0, (host + 1) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_is_all_rails_between_all_hosts() {
        let topology = Topology::simple(&["a", "b", "c"], &["100mbit", "-"]).unwrap();
        assert_eq!(topology.hosts_on(1), [0, 1, 2]);
        assert_eq!(topology.rails[0].rate_of("b").unwrap().mbit_s(), 100.0);
        assert_eq!(topology.rails[1].rate, None);
    }

    #[test]
    fn toml_with_every_option_comes_back() {
        let text = "[[host]]\nname='a'\nsysctl={'net.ipv4.tcp_rmem'='4096 1 2'}\n[[host]]\nname='b'\n[[host]]\nname='c'\n\
                    [[rail]]\nrate='1gbit'\ndelay='10ms'\njitter='500us'\nloss='0.1%'\nqueue='64k'\nmtu=9000\nipv6=false\nhosts=['a','c']\nrates={c='10mbit'}\n";
        let topology = Topology::from_toml(text).unwrap();
        assert_eq!(topology.hosts_on(0), [0, 2]);
        assert_eq!(topology.rails[0].rate_of("c").unwrap().mbit_s(), 10.0);
        let again = Topology::from_toml(&toml::to_string(&topology).unwrap()).unwrap();
        assert_eq!(again, topology);
    }

    #[test]
    fn refuses_topologies_that_make_no_network() {
        for (text, word) in [
            ("", "no host"),
            ("[[host]]\nname='a'\n[[rail]]", "fewer than two"),
            ("[[host]]\nname='a'\n[[host]]\nname='a'", "twice"),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nhosts=['x','a']", "no host \"x\""),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nmtu=1279", "mtu 1279"),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nrate='quick'", "quick"),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nspeed='1mbit'", "speed"),
        ] {
            let error = Topology::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
