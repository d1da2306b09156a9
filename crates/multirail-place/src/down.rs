//! The end of placement.

use crate::Result;
use crate::agent::lock;
use crate::kernel::hook::{self, Hooks};
use crate::kernel::{bpffs, netlink, ports, rights, sysctl};
use crate::netns::Netns;
use crate::program;
use crate::saved_state::SavedState;

/// The result of [`down`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Whether placement was up, at least in part.
    pub was_up: bool,
    /// What could not be restored, and why.
    pub failures: Vec<String>,
}

/// Ends placement in this network namespace, even if `up` was interrupted, and restores the host.
///
/// # Errors
/// If the process lacks rights, or the kernel refuses to remove the program. Settings that could
/// not be restored are no error: [`Ended::failures`] lists them.
///
/// # Cancel safety
/// A cancelled call can be repeated.
pub async fn down() -> Result<Ended> {
    rights::check(false)?;
    let netns = Netns::current()?;
    let _lock = netns.lock()?;
    undo(netns).await
}

/// Undoes all changes. The caller holds the lock of the namespace.
pub(crate) async fn undo(netns: Netns) -> Result<Ended> {
    lock::end_agent(netns)?;
    let Some(state) = SavedState::load(netns)? else {
        // There is nothing to undo, or the record was removed.
        let was_up = remove_unrecorded(netns).await?;
        netns.remove_files()?;
        let lost =
            "the record of the changes is missing: settings of ports stay as they are, and so does a clsact hook";
        return Ok(Ended { was_up, failures: was_up.then(|| lost.to_owned()).into_iter().collect() });
    };
    let mut failures = Vec::new();
    if let Some(first) = state.ports.first().filter(|port| sysctl::name_of(port.ifindex).is_some()) {
        hook::remove(first.ifindex, state.clsact_added).await?;
    }
    program::unpin(netns)?;
    failures.extend(sysctl::restore(&state.settings));
    if let Some(mounted_in) = &state.mounted_in
        && let Err(error) = bpffs::unmount(mounted_in)
    {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        failures.push(format!("{error}{cause}"));
    }
    netns.remove_files()?;
    Ok(Ended { was_up: true, failures })
}

/// Removes what can be recognised without the record, and says whether there was anything.
async fn remove_unrecorded(netns: Netns) -> Result<bool> {
    let mut found = false;
    for link in netlink::with_netlink(ports::links).await? {
        if let Hooks::Clsact { ours: Some(_), .. } = hook::list(link.ifindex).await? {
            hook::remove(link.ifindex, false).await?;
            found = true;
        }
    }
    program::unpin(netns)?;
    Ok(found)
}
