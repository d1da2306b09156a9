//! Why a filter stops before its unit of work is done.

use std::any::Any;

/// The reason for which a filter fails, as the filter words it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why reading or writing cannot continue. A filter passes it on as its own failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("the unit of work was aborted")]
    Aborted,
    #[error("copy {copy} of filter {filter:?} on host {host} is lost: {cause}")]
    PeerLost { filter: String, copy: usize, host: String, cause: String },
    #[error("a host died when it had sent only a part of what it made of a buffer")]
    PartialReplay,
    #[error("a buffer of {bytes} bytes was written, the limit is {limit_bytes}; write smaller ones or raise the limit")]
    TooLarge { bytes: usize, limit_bytes: u64 },
    #[error("there is no output stream {stream}, the filter has {outputs}; numbers begin at 0")]
    NoOutput { stream: usize, outputs: usize },
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    format!("it panicked: {}", text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
}
