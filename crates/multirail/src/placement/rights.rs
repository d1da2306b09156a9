//! Whether this process may do it, asked before anything is changed: half-way is the worst place to find out.

use super::{Error, Result};

const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What beginning needs; the exchange with other hosts needs raw frames too.
pub(super) fn check(exchange: bool) -> Result<()> {
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
    // What was split from it is still part of it.
    let implied = |cap| has(CAP_SYS_ADMIN) && [CAP_BPF, CAP_PERFMON].contains(&cap);
    let missing: Vec<&str> =
        wanted.iter().filter(|&&(cap, _)| !has(cap) && !implied(cap)).map(|&(_, name)| name).collect();
    if missing.is_empty() { Ok(()) } else { Err(Error::Rights(missing.join(", "))) }
}

/// The thread's, as a bit set.
fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    // Where it cannot be read, the calls themselves will say what is missing.
    hex.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(u64::MAX)
}
