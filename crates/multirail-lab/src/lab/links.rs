//! Operations on the links between clusters while a lab is up, and the counters of links.

use crate::error::{Error, Result};
use crate::kernel::counters;
use crate::lab::handle::Lab;
use crate::plan::{addresses, names};
use crate::spec::link_setting::LinkSetting;
use crate::spec::rate::Rate;
use crate::spec::topology::Cluster;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The current state of one direction of a link between two clusters, and its counters since the
/// lab was created.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LinkDirection {
    /// The index of the rail that is the link.
    pub rail: usize,
    /// The cluster that sends.
    pub from: String,
    /// The cluster that receives.
    pub to: String,
    /// The rate in Mbit/s (10^6 bit/s) of Ethernet frames.
    pub rate_mbit_s: f64,
    /// Bytes of frames that left.
    pub bytes: u64,
    /// Packets that left.
    pub packets: u64,
    /// Packets that found the queue full or were lost on the way.
    pub drops: u64,
}

impl Lab {
    /// The cluster of a host. `None` if there is no such host, or if it is in no cluster.
    pub fn cluster(&self, host: &str) -> Option<&str> {
        let (cluster, _) = self.cluster_position(host)?;
        Some(&self.topology().clusters[cluster].name)
    }

    /// The address of a host in its cluster, at which the hosts of all clusters reach it.
    ///
    /// # Errors
    /// [`Error::NoHost`] or [`Error::NotInCluster`].
    pub fn cluster_address(&self, host: &str) -> Result<Ipv4Addr> {
        self.namespace(host)?;
        let (cluster, index) = self
            .cluster_position(host)
            .ok_or_else(|| Error::NotInCluster { lab: self.name().to_owned(), host: host.to_owned() })?;
        Ok(addresses::cluster_host(cluster, index))
    }

    /// Changes links. Connections continue, and packets in flight keep their old delay.
    ///
    /// # Errors
    /// [`Error::BadLink`] if there is no such link; [`Error::NotWan`] if a link without delay,
    /// jitter and loss would get one. After these, nothing has changed. After an error of the
    /// kernel, some of the links may have changed.
    pub fn set_links(&self, settings: &[LinkSetting]) -> Result<()> {
        let mut rails = Vec::new();
        for setting in settings {
            let rail = setting.rail(self.topology())?;
            if setting.is_wan() && !self.topology().rails[rail].wan().is_wan() {
                return Err(Error::NotWan { lab: self.name().to_owned(), rail });
            }
            rails.push(rail);
        }
        let named = rails.iter().copied().collect::<BTreeSet<_>>();
        self.change_rails(&named, |all| {
            settings.iter().zip(&rails).for_each(|(setting, &rail)| setting.apply(&mut all[rail]));
        })
    }

    /// Both directions of each link between clusters. Empty if there are no clusters.
    ///
    /// # Errors
    /// [`Error::NotUp`] if the lab has been taken down, or the error of the kernel.
    pub fn link_directions(&self) -> Result<Vec<LinkDirection>> {
        let clusters = &self.topology().clusters;
        if clusters.is_empty() {
            return Ok(Vec::new());
        }
        let topology = self.state()?.topology;
        let relayed = self.wan_counters()?;
        let of_router =
            |cluster: &Cluster| counters::qdisc_counters(&names::host_namespace(self.name(), &cluster.router()));
        let qdiscs = clusters.iter().map(of_router).collect::<Result<Vec<_>>>()?;
        let mut directions = Vec::new();
        for rail in 0..topology.rails.len() {
            let [one, other] = topology.hosts_on(rail)[..] else { continue };
            for (from, to) in [(one, other), (other, one)] {
                // Routers are the first hosts, so the index of a router is that of its cluster.
                let (Some(sender), Some(receiver)) = (clusters.get(from), clusters.get(to)) else { continue };
                let router = sender.router();
                let port = names::rail_port(rail);
                let by_relay = relayed.iter().find(|counters| counters.rail == rail && counters.host == router);
                let by_kernel = qdiscs[from].iter().find(|counters| counters.port == port);
                let (bytes, packets, drops) = match (by_relay, by_kernel) {
                    (Some(c), _) => (c.carried_bytes, c.carried_packets, c.dropped_packets + c.lost_packets),
                    (None, Some(c)) => (c.bytes, c.packets, c.drops),
                    (None, None) => (0, 0, 0),
                };
                directions.push(LinkDirection {
                    rail,
                    from: sender.name.clone(),
                    to: receiver.name.clone(),
                    rate_mbit_s: topology.rails[rail].rate_of(&router).map_or(0.0, Rate::mbit_s),
                    bytes,
                    packets,
                    drops,
                });
            }
        }
        Ok(directions)
    }

    /// The index of a host's cluster, and the index of the host in it.
    fn cluster_position(&self, host: &str) -> Option<(usize, usize)> {
        let position =
            |(index, cluster): (usize, &Cluster)| Some((index, cluster.hosts.iter().position(|name| name == host)?));
        self.topology().clusters.iter().enumerate().find_map(position)
    }
}
