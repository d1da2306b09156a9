//! Settings of the kernel that keep packets from being received at any port, and what they are set to instead.
//!
//! A packet for an address of the first port comes in at another one. The kernel takes it there ("weak host"), unless:
//!
//! - `rp_filter`: it drops what comes in where it would not answer. Loose filtering (2) is no help: on a port without an address it
//!   drops all the same. The setting that counts is the larger one of the port's and of `all`, so where `all` is not 0,
//!   every other port gets that value itself, and stays as strict as it was.
//! - `arp_ignore`, `arp_announce`: where switches are joined, the extra ports hear who asks for the address of the first one, and would
//!   answer with their own.
//! - `disable_ipv6`: a port without IPv6 drops its packets. It is let in with all that would speak for the port switched off: no
//!   link-local address, no duplicate detection, no router solicitation.
//!
//! And one that keeps TCP from taking what came late by another port for lost: it waits for a part of the shortest round trip that it has seen,
//! by default in five minutes (`tcp_min_rtt_wlen`), which is that of an idle network, and much less than what queues differ by.

use super::ports::PortInfo;
use super::{Error, Policy, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::PathBuf;

/// One setting that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setting {
    family: Family,
    /// Whose: `all`, `default` or the name of a port.
    whose: String,
    /// The port's index, so that it is found again if it is renamed.
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
    /// Of the whole host: no port's, so that `whose` is empty.
    Tcp,
}

/// What has to be changed for `ports`, in the order in which it must be done, and undone from the end. Changes nothing.
pub(super) fn plan(ports: &[PortInfo], all_links: &[(String, u32)], policy: Policy) -> Vec<Setting> {
    let mut plan = Vec::new();
    let (Some(first), extra) = (ports.first(), ports.get(1..).unwrap_or_default()) else { return plan };
    let is_extra = |ifindex: u32| extra.iter().any(|port| port.ifindex == ifindex);
    let number = |whose: &str| read(Family::Ipv4, whose, "rp_filter").and_then(|value| value.parse::<u32>().ok());
    let all = number("all").unwrap_or(0);
    for (name, ifindex) in all_links {
        let Some(own) = number(name) else { continue };
        let after = if is_extra(*ifindex) { 0 } else { own.max(all) };
        // Also where it is so already, if `default` will be written: that changes all ports which nobody has ever written to.
        if all > 0 || own != after {
            let (before, after) = (own.to_string(), after.to_string());
            let whose = name.clone();
            plan.push(Setting {
                family: Family::Ipv4,
                whose,
                ifindex: Some(*ifindex),
                key: "rp_filter".into(),
                before,
                after,
            });
        }
    }
    if all > 0 {
        // What ports that come later begin with.
        if let Some(own) = number("default") {
            push(&mut plan, Family::Ipv4, "default", None, "rp_filter", own.max(all));
        }
        push(&mut plan, Family::Ipv4, "all", None, "rp_filter", 0);
    }
    for port in extra {
        push(&mut plan, Family::Ipv4, &port.name, Some(port.ifindex), "arp_ignore", 1);
        push(&mut plan, Family::Ipv4, &port.name, Some(port.ifindex), "arp_announce", 2);
    }
    // The others are as in the paper, which changes nothing of TCP.
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

/// Adds the setting if the kernel has it and it is not so already.
fn push(plan: &mut Vec<Setting>, family: Family, whose: &str, ifindex: Option<u32>, key: &str, after: u32) {
    let after = after.to_string();
    if let Some(before) = read(family, whose, key).filter(|before| *before != after) {
        plan.push(Setting { family, whose: whose.to_owned(), ifindex, key: key.to_owned(), before, after });
    }
}

pub(super) fn apply(plan: &[Setting]) -> Result<()> {
    for setting in plan {
        let path = path(setting.family, &setting.whose, &setting.key);
        fs::write(&path, &setting.after).map_err(Error::io(format!("writing {}", path.display())))?;
    }
    Ok(())
}

/// Undoes what of a plan was done. A setting that has neither value was changed by somebody else since, and is theirs; so is that of
/// a port that is gone. Returns what could not be undone, and why.
pub(super) fn restore(plan: &[Setting]) -> Vec<String> {
    let mut failures = Vec::new();
    for setting in plan.iter().rev() {
        let Some(whose) = setting.whose_now() else { continue };
        if read(setting.family, &whose, &setting.key).as_deref() != Some(&setting.after) {
            continue;
        }
        let path = path(setting.family, &whose, &setting.key);
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
    fn whose_now(&self) -> Option<String> {
        match self.ifindex {
            None => Some(self.whose.clone()),
            Some(ifindex) => name_of(ifindex),
        }
    }
}

/// The present name of a port; None if it is gone.
pub(super) fn name_of(ifindex: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the call needs.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the call has written a string that ends within the buffer.
    let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) };
    name.to_str().ok().map(str::to_owned)
}

fn path(family: Family, whose: &str, key: &str) -> PathBuf {
    let family = match family {
        Family::Ipv4 => "ipv4/conf",
        Family::Ipv6 => "ipv6/conf",
        Family::Tcp => "ipv4",
    };
    ["/proc/sys/net", family, whose, key].iter().collect()
}

fn read(family: Family, whose: &str, key: &str) -> Option<String> {
    Some(fs::read_to_string(path(family, whose, key)).ok()?.trim().to_owned())
}
