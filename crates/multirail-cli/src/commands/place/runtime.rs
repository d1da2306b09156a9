//! Runs placement's futures.

use anyhow::Context;
use multirail::placement;

/// Runs a future on this thread, which stays in its network namespace.
pub(super) fn block_on<T>(future: impl Future<Output = placement::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    Ok(runtime.block_on(future)?)
}
