//! What carries an edge of a pipeline: whole messages, in order, in both directions, between two
//! copies of filters.
//!
//! A [`Connection`] never blocks. Its owner looks at all of its connections and then sleeps once,
//! for all of them ([`wait`]). Implementations are `memory` within a process, `shm` between
//! processes of one host, and `tcp`, `striped` and `ucx` between hosts; [`connect`] chooses among
//! them.

mod buffer;
pub mod connect;
mod connection;
mod frame;
pub(crate) mod memory;
mod notifier;
mod shm;
mod striped;
mod system;
mod tcp;
#[cfg(feature = "ucx")]
mod ucx;
mod wait;

pub use buffer::{Buffer, Pool};
pub use connection::{Connection, DEFAULT_LIMIT_BYTES, HEADER_BYTES, Message, Wake};
pub use multirail_proto::pipeline::Transport;
pub use notifier::Notifier;
#[doc(hidden)]
pub use shm::read_any;
pub(crate) use wait::wait_with_fds;
pub use wait::{next, wait};
