//! The rules for the names of labs and hosts.
//!
//! A host name has no dash and no dot. The last dash of a namespace name thus divides lab from
//! host.

use crate::error::{Error, Result};

/// What the name of a router begins with. No other host name has a dot.
const ROUTER_PREFIX: &str = "router.";
/// The longest name in bytes. With the prefix of namespaces it stays below 255 bytes, the longest
/// file name.
const NAME_MAX_BYTES: usize = 64;

/// Checks the name of a lab.
pub(crate) fn check_lab(name: &str) -> Result<()> {
    check("lab", name, "use 1 to 64 letters, digits, underscores and dashes, and no dash at either end", |c| {
        c.is_ascii_alphanumeric() || c == '_' || c == '-'
    })
}

/// Checks the name of a host or of a cluster.
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

/// The name of a cluster's router, which is a host of the topology.
pub(crate) fn router(cluster: &str) -> String {
    format!("{ROUTER_PREFIX}{cluster}")
}

/// Whether a host is the router of a cluster.
pub(crate) fn is_router(host: &str) -> bool {
    host.starts_with(ROUTER_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
