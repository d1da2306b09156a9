//! The root and its receivers.

use super::{ClusterError, Clustering, Entry, EntryPosition, HostsError, SELF, Subnet, clusters};
use std::net::IpAddr;

/// The hosts of a broadcast. Lists by host have the root first, then the receivers in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// This host; [`SELF`] if it was in no list.
    pub root: Entry,
    /// Whether it was in the list of hosts.
    pub root_listed: bool,
    /// The receivers.
    pub receivers: Vec<Entry>,
}

impl Party {
    /// Finds this host by its names and addresses in the list of hosts, or in the list `clusters`.
    ///
    /// # Errors
    ///
    /// [`HostsError`] if the list has this host twice, or no other host.
    pub fn new(
        entries: Vec<Entry>,
        clusters: Option<&str>,
        names: &[String],
        addresses: &[IpAddr],
    ) -> Result<Self, HostsError> {
        let (mut own, receivers): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|entry| entry.is_self(names, addresses));
        let root_listed = !own.is_empty();
        if let Some(second) = own.get(1) {
            return Err(HostsError::TwiceSelf { place: second.place, first: own[0].place, host: second.shown() });
        }
        let in_clusters = || clusters::hosts_of(clusters.unwrap_or_default()).find(|e| e.is_self(names, addresses));
        let root = own.pop().or_else(in_clusters).unwrap_or_else(|| Entry::named(SELF, EntryPosition::Item(0)));
        Self { root, root_listed, receivers }.checked()
    }

    /// This host alone, which others join.
    pub fn alone() -> Self {
        Self { root: Entry::named(SELF, EntryPosition::Item(0)), root_listed: false, receivers: Vec::new() }
    }

    /// Takes the first entry as the root.
    ///
    /// # Errors
    ///
    /// [`HostsError`] if there are fewer than two entries, or too many.
    pub fn with_first(mut entries: Vec<Entry>) -> Result<Self, HostsError> {
        if entries.is_empty() {
            return Err(HostsError::NoHosts);
        }
        let root = entries.remove(0);
        Self { root, root_listed: true, receivers: entries }.checked()
    }

    fn checked(self) -> Result<Self, HostsError> {
        match self.receivers.len() {
            0 => Err(HostsError::OnlySelf),
            count if count >= super::MAX_HOSTS => Err(HostsError::TooMany(count + 1)),
            _ => Ok(self),
        }
    }

    /// The clusters of a list. A root that is not in the list is alone in a cluster called `root`.
    ///
    /// # Errors
    ///
    /// Those of [`Clustering::from_list`].
    pub fn clusters_of_list(&self, text: &str) -> Result<Clustering, ClusterError> {
        let names_root = clusters::hosts_of(text).any(|e| e.name == self.root.name);
        if names_root {
            let all: Vec<Entry> = std::iter::once(&self.root).chain(&self.receivers).cloned().collect();
            return Clustering::from_list(text, &all);
        }
        Ok(with_root(Clustering::from_list(text, &self.receivers)?))
    }

    /// The clusters that follow the hosts; `None` if no host has one. The root may have none, as
    /// above.
    ///
    /// # Errors
    ///
    /// Those of [`Clustering::from_entries`].
    pub fn clusters_of_entries(&self) -> Result<Option<Clustering>, ClusterError> {
        let receivers = Clustering::from_entries(&self.receivers)?;
        match (&self.root.cluster, receivers) {
            (None, receivers) => Ok(receivers.map(with_root)),
            (Some(_), None) => Err(ClusterError::Missing { host: self.receivers[0].shown() }),
            (Some(root), Some(receivers)) => {
                let names = receivers.of.iter().map(|c| receivers.names[*c as usize].clone());
                Ok(Some(Clustering::from_names(std::iter::once(root.clone()).chain(names))))
            }
        }
    }

    /// One cluster for each subnet, from the addresses of all hosts.
    pub fn clusters_by_subnet(root: IpAddr, receivers: &[IpAddr], subnet: Subnet) -> Clustering {
        let all: Vec<IpAddr> = std::iter::once(root).chain(receivers.iter().copied()).collect();
        Clustering::by_subnet(&all, subnet)
    }
}

/// Puts a root without a cluster into a cluster of its own.
fn with_root(receivers: Clustering) -> Clustering {
    let mut name = "root".to_owned();
    while receivers.names.contains(&name) {
        name.push('_');
    }
    let mut names = receivers.names;
    names.push(name);
    let root = names.len() as u32 - 1;
    Clustering { names, of: std::iter::once(root).chain(receivers.of).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::parse_list;
    use super::*;

    fn party(list: &str, clusters: Option<&str>) -> Result<Party, HostsError> {
        Party::new(parse_list(list).unwrap(), clusters, &["me".to_owned()], &["10.0.0.1".parse().unwrap()])
    }

    #[test]
    fn the_root_is_found() {
        let shown = |p: &Party| (p.root.shown(), p.receivers.iter().map(Entry::shown).collect::<Vec<_>>().join(" "));
        let text = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(shown(&party("a,me,b", None).unwrap()), text("me", "a b"));
        assert_eq!(shown(&party("a,10.0.0.1:9,b", None).unwrap()), text("10.0.0.1:9", "a b"));
        assert_eq!(shown(&party("a,b", None).unwrap()), text("self", "a b"));
        let named_later = party("a,b", Some("10.0.0.1,a;b")).unwrap();
        assert_eq!((shown(&named_later), named_later.root_listed), (text("10.0.0.1", "a b"), false));
        assert_eq!(party("me", None), Err(HostsError::OnlySelf));
        assert!(matches!(party("a,me,10.0.0.1", None), Err(HostsError::TwiceSelf { .. })));
        assert_eq!(shown(&Party::with_first(parse_list("n1,n2").unwrap()).unwrap()), text("n1", "n2"));
        assert_eq!(Party::with_first(parse_list("n1").unwrap()), Err(HostsError::OnlySelf));
    }

    #[test]
    fn clusters_have_the_root_first() {
        let of_list = |list: &str, clusters: &str| {
            let clusters = party(list, Some(clusters)).unwrap().clusters_of_list(clusters).unwrap();
            (clusters.names.join(" "), clusters.of)
        };
        assert_eq!(of_list("a,b", "10.0.0.1,a;b"), ("1 2".to_owned(), vec![0, 0, 1]));
        assert_eq!(of_list("a,me,b", "a;b,me"), ("1 2".to_owned(), vec![1, 0, 1]));
        assert_eq!(of_list("a,b", "a;self,b"), ("1 2".to_owned(), vec![1, 0, 1]));
        assert_eq!(of_list("a,b", "a;b"), ("1 2 root".to_owned(), vec![2, 0, 1]));
        assert_eq!(of_list("a,b", "root=a;b"), ("root 2 root_".to_owned(), vec![2, 0, 1]));

        let of_entries = |list: &str| party(list, None).unwrap().clusters_of_entries();
        let clusters = |list: &str| of_entries(list).unwrap().map(|c| (c.names.join(" "), c.of));
        assert_eq!(clusters("a,me,b"), None);
        assert_eq!(clusters("a cluster=x,b cluster=y"), Some(("x y root".to_owned(), vec![2, 0, 1])));
        assert_eq!(clusters("a cluster=x,me cluster=y,b cluster=y"), Some(("y x".to_owned(), vec![0, 1, 0])));
        assert!(of_entries("me cluster=x,a").is_err());
        assert!(of_entries("a cluster=x,b").is_err());
        let subnets = Party::clusters_by_subnet(
            "10.0.0.1".parse().unwrap(),
            &["10.0.1.1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
            Subnet { bits: None },
        );
        assert_eq!(subnets.of, [0, 1, 0]);
    }
}
