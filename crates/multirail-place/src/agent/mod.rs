//! The agent: follows the links of this host and the ports of others, and tells the program of
//! both.

mod counts;
mod hello_socket;
pub(crate) mod lock;
mod run;

pub use counts::{ExchangeCounts, RefusedFrames};
pub use run::run_agent;

use crate::Result;
use crate::netns::Netns;

/// The agent's process in this network namespace, if there is one.
///
/// # Errors
/// If the kernel has no cookies of network namespaces (before Linux 5.14).
pub fn agent_pid() -> Result<Option<i32>> {
    Ok(lock::agent_pid(Netns::current()?))
}
