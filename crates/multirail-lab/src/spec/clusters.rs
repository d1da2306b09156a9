//! A builder of topologies of clusters: each cluster has a router, and a rail joins each pair of
//! routers.

use crate::error::Result;
use crate::spec::link_setting::LinkSetting;
use crate::spec::rate::Rate;
use crate::spec::topology::{Cluster, LabHost, LabRail, Topology};
use crate::spec::wan::Wan;
use std::collections::BTreeMap;

/// Builds a full mesh of clusters: `("a", 4)` and `("b", 12)` make hosts `a0` to `a3` and `b0` to
/// `b11`.
///
/// ```
/// use multirail_lab::Clusters;
///
/// let topology = Clusters::new(&[("a", 4), ("b", 4)]).link("a-b=80mbit,delay=10ms".parse()?).topology()?;
/// # Ok::<(), multirail_lab::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Clusters {
    clusters: Vec<(String, usize)>,
    link_default: Option<Rate>,
    wan: Wan,
    links: Vec<LinkSetting>,
    access: Option<Rate>,
    sysctl: BTreeMap<String, String>,
}

impl Clusters {
    /// Clusters by name and number of hosts.
    pub fn new<N: AsRef<str>>(clusters: &[(N, usize)]) -> Self {
        let clusters = clusters.iter().map(|(name, hosts)| (name.as_ref().to_owned(), *hosts)).collect();
        Self { clusters, ..Self::default() }
    }

    /// The rate of each direction that no [`Clusters::link`] sets. Default: none, so each direction
    /// needs a setting.
    #[must_use]
    pub fn link_default(mut self, rate: Option<Rate>) -> Self {
        self.link_default = rate;
        self
    }

    /// The delay, jitter, loss and queue of each link that no [`Clusters::link`] sets.
    #[must_use]
    pub fn wan(mut self, wan: Wan) -> Self {
        self.wan = wan;
        self
    }

    /// Adds the setting of one link. Of two settings for the same link, the later one wins.
    #[must_use]
    pub fn link(mut self, link: LinkSetting) -> Self {
        self.links.push(link);
        self
    }

    /// The rate of each host's traffic with other clusters, in each direction. Traffic within a
    /// cluster is not limited. Default: no limit.
    #[must_use]
    pub fn access(mut self, rate: Option<Rate>) -> Self {
        self.access = rate;
        self
    }

    /// Sets a sysctl of all hosts, but not of the routers.
    #[must_use]
    pub fn sysctl(mut self, key: &str, value: &str) -> Self {
        self.sysctl.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Builds and checks the topology.
    ///
    /// # Errors
    /// [`crate::Error::BadName`], [`crate::Error::BadLink`] for a setting of an unknown link,
    /// [`crate::Error::LinkWithoutRate`], or [`crate::Error::BadTopology`].
    pub fn topology(&self) -> Result<Topology> {
        let cluster = |(name, hosts): &(String, usize)| Cluster {
            name: name.clone(),
            hosts: (0..*hosts).map(|host| format!("{name}{host}")).collect(),
            access: self.access,
        };
        let clusters: Vec<Cluster> = self.clusters.iter().map(cluster).collect();
        // Routers are the first hosts, because their indices are part of the addresses of links.
        let routers = clusters.iter().map(|cluster| LabHost::new(cluster.router()));
        let host = |name: &String| LabHost { name: name.clone(), sysctl: self.sysctl.clone() };
        let hosts = routers.chain(clusters.iter().flat_map(|cluster| &cluster.hosts).map(host)).collect();
        let mut rails = Vec::new();
        for (first, one) in clusters.iter().enumerate() {
            for other in &clusters[first + 1..] {
                let ends = [one.router(), other.router()];
                let rates = self.link_default.iter().flat_map(|rate| ends.clone().map(|end| (end, *rate))).collect();
                let mut rail = LabRail { rates, hosts: ends.to_vec(), ipv6: false, ..LabRail::default() };
                rail.set_wan(self.wan);
                rails.push(rail);
            }
        }
        let mut topology = Topology { hosts, rails, clusters, ports: None };
        for link in &self.links {
            let rail = link.rail(&topology)?;
            link.apply(&mut topology.rails[rail]);
        }
        topology.check()?;
        Ok(topology)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Clusters {
        Clusters::new(&[("a", 2), ("b", 1), ("c", 3)]).link_default("10mbit".parse().ok())
    }

    #[test]
    fn a_mesh_has_a_router_per_cluster_and_a_rail_per_pair() {
        let link = |text: &str| text.parse().unwrap();
        let topology = three().link(link("c-a=80mbit,delay=50ms")).link(link("c>b=1mbit")).topology().unwrap();
        let names: Vec<&str> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["router.a", "router.b", "router.c", "a0", "a1", "b0", "c0", "c1", "c2"]);
        let rates: Vec<(f64, f64)> = topology
            .rails
            .iter()
            .map(|rail| [0, 1].map(|end| rail.rate_of(&rail.hosts[end]).unwrap().mbit_s()))
            .map(|[there, back]| (there, back))
            .collect();
        assert_eq!(rates, [(10.0, 10.0), (80.0, 80.0), (10.0, 1.0)]);
        assert_eq!(topology.rails[1].delay, "50ms".parse().ok());
        assert_eq!(topology.rails[0].delay, None);
        let again = Topology::from_toml(&toml::to_string(&topology).unwrap()).unwrap();
        assert_eq!(again, topology);
    }

    #[test]
    fn clusters_that_make_no_mesh_are_refused() {
        let refused = |clusters: Clusters, word: &str| {
            let error = clusters.topology().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        refused(Clusters::new(&[("a", 2), ("b", 1)]), "a>b has no rate");
        refused(Clusters::new(&[("a", 2), ("b", 0)]).link_default("1mbit".parse().ok()), "\"b\" has no host");
        refused(Clusters::new(&[("a", 11), ("a1", 1)]).link_default("1mbit".parse().ok()), "\"a10\" is there twice");
        refused(Clusters::new(&[("a-b", 1)]), "a-b");
        refused(three().link("a-d=1mbit".parse().unwrap()), "no cluster \"d\"");
        refused(three().link("a-a=1mbit".parse().unwrap()), "between two");
        refused(Clusters::new(&[("a", 1024)]), "more than 1024");
        let mut topology = three().topology().unwrap();
        topology.rails.pop();
        assert!(topology.check().unwrap_err().to_string().contains("1 of 3 links"));
    }
}
