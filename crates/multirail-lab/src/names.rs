//! Names of labs, hosts, namespaces and ports.
//!
//! A namespace is named `mrlab-<lab>-<host>`, the switch of rail 2 `mrlab-<lab>-switch.2`, the router of cluster c
//! `mrlab-<lab>-router.c`. A host's name has no dash and
//! no dot, so that the last dash always divides lab from host: taking down lab `a` never touches lab `a-b`.

use crate::error::{Error, Result};
use crate::topology::Topology;

/// What the name of every namespace made here begins with.
pub(crate) const PREFIX: &str = "mrlab-";

const ROUTER: &str = "router.";

/// Together with the prefix well below the 255 bytes of a file name.
const NAME_MAX_BYTES: usize = 64;

pub(crate) fn check_lab(name: &str) -> Result<()> {
    check("lab", name, "use 1 to 64 letters, digits, underscores and dashes, and no dash at either end", |c| {
        c.is_ascii_alphanumeric() || c == '_' || c == '-'
    })
}

pub(crate) fn check_host(name: &str) -> Result<()> {
    check("host", name, "use 1 to 64 letters, digits and underscores", |c| c.is_ascii_alphanumeric() || c == '_')
}

fn check(what: &'static str, name: &str, reason: &'static str, allowed: impl Fn(char) -> bool) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= NAME_MAX_BYTES
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name.chars().all(allowed);
    if fits { Ok(()) } else { Err(Error::BadName { what, name: name.to_owned(), reason }) }
}

pub(crate) fn host_namespace(lab: &str, host: &str) -> String {
    format!("{PREFIX}{lab}-{host}")
}

pub(crate) fn switch_namespace(lab: &str, rail: usize) -> String {
    format!("{PREFIX}{lab}-switch.{rail}")
}

/// The lab that a namespace belongs to, if it is one of ours.
pub(crate) fn lab_of(namespace: &str) -> Option<&str> {
    let (lab, _host) = namespace.strip_prefix(PREFIX)?.rsplit_once('-')?;
    check_lab(lab).is_ok().then_some(lab)
}

/// A cluster's router, as a host. No other host's name has a dot.
pub(crate) fn router(cluster: &str) -> String {
    format!("{ROUTER}{cluster}")
}

pub(crate) fn is_router(host: &str) -> bool {
    host.starts_with(ROUTER)
}

/// A switch or a router: its ports lead to many hosts.
pub(crate) fn is_hub(namespace: &str) -> bool {
    namespace.rsplit_once('-').is_some_and(|(_, host)| host.starts_with("switch.") || is_router(host))
}

const RAIL: &str = "rail";
const PORT: &str = "eth";

/// A host's port in its cluster.
pub(crate) const LAN_PORT: &str = "lan";

/// A host's port on a rail of this topology, or its port of this number.
pub(crate) fn port_of(topology: &Topology, rail: usize) -> String {
    if topology.ports.is_some() { format!("{PORT}{rail}") } else { host_port(rail) }
}

/// Such as `rail0.rp_filter` in the name of a sysctl.
pub(crate) fn is_port(name: &str) -> bool {
    let numbered = |kind: &str| name.strip_prefix(kind).is_some_and(|number| number.parse::<usize>().is_ok());
    name == LAN_PORT || numbered(RAIL) || numbered(PORT)
}

/// A host's port on a rail.
pub(crate) fn host_port(rail: usize) -> String {
    format!("{RAIL}{rail}")
}

/// A switch's port towards a host. By number: a host's name may be longer than the 15 bytes of a port's name.
pub(crate) fn switch_port(host_index: usize) -> String {
    format!("port{host_index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_its_lab() {
        assert_eq!(lab_of(&host_namespace("a", "h1")), Some("a"));
        assert_eq!(lab_of(&host_namespace("a-b", "h1")), Some("a-b"));
        assert_eq!(lab_of(&switch_namespace("a-b", 3)), Some("a-b"));
        assert_eq!(lab_of("mrlab-x"), None);
        assert_eq!(lab_of("other-a-b"), None);
    }

    #[test]
    fn names_at_the_limit() {
        assert!(check_host(&"h".repeat(64)).is_ok());
        for bad in ["", "a-b", "a.b", "a/b", "..", "a b", "ä", &"h".repeat(65)] {
            assert!(check_host(bad).is_err(), "{bad:?}");
        }
        assert!(check_lab("my-lab_1").is_ok());
        assert!(check_lab("-x").is_err() && check_lab("x-").is_err() && check_lab("../x").is_err());
    }
}
