//! Clusters as a user gives them.

use super::{Entry, is_cluster_name};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Clusters by number, as the hosts of a group know them, and by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clustering {
    /// The names of the clusters, without repeats.
    pub names: Vec<String>,
    /// The cluster of each host, in the order of the hosts. No cluster is empty.
    pub of: Vec<u32>,
}

/// Why the given clusters cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// One host has a cluster and another one does not.
    #[error(
        "{host} has no cluster, but other hosts have one; give every host cluster=NAME, or none to have clusters measured"
    )]
    Missing {
        /// The first host without a cluster.
        host: String,
    },
    /// A cluster has no host.
    #[error("cluster {number} in the list of clusters has no host; remove the spare ';' or ','")]
    Empty {
        /// The number of the cluster, from 1.
        number: usize,
    },
    /// A host is not in the list of hosts.
    #[error(
        "the list of clusters names {host:?}, which is not in the list of hosts; add it there, or correct the name"
    )]
    Unknown {
        /// The host in the user's notation.
        host: String,
    },
    /// A host is in no cluster.
    #[error("{host} is in the list of hosts, but in no cluster; add it to a cluster")]
    Unplaced {
        /// The host.
        host: String,
    },
    /// A host is in two clusters.
    #[error("the list of clusters has {host} twice; remove one of them")]
    Twice {
        /// The host.
        host: String,
    },
    /// A cluster name is not allowed, or occurs twice.
    #[error("{name:?} is not a cluster name, or occurs twice; use letters, digits, '.', '-' and '_'")]
    Name {
        /// The given name.
        name: String,
    },
    /// Not a way to find clusters.
    #[error("{text:?}: write subnet, subnet/BITS (0 to 32 for IPv4, 128 for IPv6)")]
    By {
        /// The given text.
        text: String,
    },
}

impl Clustering {
    /// From names, in the order of their first occurrence.
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

    /// From any numbers. The clusters are called 1, 2, ... in the order of their first occurrence.
    pub fn from_numbers(numbers: &[u32]) -> Self {
        let mut clustering = Self::from_names(numbers.iter().map(u32::to_string));
        clustering.names = (1..=clustering.names.len()).map(|n| n.to_string()).collect();
        clustering
    }

    /// From the attributes of the hosts; `None` if no host has one.
    ///
    /// # Errors
    ///
    /// [`ClusterError`] if some hosts have a cluster and others have none.
    pub fn from_entries(entries: &[Entry]) -> Result<Option<Self>, ClusterError> {
        if entries.iter().all(|e| e.cluster.is_none()) {
            return Ok(None);
        }
        match entries.iter().find(|e| e.cluster.is_none()) {
            Some(without) => Err(ClusterError::Missing { host: without.shown() }),
            None => Ok(Some(Self::from_names(entries.iter().filter_map(|e| e.cluster.clone())))),
        }
    }

    /// From a list as `a,b;c,d` or `near=a,b;far=c,d`. Hosts are as in `entries`; the port may be
    /// left out if the name is unique.
    ///
    /// # Errors
    ///
    /// [`ClusterError`] names the item that is wrong, or the host that is missing.
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

    /// The clusters of some of the hosts, by their indices. Clusters without any of them disappear.
    pub fn of_some(&self, hosts: impl IntoIterator<Item = usize>) -> Self {
        Self::from_names(hosts.into_iter().map(|host| self.names[self.of[host] as usize].clone()))
    }

    /// One cluster for each subnet, named by it. `addresses` are in the order of the hosts.
    pub fn by_subnet(addresses: &[IpAddr], subnet: Subnet) -> Self {
        Self::from_names(addresses.iter().map(|a| subnet.of(*a)))
    }
}

/// All hosts in a list of clusters, without invalid ones.
pub(super) fn hosts_of(text: &str) -> impl Iterator<Item = Entry> {
    let clusters = text.split(';').map(|cluster| cluster.split_once('=').map_or(cluster, |(_, list)| list));
    clusters.flat_map(|list| list.split(',')).enumerate().filter_map(|(number, host)| {
        let (name, port) = super::parse_address(host.trim()).ok()?;
        Some(Entry { port, ..Entry::named(&name, super::EntryPosition::Item(number + 1)) })
    })
}

/// Hosts by the ways to write them.
pub(super) struct Known {
    by_address: HashMap<String, usize>,
    /// `None`: the name occurs several times.
    by_name: HashMap<String, Option<usize>>,
}

impl Known {
    pub(super) fn new(entries: &[Entry]) -> Self {
        let mut known = Known { by_address: HashMap::new(), by_name: HashMap::new() };
        for (index, entry) in entries.iter().enumerate() {
            known.by_address.insert(entry.address(), index);
            known.by_name.entry(entry.name.clone()).and_modify(|one| *one = None).or_insert(Some(index));
        }
        known
    }

    /// A host by its name, which must be unique, or by its name and port.
    pub(super) fn find(&self, text: &str) -> Option<usize> {
        let (name, port) = super::parse_address(text).ok()?;
        let entry = Entry { port, ..Entry::named(&name, super::EntryPosition::Item(1)) };
        let exact = self.by_address.get(&entry.address()).copied();
        // A unique name is enough, whatever its port.
        exact.or_else(|| self.by_name.get(&name).copied().flatten().filter(|_| port.is_none()))
    }
}

/// The part of an address that identifies the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    /// The number of leading bits; default 24 for IPv4 and 64 for IPv6.
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
            ("x;;y", "cluster 2 in the list of clusters has no host"),
            ("x,y,[::1]:7,z,z:9;", "cluster 2 in the list of clusters has no host"),
            ("", "cluster 1 in the list of clusters has no host"),
            ("x,q", "\"q\", which is not in the list of hosts"),
            ("x:6", "\"x:6\", which is not in the list of hosts"),
            ("x;y,x", "has x twice"),
            ("x,y;z", "::1]:7 is in the list of hosts, but in no cluster"),
            ("a=x;a=y", "is not a cluster name, or occurs twice"),
            ("2=x;y", "or occurs twice"),
            ("a b=x", "is not a cluster name"),
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
