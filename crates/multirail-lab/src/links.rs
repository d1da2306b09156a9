//! What can be done with the links between the clusters of a lab that is up.

use crate::clusters::LinkSetting;
use crate::error::{Error, Result};
use crate::kernel::{self, PortCounters};
use crate::lab::Lab;
use crate::lan;
use crate::names;
use crate::rate::Rate;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// One direction of a link between two clusters, as it is now, and what it has done since the lab was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkDirection {
    /// The rail that is the link.
    pub rail: usize,
    /// The cluster that sends.
    pub from: String,
    /// The cluster that receives.
    pub to: String,
    /// Its rate, in Mbit/s (10^6 bit/s) of Ethernet frames.
    pub rate_mbit_s: f64,
    /// Bytes of frames that left.
    pub bytes: u64,
    /// Packets that left.
    pub packets: u64,
    /// Packets that found the queue full, or were lost on the way.
    pub drops: u64,
}

impl Lab {
    /// The cluster that a host is in. None: it is in no cluster, or no host.
    pub fn cluster(&self, host: &str) -> Option<&str> {
        let (cluster, _) = self.place(host)?;
        Some(&self.topology().clusters[cluster].name)
    }

    /// A host's address in its cluster, at which all hosts of all clusters reach it.
    pub fn cluster_address(&self, host: &str) -> Result<Ipv4Addr> {
        self.namespace(host)?;
        let (cluster, index) = self
            .place(host)
            .ok_or_else(|| Error::NotInCluster { lab: self.name().to_owned(), host: host.to_owned() })?;
        Ok(lan::host_address(cluster, index))
    }

    /// Changes links. Connections live on, and what is on the way stays so. All are changed, or, where one cannot be, as
    /// far as they are named.
    ///
    /// Errors if there is no such link, or if it was made without delay, jitter and loss and should get one.
    pub fn set_links(&self, settings: &[LinkSetting]) -> Result<()> {
        let mut rails = Vec::new();
        for setting in settings {
            let rail = setting.rail(self.topology())?;
            if setting.wan.is_wan() && !self.topology().rails[rail].wan().is_wan() {
                return Err(Error::NotWan { lab: self.name().to_owned(), rail });
            }
            rails.push(rail);
        }
        let named = rails.iter().copied().collect::<BTreeSet<_>>();
        self.change_rails(&named, |all| {
            settings.iter().zip(&rails).for_each(|(setting, &rail)| setting.apply(&mut all[rail]));
        })
    }

    /// All links between clusters, both directions of each. Empty where there are no clusters.
    pub fn link_directions(&self) -> Result<Vec<LinkDirection>> {
        let clusters = &self.topology().clusters;
        let Some(topology) = self.summary()?.topology.filter(|_| !clusters.is_empty()) else { return Ok(Vec::new()) };
        let relayed = self.wan_counters()?;
        let by_router =
            |cluster: &crate::Cluster| kernel::port_counters(&names::host_namespace(self.name(), &cluster.router()));
        let by_kernel = clusters.iter().map(by_router).collect::<Result<Vec<_>>>()?;
        let mut directions = Vec::new();
        for rail in 0..topology.rails.len() {
            let [one, other] = topology.hosts_on(rail)[..] else { continue };
            for (from, to) in [(one, other), (other, one)] {
                // Routers are the first hosts.
                let (Some(sender), Some(receiver)) = (clusters.get(from), clusters.get(to)) else { continue };
                let router = sender.router();
                let port = names::host_port(rail);
                let relayed = relayed.iter().find(|counters| counters.rail == rail && counters.host == router);
                let counted = match relayed {
                    Some(relayed) => PortCounters {
                        bytes: relayed.carried_bytes,
                        packets: relayed.carried_packets,
                        drops: relayed.dropped_packets + relayed.lost_packets,
                        ..PortCounters::default()
                    },
                    None => by_kernel[from].iter().find(|counters| counters.port == port).cloned().unwrap_or_default(),
                };
                directions.push(LinkDirection {
                    rail,
                    from: sender.name.clone(),
                    to: receiver.name.clone(),
                    rate_mbit_s: topology.rails[rail].rate_of(&router).map_or(0.0, Rate::mbit_s),
                    bytes: counted.bytes,
                    packets: counted.packets,
                    drops: counted.drops,
                });
            }
        }
        Ok(directions)
    }

    /// A host's cluster and its place in there.
    fn place(&self, host: &str) -> Option<(usize, usize)> {
        let place = |(cluster, wanted): (usize, &crate::Cluster)| {
            Some((cluster, wanted.hosts.iter().position(|name| name == host)?))
        };
        self.topology().clusters.iter().enumerate().find_map(place)
    }
}
