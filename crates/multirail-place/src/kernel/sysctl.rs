//! The kernel's settings that placement changes.
//!
//! Packets for an address of the first port arrive at all ports. The kernel accepts them there (it
//! is a "weak host"), unless one of these settings prevents it:
//!
//! - `rp_filter` drops a packet at a port by which the answer would not leave. Loose filtering (2)
//!   drops it, too, at a port without an address. The larger value of the port and of `all` counts.
//!   So if `all` is not 0, it becomes 0 and every other port gets its value.
//! - `arp_ignore` and `arp_announce`: if switches are connected, the extra ports see requests for
//!   the address of the first port, and would answer with their own.
//! - `disable_ipv6`: a port without IPv6 drops its packets. Placement enables IPv6 on it without a
//!   link-local address, duplicate detection and router solicitations.
//!
//! `tcp_min_rtt_wlen` keeps TCP from mistaking reordering for loss. TCP waits for a part of the
//! shortest round trip of the last five minutes. That is the round trip of an idle network, and
//! much shorter than the difference between queues.

use super::ports::PortInfo;
use crate::{Error, Policy, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::PathBuf;

/// A setting that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    family: Family,
    /// `all`, `default` or the name of a port; empty for a setting of the whole host.
    scope: String,
    /// The index of the port, by which it is found after it was renamed.
    ifindex: Option<u32>,
    key: String,
    before: String,
    after: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Family {
    Ipv4,
    Ipv6,
    /// Settings of the whole host.
    Tcp,
}

/// The changes that `ports` need, in order. They are undone in reverse order.
pub(crate) fn plan(ports: &[PortInfo], all_links: &[(String, u32)], policy: Policy) -> Vec<Setting> {
    let mut plan = Vec::new();
    let (Some(first), extra) = (ports.first(), ports.get(1..).unwrap_or_default()) else { return plan };
    let is_extra = |ifindex: u32| extra.iter().any(|port| port.ifindex == ifindex);
    let number = |scope: &str| read(Family::Ipv4, scope, "rp_filter").and_then(|value| value.parse::<u32>().ok());
    let all = number("all").unwrap_or(0);
    for (name, ifindex) in all_links {
        let Some(own) = number(name) else { continue };
        let after = if is_extra(*ifindex) { 0 } else { own.max(all) };
        // Writing `default` changes all ports that were never written. So they are written even if
        // the value stays the same.
        if all > 0 || own != after {
            let (before, after) = (own.to_string(), after.to_string());
            let scope = name.clone();
            plan.push(Setting {
                family: Family::Ipv4,
                scope,
                ifindex: Some(*ifindex),
                key: "rp_filter".into(),
                before,
                after,
            });
        }
    }
    if all > 0 {
        // Ports that are added later start with `default`.
        if let Some(own) = number("default") {
            push(&mut plan, Family::Ipv4, "default", None, "rp_filter", own.max(all));
        }
        push(&mut plan, Family::Ipv4, "all", None, "rp_filter", 0);
    }
    for port in extra {
        push(&mut plan, Family::Ipv4, &port.name, Some(port.ifindex), "arp_ignore", 1);
        push(&mut plan, Family::Ipv4, &port.name, Some(port.ifindex), "arp_announce", 2);
    }
    // PMCME changes nothing of TCP, so neither do the other policies.
    if policy == Policy::Adaptive {
        push(&mut plan, Family::Tcp, "", None, "tcp_min_rtt_wlen", 0);
    }
    if read(Family::Ipv6, &first.name, "disable_ipv6").as_deref() == Some("0") {
        for port in extra {
            if read(Family::Ipv6, &port.name, "disable_ipv6").as_deref() != Some("1") {
                continue;
            }
            for (key, silent) in [
                ("accept_ra", 0),
                ("router_solicitations", 0),
                ("dad_transmits", 0),
                ("addr_gen_mode", 1),
                ("disable_ipv6", 0),
            ] {
                push(&mut plan, Family::Ipv6, &port.name, Some(port.ifindex), key, silent);
            }
        }
    }
    plan
}

/// Adds the change unless the kernel lacks the setting, or the value is already right.
fn push(plan: &mut Vec<Setting>, family: Family, scope: &str, ifindex: Option<u32>, key: &str, after: u32) {
    let after = after.to_string();
    if let Some(before) = read(family, scope, key).filter(|before| *before != after) {
        plan.push(Setting { family, scope: scope.to_owned(), ifindex, key: key.to_owned(), before, after });
    }
}

/// Makes the changes.
pub(crate) fn apply(plan: &[Setting]) -> Result<()> {
    for setting in plan {
        let path = path(setting.family, &setting.scope, &setting.key);
        fs::write(&path, &setting.after).map_err(Error::io(format!("writing {}", path.display())))?;
    }
    Ok(())
}

/// Undoes the changes that were made, and returns descriptions of those that could not be undone.
///
/// A setting with another value than placement's was changed by another program, and stays. So do
/// those of a removed port.
pub(crate) fn restore(plan: &[Setting]) -> Vec<String> {
    let mut failures = Vec::new();
    for setting in plan.iter().rev() {
        let Some(scope) = setting.current_scope() else { continue };
        if read(setting.family, &scope, &setting.key).as_deref() != Some(&setting.after) {
            continue;
        }
        let path = path(setting.family, &scope, &setting.key);
        match fs::write(&path, &setting.before) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                failures.push(format!("{} could not be set back to {}: {error}", path.display(), setting.before))
            }
        }
    }
    failures
}

impl Setting {
    fn current_scope(&self) -> Option<String> {
        match self.ifindex {
            None => Some(self.scope.clone()),
            Some(ifindex) => name_of(ifindex),
        }
    }
}

/// The present name of a port. Returns `None` if it is removed.
pub(crate) fn name_of(ifindex: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the required size.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the call wrote a string that ends with a zero byte within the buffer.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) };
    name.to_str().ok().map(str::to_owned)
}

fn path(family: Family, scope: &str, key: &str) -> PathBuf {
    let family = match family {
        Family::Ipv4 => "ipv4/conf",
        Family::Ipv6 => "ipv6/conf",
        Family::Tcp => "ipv4",
    };
    ["/proc/sys/net", family, scope, key].iter().collect()
}

fn read(family: Family, scope: &str, key: &str) -> Option<String> {
    Some(fs::read_to_string(path(family, scope, key)).ok()?.trim().to_owned())
}
