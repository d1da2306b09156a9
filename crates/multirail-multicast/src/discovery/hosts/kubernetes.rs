//! Pods behind a headless service, with one name that resolves to all of them.
//!
//! In a StatefulSet (or an indexed Job) all pods run the same command. The pod whose hostname ends
//! in `-0` is the root; the others receive.

use super::{Entry, EntryPosition, HostsError};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The prefix of a list of hosts that is resolved by the domain name system.
pub const PREFIX: &str = "dns:";

/// A name that resolves to all hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The name.
    pub name: String,
    /// The port of the hosts, if given.
    pub port: Option<u16>,
}

/// The role of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It has the data and invites the others.
    Root,
    /// It serves until the broadcast is over.
    Receiver,
}

impl Service {
    /// Parses `dns:NAME[:PORT]`; `None` if the text does not begin with `dns:`.
    pub fn parse(text: &str) -> Option<Result<Self, HostsError>> {
        let text = text.strip_prefix(PREFIX)?;
        let parsed = super::parse_address(text).and_then(|(name, port)| match name.parse::<IpAddr>() {
            Ok(_) => Err("dns: requires a name, not an address"),
            Err(_) => Ok(Self { name, port }),
        });
        Some(parsed.map_err(|why| super::bad(EntryPosition::Item(1), text, why)))
    }

    /// The hosts that the name resolved to, in the order of their addresses, so that the order is
    /// always the same.
    ///
    /// # Errors
    ///
    /// [`HostsError`] if there are no hosts, or too many.
    pub fn entries(&self, mut addresses: Vec<IpAddr>) -> Result<Vec<Entry>, HostsError> {
        addresses.iter_mut().for_each(|a| *a = a.to_canonical());
        addresses.sort_unstable();
        addresses.dedup();
        let entries = addresses.iter().enumerate().map(|(number, address)| Entry {
            port: self.port,
            ..Entry::named(&address.to_string(), EntryPosition::Item(number + 1))
        });
        let entries = entries.collect::<Vec<_>>();
        super::check(&entries)?;
        Ok(entries)
    }
}

/// The role of this pod. `None` outside Kubernetes and in pods without an ordinal, which are
/// clients of running servers.
pub fn role(env: &BTreeMap<String, String>, hostname: &str) -> Option<Role> {
    env.get("KUBERNETES_SERVICE_HOST")?;
    let pod = hostname.split('.').next().unwrap_or_default();
    let (_, ordinal) = pod.rsplit_once('-')?;
    match ordinal.parse::<u32>() {
        // `web-01` and `web-+1` are not ordinals.
        Ok(number) if number.to_string() == ordinal => Some(if number == 0 { Role::Root } else { Role::Receiver }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services() {
        let service = |name: &str, port| Some(Ok(Service { name: name.to_owned(), port }));
        assert_eq!(Service::parse("dns:models.ml.svc"), service("models.ml.svc", None));
        assert_eq!(Service::parse("dns:models:99"), service("models", Some(99)));
        assert_eq!(Service::parse("models"), None);
        for bad in ["dns:", "dns::7", "dns:10.0.0.1", "dns:[::1]:7", "dns:a:x"] {
            assert!(matches!(Service::parse(bad), Some(Err(HostsError::Address { .. }))), "{bad}");
        }
    }

    #[test]
    fn pods_are_in_the_order_of_their_addresses() {
        let service = Service { name: "s".to_owned(), port: Some(9) };
        let addresses = ["10.0.0.10", "::ffff:10.0.0.2", "10.0.0.2", "fd00::1"].map(|a| a.parse().unwrap()).to_vec();
        let entries = service.entries(addresses).unwrap();
        assert_eq!(
            entries.iter().map(Entry::address).collect::<Vec<_>>(),
            ["10.0.0.2:9", "10.0.0.10:9", "[fd00::1]:9"]
        );
        assert_eq!(service.entries(Vec::new()), Err(HostsError::NoHosts));
    }

    #[test]
    fn roles() {
        let pod = BTreeMap::from([("KUBERNETES_SERVICE_HOST".to_owned(), "10.96.0.1".to_owned())]);
        for (hostname, expected) in [
            ("load-0", Some(Role::Root)),
            ("load-0.models.ml.svc.cluster.local", Some(Role::Root)),
            ("load-1", Some(Role::Receiver)),
            ("load-10", Some(Role::Receiver)),
            ("load-00", None),
            ("load-6c9f7", None),
            ("load", None),
            ("", None),
        ] {
            assert_eq!(role(&pod, hostname), expected, "{hostname}");
        }
        assert_eq!(role(&BTreeMap::new(), "load-0"), None);
    }
}
