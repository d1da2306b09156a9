//! The guide: a page for each subject, with examples that compile and run.
//!
//! 1. [Sessions and messages](sessions): listen, connect, send, receive, byte streams, blocking
//!    calls.
//! 2. [Striping and strategies](striping): how bytes are given to rails, choosing rails, reading
//!    rates.
//! 3. [Requests](requests): a server that answers typed requests, with a protocol of one's own.
//! 4. [Files](files): copies of files and trees.
//! 5. [Multicast](multicast): one host to many.
//! 6. [Pipelines](pipelines): filters on several hosts.
//! 7. [Placement](placement): all Ethernet ports for programs that cannot be changed.
//! 8. [Errors](errors): what fails, and what a program does about it.
//! 9. [Cancel safety](cancel_safety): which futures can be dropped.
//!
//! The examples use loopback addresses and any free port. On two hosts nothing else changes.

#[doc = include_str!("cancel_safety.md")]
pub mod cancel_safety {}
#[doc = include_str!("errors.md")]
pub mod errors {}
#[cfg(feature = "files")]
#[doc = include_str!("files.md")]
pub mod files {}
#[cfg(feature = "multicast")]
#[doc = include_str!("multicast.md")]
pub mod multicast {}
#[cfg(feature = "pipeline")]
#[doc = include_str!("pipelines.md")]
pub mod pipelines {}
#[cfg(feature = "place")]
#[doc = include_str!("placement.md")]
pub mod placement {}
#[doc = include_str!("requests.md")]
pub mod requests {}
#[doc = include_str!("sessions.md")]
pub mod sessions {}
#[doc = include_str!("striping.md")]
pub mod striping {}
