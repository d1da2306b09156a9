//! The checks that a topology must pass before a lab is made of it.

use crate::error::{Error, Result};
use crate::spec::names;
use crate::spec::topology::{LabHost, Topology};
use std::collections::BTreeSet;

/// The most rails. The index of a rail is the third byte of its IPv4 network.
pub(crate) const RAILS_MAX: usize = 256;
/// The most hosts on rails. The index of a host, plus one, is the last byte of its IPv4 address,
/// and .255 is the broadcast address.
const HOSTS_MAX: usize = 254;
/// The most hosts of all clusters. Each host of a cluster has a permanent neighbour entry for each
/// other one, so the number of entries grows with the square.
const CLUSTER_HOSTS_MAX: usize = 1024;
/// The smallest MTU, which IPv6 requires.
const MTU_MIN_BYTES: u32 = 1280;
/// The largest MTU of a veth pair.
const MTU_MAX_BYTES: u32 = 65_521;
/// The most ports of a host. The second byte of a port's network is the number of the port plus 90.
const PORTS_MAX: usize = 64;

impl Topology {
    /// Checks whether a lab can be made of this topology.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::LinkWithoutRate`], or [`Error::BadTopology`] with the reason.
    pub fn check(&self) -> Result<()> {
        check_hosts(self)?;
        check_rails(self)?;
        check_ports(self)?;
        check_clusters(self)
    }
}

fn bad(reason: impl Into<String>) -> Result<()> {
    Err(Error::BadTopology(reason.into()))
}

fn check_hosts(topology: &Topology) -> Result<()> {
    let (hosts, clusters) = (&topology.hosts, &topology.clusters);
    if hosts.is_empty() {
        return bad("there is no host");
    }
    let hosts_max = if clusters.is_empty() { HOSTS_MAX } else { CLUSTER_HOSTS_MAX };
    if hosts.len() > hosts_max {
        return bad(format!("{} hosts are more than {hosts_max}", hosts.len()));
    }
    let mut seen = BTreeSet::new();
    for host in hosts {
        if !clusters.iter().any(|cluster| cluster.router() == host.name) {
            names::check_host(&host.name)?;
        }
        if !seen.insert(&host.name) {
            return bad(format!("host {:?} is there twice", host.name));
        }
    }
    Ok(())
}

fn check_rails(topology: &Topology) -> Result<()> {
    let rails = &topology.rails;
    if rails.len() > RAILS_MAX {
        return bad(format!("{} rails are more than {RAILS_MAX}", rails.len()));
    }
    for (index, rail) in rails.iter().enumerate() {
        if !(MTU_MIN_BYTES..=MTU_MAX_BYTES).contains(&rail.mtu) {
            return bad(format!("rail {index}: mtu {} is not in {MTU_MIN_BYTES}..={MTU_MAX_BYTES}", rail.mtu));
        }
        let mut named = rail.hosts.iter().chain(rail.rates.keys());
        if let Some(host) = named.find(|host| topology.host_index(host).is_none()) {
            return bad(format!("rail {index}: there is no host {host:?}"));
        }
        if rail.hosts.iter().collect::<BTreeSet<_>>().len() != rail.hosts.len() {
            return bad(format!("rail {index}: a host is there twice"));
        }
        let hosts = topology.hosts_on(index);
        if hosts.len() < 2 {
            return bad(format!("rail {index} joins fewer than two hosts"));
        }
        if hosts.iter().any(|&host| host >= HOSTS_MAX) {
            return bad(format!("rail {index} joins a host that is not one of the first {HOSTS_MAX}"));
        }
    }
    Ok(())
}

fn check_ports(topology: &Topology) -> Result<()> {
    if topology.ports.is_none() {
        return Ok(());
    }
    if !topology.clusters.is_empty() {
        return bad("hosts with ports can be in no cluster");
    }
    if !(1..=PORTS_MAX).contains(&topology.rails.len()) {
        return bad(format!("{} ports are not in 1..={PORTS_MAX}", topology.rails.len()));
    }
    for (port, rail) in topology.rails.iter().enumerate() {
        if rail.wan().is_wan() {
            return bad(format!("port {port}: ports have no delay, jitter and loss"));
        }
        if topology.hosts_on(port).len() != topology.hosts.len() {
            return bad(format!("port {port}: every host has every port"));
        }
    }
    // The kernel forms a packet for the first port, but it may leave by another one. It can be a
    // GSO packet only if no port is shaped.
    let of_host = |host: &LabHost| topology.rails.iter().filter(|rail| rail.rate_of(&host.name).is_some()).count();
    let shaped: usize = topology.hosts.iter().map(of_host).sum();
    if shaped != 0 && shaped != topology.hosts.len() * topology.rails.len() {
        return bad("some ports have a rate and some have none; give every port a rate, or none");
    }
    Ok(())
}

/// Checks that each host is in at most one cluster, and that each cluster has its router and each
/// pair of clusters its link.
fn check_clusters(topology: &Topology) -> Result<()> {
    let clusters = &topology.clusters;
    let mut seen = BTreeSet::new();
    for (index, cluster) in clusters.iter().enumerate() {
        let name = &cluster.name;
        names::check_host(name)?;
        if topology.hosts.get(index).is_none_or(|host| host.name != cluster.router()) {
            return bad(format!("host {index} is not {}, the router of cluster {name:?}", cluster.router()));
        }
        if cluster.hosts.is_empty() {
            return bad(format!("cluster {name:?} has no host"));
        }
        for host in &cluster.hosts {
            if names::is_router(host) || topology.host_index(host).is_none() {
                return bad(format!("cluster {name:?}: there is no host {host:?}"));
            }
            if !seen.insert(host) {
                return bad(format!("host {host:?} is in two clusters"));
            }
        }
    }
    let mut joined = BTreeSet::new();
    for (index, rail) in topology.rails.iter().enumerate() {
        let hosts = topology.hosts_on(index);
        let routers = hosts.iter().filter(|&&host| host < clusters.len()).count();
        if routers == 0 {
            continue;
        }
        if hosts.len() != 2 || routers != 2 || !joined.insert((hosts[0], hosts[1])) {
            return bad(format!("rail {index} joins routers, but is not the only link between two of them"));
        }
        for (from, to) in [(hosts[0], hosts[1]), (hosts[1], hosts[0])] {
            if rail.rate_of(&topology.hosts[from].name).is_none() {
                let [from, to] = [from, to].map(|cluster| clusters[cluster].name.clone());
                return Err(Error::LinkWithoutRate { from, to });
            }
        }
    }
    let pairs = clusters.len() * clusters.len().saturating_sub(1) / 2;
    if joined.len() < pairs {
        return bad(format!("{} of {pairs} links between clusters are missing", pairs - joined.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::chain;
    use crate::spec::topology::Ports;

    #[test]
    fn topologies_that_make_no_network_are_refused() {
        for (text, word) in [
            ("", "no host"),
            ("[[host]]\nname='a'\n[[rail]]", "fewer than two"),
            ("[[host]]\nname='a'\n[[host]]\nname='a'", "twice"),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nhosts=['x','a']", "no host \"x\""),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nmtu=1279", "mtu 1279"),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nrate='quick'", "quick"),
            ("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\nspeed='1mbit'", "speed"),
        ] {
            let error = chain(&Topology::from_toml(text).unwrap_err());
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }

    #[test]
    fn invalid_ports_are_refused() {
        let hosts = "[ports]\n[[host]]\nname='a'\n[[host]]\nname='b'\n[[host]]\nname='c'\n";
        for (rails, word) in [
            ("", "0 ports"),
            ("[[rail]]\ndelay='1ms'", "no delay"),
            ("[[rail]]\nhosts=['a','b']", "every host"),
            ("[[rail]]\nrate='1mbit'\n[[rail]]\n", "some have none"),
            ("[[rail]]\nrates={a='1mbit'}", "some have none"),
            ("[[cluster]]\nname='x'\nhosts=['a']", "no cluster"),
        ] {
            let error = Topology::from_toml(&format!("{hosts}{rails}")).unwrap_err().to_string();
            assert!(error.contains(word), "{rails:?}: {error}");
        }
        let topology =
            Topology::from_toml(&format!("{hosts}[[rail]]\nrates={{a='1mbit',b='2mbit',c='3mbit'}}")).unwrap();
        assert_eq!(Topology::from_toml(&toml::to_string(&topology).unwrap()).unwrap(), topology);
        assert!(Ports::default().topology(&["a", "b"], &[None; PORTS_MAX + 1]).is_err());
        assert!(Ports::default().topology(&["a", "b"], &[None; PORTS_MAX]).is_ok());
    }
}
