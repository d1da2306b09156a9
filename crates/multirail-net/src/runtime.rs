//! A runtime for one thread.

use crate::error::{Error, Result};

/// Runs a future to completion on a new runtime of the calling thread.
///
/// # Errors
///
/// The future's error, or [`Error::Io`] if the runtime cannot be started.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|cause| Error::Io { what: "starting a runtime", cause })?.block_on(future)
}
