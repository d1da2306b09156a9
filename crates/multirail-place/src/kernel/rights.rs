//! The capabilities of this process: the check before anything is changed, and what an agent gives up.

use crate::{Error, Result};
use caps::{CapSet, Capability, CapsHashSet};
use std::io;

const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Checks what `up` and `down` need. The exchange with other hosts needs raw frames, too.
pub(crate) fn check(exchange: bool) -> Result<()> {
    let mut wanted = vec![
        (CAP_BPF, "CAP_BPF (to load the program)"),
        (CAP_NET_ADMIN, "CAP_NET_ADMIN (to attach it, and for settings of ports)"),
        (CAP_PERFMON, "CAP_PERFMON (for the program to read queues and TCP's state)"),
    ];
    if exchange {
        wanted.push((CAP_NET_RAW, "CAP_NET_RAW (for the exchange with other hosts)"));
    }
    let effective = effective();
    let has = |cap: u32| effective & (1 << cap) != 0;
    // CAP_SYS_ADMIN includes the two that were split from it.
    let implied = |cap| has(CAP_SYS_ADMIN) && [CAP_BPF, CAP_PERFMON].contains(&cap);
    let missing: Vec<&str> =
        wanted.iter().filter(|&&(cap, _)| !has(cap) && !implied(cap)).map(|&(_, name)| name).collect();
    if missing.is_empty() { Ok(()) } else { Err(Error::Rights(missing.join(", "))) }
}

/// Gives up every capability that an agent does not need once its sockets are open, for good: what stays
/// is needed for maps and for undoing placement. It concerns this thread and those that it starts.
pub(crate) fn keep_agents() -> Result<()> {
    let failed = |error: caps::errors::CapsError| Error::io("giving up capabilities")(io::Error::other(error));
    // SAFETY: the call takes no pointers. No program that is started later can get capabilities.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::io("giving up capabilities")(io::Error::last_os_error()));
    }
    let held = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let keep = agents(&held);
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    if held.contains(&Capability::CAP_SETPCAP) {
        for cap in caps::all().difference(&keep) {
            // The kernel may know fewer capabilities than the library.
            let _ = caps::drop(None, CapSet::Bounding, *cap);
        }
    }
    caps::set(None, CapSet::Effective, &keep).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(failed)
}

/// Of the capabilities that are held, those that an agent keeps.
fn agents(held: &CapsHashSet) -> CapsHashSet {
    let mut keep = CapsHashSet::from([Capability::CAP_BPF, Capability::CAP_NET_ADMIN]);
    if !held.contains(&Capability::CAP_BPF) {
        // It includes the one for BPF.
        keep.insert(Capability::CAP_SYS_ADMIN);
    }
    keep.intersection(held).copied().collect()
}

/// The effective capabilities of this thread: bit n stands for capability n.
fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    // If they cannot be read, the calls themselves fail later.
    hex.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_keeps_what_it_needs_and_gets_nothing() {
        use Capability::{CAP_BPF, CAP_CHOWN, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN};
        for (held, expected) in [
            (&[CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, CAP_CHOWN][..], &[CAP_BPF, CAP_NET_ADMIN][..]),
            (&[CAP_NET_ADMIN, CAP_SYS_ADMIN], &[CAP_NET_ADMIN, CAP_SYS_ADMIN]),
            (&[CAP_NET_ADMIN], &[CAP_NET_ADMIN]),
            (&[], &[]),
        ] {
            assert_eq!(agents(&held.iter().copied().collect()), expected.iter().copied().collect());
        }
    }

    /// Capabilities are a thread's, so other tests keep theirs.
    #[test]
    fn the_rest_is_given_up() {
        let given_up = std::thread::spawn(|| {
            let held = caps::read(None, CapSet::Permitted).unwrap();
            keep_agents().unwrap();
            let kept = agents(&held);
            for set in [CapSet::Permitted, CapSet::Effective] {
                assert_eq!(caps::read(None, set).unwrap(), kept);
            }
            assert!(caps::read(None, CapSet::Inheritable).unwrap().is_empty());
        });
        given_up.join().unwrap();
    }
}
