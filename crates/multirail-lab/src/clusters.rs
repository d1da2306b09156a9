//! Clusters of hosts, and the links between them: a topology in which each cluster has a router, and each two routers are
//! joined by a rail of their own.

use crate::error::{Error, Result};
use crate::names;
use crate::rate::Rate;
use crate::topology::{Host, Rail, Topology};
use crate::wan::Wan;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Hosts of one network, whose traffic to other clusters their router carries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Letters, digits and underscores.
    pub name: String,
    /// Its hosts, in the order of their addresses.
    pub hosts: Vec<String>,
    /// How fast each host's traffic with other clusters may be, each way. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Rate>,
}

impl Cluster {
    /// The name of its router, which is a host of the topology, too.
    pub fn router(&self) -> String {
        names::router(&self.name)
    }
}

/// A full mesh of clusters to be made: `a=4,b=12` has hosts `a0` to `a3` and `b0` to `b11`.
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

    /// The rate of directions that no [`Clusters::link`] is for. Default: each must have one.
    pub fn link_default(mut self, rate: Option<Rate>) -> Self {
        self.link_default = rate;
        self
    }

    /// Delay, jitter, loss and queue of all links, where their [`Clusters::link`] has no others.
    pub fn wan(mut self, wan: Wan) -> Self {
        self.wan = wan;
        self
    }

    /// A link that is not as the others. Of two for the same the later counts.
    pub fn link(mut self, link: LinkSetting) -> Self {
        self.links.push(link);
        self
    }

    /// How fast each host's traffic with other clusters may be, each way. What hosts of a cluster send each other is not
    /// limited.
    pub fn access(mut self, rate: Option<Rate>) -> Self {
        self.access = rate;
        self
    }

    /// A sysctl of all hosts, but not of the routers.
    pub fn sysctl(mut self, key: &str, value: &str) -> Self {
        self.sysctl.insert(key.to_owned(), value.to_owned());
        self
    }

    /// What a lab is made of. Errors if names are bad, or a direction has no rate.
    pub fn topology(&self) -> Result<Topology> {
        let cluster = |(name, hosts): &(String, usize)| Cluster {
            name: name.clone(),
            hosts: (0..*hosts).map(|host| format!("{name}{host}")).collect(),
            access: self.access,
        };
        let clusters: Vec<Cluster> = self.clusters.iter().map(cluster).collect();
        // Routers first: their numbers are in the addresses of the links.
        let routers = clusters.iter().map(|cluster| Host { name: cluster.router(), ..Host::default() });
        let host = |name: &String| Host { name: name.clone(), sysctl: self.sysctl.clone() };
        let hosts = routers.chain(clusters.iter().flat_map(|cluster| &cluster.hosts).map(host)).collect();
        let mut rails = Vec::new();
        for (first, one) in clusters.iter().enumerate() {
            for other in &clusters[first + 1..] {
                let ends = [one.router(), other.router()];
                let rates = self.link_default.iter().flat_map(|rate| ends.clone().map(|end| (end, *rate))).collect();
                let mut rail = Rail { rates, hosts: ends.to_vec(), ipv6: false, ..Rail::default() };
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

/// What a link between two clusters should be from now on. Written `a-b=80mbit` for both directions, `a>b=8mbit` for one;
/// also with `delay`, `jitter`, `loss` and `queue`, which are both directions': `a-b=80mbit,delay=10ms`, `a-b=delay=50ms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSetting {
    /// The cluster that sends.
    pub from: String,
    /// The cluster that receives.
    pub to: String,
    /// Whether the rate is also that of the other direction.
    pub both_ways: bool,
    /// The rate, if it changes.
    pub rate: Option<Rate>,
    /// Of delay, jitter, loss and queue, what changes.
    pub wan: Wan,
}

impl LinkSetting {
    /// Whether it is of the link between these two.
    pub fn is_of(&self, one: &str, other: &str) -> bool {
        (self.from == one && self.to == other) || (self.from == other && self.to == one)
    }

    /// The index of its rail.
    pub(crate) fn rail(&self, topology: &Topology) -> Result<usize> {
        let known: Vec<&str> = topology.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        let bad = |reason: String| Error::BadLink { input: self.to_string(), reason };
        if known.is_empty() {
            return Err(bad("there are no clusters".into()));
        }
        for name in [&self.from, &self.to] {
            if !known.contains(&name.as_str()) {
                return Err(bad(format!("there is no cluster {name:?}, only {}", known.join(", "))));
            }
        }
        let ends = [names::router(&self.from), names::router(&self.to)];
        let rail = topology.rails.iter().position(|rail| ends.iter().all(|end| rail.hosts.contains(end)));
        rail.filter(|_| self.from != self.to).ok_or_else(|| bad("a link is between two clusters".into()))
    }

    pub(crate) fn apply(&self, rail: &mut Rail) {
        if let Some(rate) = self.rate {
            rail.rates.insert(names::router(&self.from), rate);
            if self.both_ways {
                rail.rates.insert(names::router(&self.to), rate);
            }
        }
        let before = rail.wan();
        rail.set_wan(Wan {
            delay: self.wan.delay.or(before.delay),
            jitter: self.wan.jitter.or(before.jitter),
            loss: self.wan.loss.or(before.loss),
            queue: self.wan.queue.or(before.queue),
        });
    }
}

impl FromStr for LinkSetting {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = |reason: &str| Error::BadLink { input: input.to_owned(), reason: reason.to_owned() };
        let (ends, values) = input.trim().split_once('=').ok_or_else(|| bad("there is no `=`"))?;
        let at = ends.find(['-', '>']).ok_or_else(|| bad("there is no `-` and no `>` between clusters"))?;
        let (from, to, both_ways) = (ends[..at].trim(), ends[at + 1..].trim(), ends[at..].starts_with('-'));
        names::check_host(from)?;
        names::check_host(to)?;
        let mut link = Self { from: from.to_owned(), to: to.to_owned(), both_ways, rate: None, wan: Wan::default() };
        for value in values.split(',') {
            match value.split_once('=') {
                None => link.rate = Some(value.parse()?),
                Some(_) if !both_ways => return Err(bad("a delay is of both directions: write `-`")),
                Some(("delay", delay)) => link.wan.delay = Some(delay.parse()?),
                Some(("jitter", jitter)) => link.wan.jitter = Some(jitter.parse()?),
                Some(("loss", loss)) => link.wan.loss = Some(loss.parse()?),
                Some(("queue", queue)) => link.wan.queue = Some(queue.parse()?),
                Some(_) => return Err(bad("beside a rate, links have delay, jitter, loss and queue")),
            }
        }
        Ok(link)
    }
}

impl std::fmt::Display for LinkSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, to, both_ways, rate, wan } = self;
        let values = [
            rate.map(|rate| rate.to_string()),
            wan.delay.map(|delay| format!("delay={delay}")),
            wan.jitter.map(|jitter| format!("jitter={jitter}")),
            wan.loss.map(|loss| format!("loss={loss}")),
            wan.queue.map(|queue| format!("queue={queue}")),
        ];
        let values: Vec<String> = values.into_iter().flatten().collect();
        write!(f, "{from}{}{to}={}", if *both_ways { '-' } else { '>' }, values.join(","))
    }
}

/// Whether clusters are such as can be made: each host in one, each router and each two routers' rail there.
pub(crate) fn check(topology: &Topology) -> Result<()> {
    let bad = |reason: String| Err(Error::BadTopology(reason));
    let clusters = &topology.clusters;
    let mut placed = BTreeSet::new();
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
            if !placed.insert(host) {
                return bad(format!("host {host:?} is in clusters twice"));
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
            return bad(format!("rail {index} is of routers, but not the one link between two of them"));
        }
        for (from, to) in [(hosts[0], hosts[1]), (hosts[1], hosts[0])] {
            if rail.rate_of(&topology.hosts[from].name).is_none() {
                let (from, to) = (&clusters[from].name, &clusters[to].name);
                return bad(format!("the link {from}>{to} has no rate\nhint: give it one, or all by --link-default"));
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

    fn three() -> Clusters {
        Clusters::new(&[("a", 2), ("b", 1), ("c", 3)]).link_default("10mbit".parse().ok())
    }

    #[test]
    fn a_mesh_has_a_router_a_cluster_and_a_rail_a_pair() {
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
    fn settings_are_read_back_and_what_is_none_is_refused() {
        for text in
            ["a-b=80mbit", "a>b=8mbit", "x_1-y=1.5gbit,delay=10ms,jitter=1ms,loss=0.1%,queue=64k", "a-b=delay=5ms"]
        {
            let link: LinkSetting = text.parse().unwrap();
            assert_eq!(link.to_string(), text);
        }
        for text in
            ["", "a-b", "ab=8mbit", "-b=8mbit", "a>=8mbit", "a-b=", "a-b=fast", "a>b=8mbit,delay=1ms", "a-b=speed=1"]
        {
            assert!(text.parse::<LinkSetting>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn refuses_clusters_that_make_no_mesh() {
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
