//! What the kernel reports of a loaded program.

use crate::{Error, Result};
use aya::programs::{ProgramInfo, loaded_programs};

/// Finds a loaded program by the kernel's id.
pub(super) fn program_by_id(id: u32) -> Result<ProgramInfo> {
    let found = loaded_programs().filter_map(std::result::Result::ok).find(|program| program.id() == id);
    found.ok_or_else(|| Error::Rights("CAP_SYS_ADMIN (to find the program, whose pins are not visible here)".into()))
}

/// How long the program ran in total, and how often. None unless the kernel counts it (sysctl
/// `kernel.bpf_stats_enabled`).
pub(crate) fn run_time_ns_and_count(id: u32) -> Option<(u64, u64)> {
    let info = program_by_id(id).ok()?;
    Some((info.run_time().as_nanos() as u64, info.run_count()))
}
