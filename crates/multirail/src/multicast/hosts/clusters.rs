//! Which host is in which cluster, where somebody says so.

use super::{Entry, is_cluster_name};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Clusters by number, as all hosts of a group know them, and by name, as people do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clustering {
    /// The clusters' names, none twice.
    pub names: Vec<String>,
    /// Each host's cluster, in the order of the hosts. No cluster is empty.
    pub of: Vec<u32>,
}

/// Why hosts cannot be put into clusters as it was said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// A host with a cluster, and one without.
    #[error("{host} has no cluster and others have; give every host cluster=NAME, or none to have them measured")]
    Missing {
        /// The first one without.
        host: String,
    },
    /// A cluster of nobody.
    #[error("cluster {number} of --clusters has no host; take out the spare ';' or ','")]
    Empty {
        /// Which, from 1.
        number: usize,
    },
    /// A host that is not in the list of hosts.
    #[error("--clusters names {host:?}, which is not in --hosts; add it there, or correct the name")]
    Unknown {
        /// As it was written.
        host: String,
    },
    /// A host that is in no cluster.
    #[error("{host} is in --hosts and in no cluster of --clusters; add it to one")]
    Unplaced {
        /// Which.
        host: String,
    },
    /// A host that is in two.
    #[error("--clusters has {host} twice; take one of them out")]
    Twice {
        /// Which.
        host: String,
    },
    /// A cluster cannot be called so, or two are.
    #[error(
        "--clusters: {name:?} cannot be a cluster's name, or is one already; take letters, digits, '.', '-' and '_'"
    )]
    Name {
        /// As it was written.
        name: String,
    },
    /// Not a way to find clusters.
    #[error("{text:?}: write subnet, subnet/BITS (0 to 32 for IPv4, 128 for IPv6)")]
    By {
        /// As it was written.
        text: String,
    },
}

impl Clustering {
    /// From names, in the order in which they come first.
    pub fn from_names(names: impl IntoIterator<Item = String>) -> Self {
        let mut clustering = Self { names: Vec::new(), of: Vec::new() };
        let mut numbers = HashMap::new();
        for name in names {
            let number = *numbers.entry(name.clone()).or_insert(clustering.names.len() as u32);
            if number as usize == clustering.names.len() {
                clustering.names.push(name);
            }
            clustering.of.push(number);
        }
        clustering
    }

    /// From numbers of any kind; the clusters are called 1, 2, ... in the order in which they come first.
    pub fn from_numbers(numbers: &[u32]) -> Self {
        let mut clustering = Self::from_names(numbers.iter().map(u32::to_string));
        clustering.names = (1..=clustering.names.len()).map(|n| n.to_string()).collect();
        clustering
    }

    /// From what stands behind the hosts; `None` if nothing does.
    pub fn from_entries(entries: &[Entry]) -> Result<Option<Self>, ClusterError> {
        if entries.iter().all(|e| e.cluster.is_none()) {
            return Ok(None);
        }
        match entries.iter().find(|e| e.cluster.is_none()) {
            Some(without) => Err(ClusterError::Missing { host: without.shown() }),
            None => Ok(Some(Self::from_names(entries.iter().filter_map(|e| e.cluster.clone())))),
        }
    }

    /// From a list as `a,b;c,d` or `near=a,b;far=c,d`: hosts as in `entries` (the port may be left out where the name is enough).
    pub fn from_list(text: &str, entries: &[Entry]) -> Result<Self, ClusterError> {
        let hosts = Known::new(entries);
        let mut of: Vec<Option<u32>> = vec![None; entries.len()];
        let mut names: Vec<String> = Vec::new();
        for (number, cluster) in text.split(';').enumerate() {
            let (name, list) = match cluster.split_once('=') {
                Some((name, list)) => (name.trim().to_owned(), list),
                None => ((number + 1).to_string(), cluster),
            };
            if !is_cluster_name(&name) || names.contains(&name) {
                return Err(ClusterError::Name { name });
            }
            names.push(name);
            for host in list.split(',').map(str::trim) {
                if host.is_empty() {
                    return Err(ClusterError::Empty { number: number + 1 });
                }
                let index = hosts.find(host).ok_or_else(|| ClusterError::Unknown { host: host.to_owned() })?;
                if of[index].replace(number as u32).is_some() {
                    return Err(ClusterError::Twice { host: host.to_owned() });
                }
            }
        }
        let placed = of
            .iter()
            .zip(entries)
            .map(|(cluster, entry)| cluster.ok_or_else(|| ClusterError::Unplaced { host: entry.shown() }));
        Ok(Self { of: placed.collect::<Result<_, _>>()?, names })
    }

    /// The same for some of the hosts, by their places; clusters without any are gone.
    pub fn of_some(&self, hosts: impl IntoIterator<Item = usize>) -> Self {
        Self::from_names(hosts.into_iter().map(|host| self.names[self.of[host] as usize].clone()))
    }

    /// One cluster a subnet; `addresses` in the order of the hosts. The subnets are the names.
    pub fn by_subnet(addresses: &[IpAddr], subnet: Subnet) -> Self {
        Self::from_names(addresses.iter().map(|a| subnet.of(*a)))
    }
}

/// All hosts that a list of clusters names, those that are none left out.
pub(super) fn hosts_of(text: &str) -> impl Iterator<Item = Entry> {
    let clusters = text.split(';').map(|cluster| cluster.split_once('=').map_or(cluster, |(_, list)| list));
    clusters.flat_map(|list| list.split(',')).enumerate().filter_map(|(number, host)| {
        let (name, port) = super::parse_address(host.trim()).ok()?;
        Some(Entry { port, ..Entry::named(&name, super::Place::Item(number + 1)) })
    })
}

/// Hosts by what people call them.
struct Known {
    by_address: HashMap<String, usize>,
    /// `None`: several.
    by_name: HashMap<String, Option<usize>>,
}

impl Known {
    fn new(entries: &[Entry]) -> Self {
        let mut known = Known { by_address: HashMap::new(), by_name: HashMap::new() };
        for (index, entry) in entries.iter().enumerate() {
            known.by_address.insert(entry.address(), index);
            known.by_name.entry(entry.name.clone()).and_modify(|one| *one = None).or_insert(Some(index));
        }
        known
    }

    fn find(&self, text: &str) -> Option<usize> {
        let (name, port) = super::parse_address(text).ok()?;
        let entry = Entry { port, ..Entry::named(&name, super::Place::Item(1)) };
        let exact = self.by_address.get(&entry.address()).copied();
        // A name alone is enough where it is the only one, whatever its port.
        exact.or_else(|| self.by_name.get(&name).copied().flatten().filter(|_| port.is_none()))
    }
}

/// How much of an address is the cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    /// Leading bits; default 24 of IPv4 addresses, 64 of IPv6 ones.
    pub bits: Option<u8>,
}

impl Subnet {
    const V4_BITS: u8 = 24;
    const V6_BITS: u8 = 64;

    /// The subnet of an address, as `10.0.1.0/24`.
    pub fn of(self, address: IpAddr) -> String {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = self.bits.unwrap_or(Self::V4_BITS).min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                format!("{}/{bits}", std::net::Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let bits = self.bits.unwrap_or(Self::V6_BITS).min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                format!("{}/{bits}", std::net::Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }
}

impl FromStr for Subnet {
    type Err = ClusterError;
    fn from_str(text: &str) -> Result<Self, ClusterError> {
        let wrong = || ClusterError::By { text: text.to_owned() };
        match text.strip_prefix("subnet").ok_or_else(wrong)? {
            "" => Ok(Self { bits: None }),
            rest => match rest.strip_prefix('/').and_then(|bits| bits.parse().ok()) {
                Some(bits @ 0..=128) => Ok(Self { bits: Some(bits) }),
                _ => Err(wrong()),
            },
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits {
            Some(bits) => write!(f, "subnet/{bits}"),
            None => f.write_str("subnet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse_file, parse_list};
    use super::*;

    fn of(names: &[&str], of: &[u32]) -> Clustering {
        Clustering { names: names.iter().map(|n| (*n).to_owned()).collect(), of: of.to_vec() }
    }

    #[test]
    fn behind_the_hosts() {
        let from = |text: &str| Clustering::from_entries(&parse_file(text).unwrap());
        assert_eq!(from("x\ny"), Ok(None));
        assert_eq!(from("x cluster=b\ny cluster=a\nz cluster=b"), Ok(Some(of(&["b", "a"], &[0, 1, 0]))));
        assert_eq!(from("x cluster=b\ny"), Err(ClusterError::Missing { host: "y".to_owned() }));
    }

    #[test]
    fn lists_of_clusters() {
        let entries = parse_list("x,y:5,[::1]:7,z,z:9").unwrap();
        let from = |text: &str| Clustering::from_list(text, &entries);
        assert_eq!(from("x,y;[::1]:7,z,z:9"), Ok(of(&["1", "2"], &[0, 0, 1, 1, 1])));
        assert_eq!(from("near=z:9, y ;far=::1,x,z"), Ok(of(&["near", "far"], &[1, 0, 1, 1, 0])));
        for (text, says) in [
            ("x;;y", "cluster 2 of --clusters has no host"),
            ("x,y,[::1]:7,z,z:9;", "cluster 2 of --clusters has no host"),
            ("", "cluster 1 of --clusters has no host"),
            ("x,q", "\"q\", which is not in --hosts"),
            ("x:6", "\"x:6\", which is not in --hosts"),
            ("x;y,x", "has x twice"),
            ("x,y;z", "::1]:7 is in --hosts and in no cluster"),
            ("a=x;a=y", "cannot be a cluster's name, or is one already"),
            ("2=x;y", "or is one already"),
            ("a b=x", "cannot be a cluster's name"),
        ] {
            let error = from(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn subnets() {
        let addresses: Vec<IpAddr> = ["10.0.1.1", "10.0.2.1", "10.0.1.9", "::ffff:10.0.2.7", "fd00::1"]
            .iter()
            .map(|a| a.parse().unwrap())
            .collect();
        let by = |text: &str| Clustering::by_subnet(&addresses, text.parse().unwrap());
        assert_eq!(by("subnet"), of(&["10.0.1.0/24", "10.0.2.0/24", "fd00::/64"], &[0, 1, 0, 1, 2]));
        assert_eq!(by("subnet/16").of, [0, 0, 0, 0, 1]);
        assert_eq!(by("subnet/32").of, [0, 1, 2, 3, 4]);
        assert_eq!(by("subnet/128").of, [0, 1, 2, 3, 4], "all bits of the shorter ones");
        assert_eq!(by("subnet/0").of, [0, 0, 0, 0, 1], "the two kinds of address stay apart");
        assert_eq!(by("subnet/32").of_some([0, 3]), of(&["10.0.1.1/32", "10.0.2.7/32"], &[0, 1]));
        for bad in ["", "sub", "subnet/", "subnet/129", "subnet24", "rtt"] {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
    }
}
