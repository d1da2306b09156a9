//! A session: all channels between two hosts, and the messages that travel over them.
//!
//! `multirail_proto::session::Machine` makes a session's decisions. This module drives it with TCP
//! and tokio ([decision 19](../../../../docs/decisions/0019-machine-and-driver.md)). One future
//! drives all channels from the caller's task ([`Sender::send`], [`Receiver::recv`]); no message is
//! handed to another task. Between calls a maintenance task handles dead rails, new channels and
//! late reports.

mod accept;
mod accepted;
mod admission;
mod config;
mod control;
mod dial;
mod driver;
mod failure;
mod handle;
mod listen;
mod log_limit;
mod mailbox;
mod maintenance;
mod occupancy;
mod receive;
mod receiver;
mod redial;
mod sender;
mod shared;
mod sockets;
mod status;
mod transmit;

pub use crate::socket::DEAD_AFTER;
pub use accepted::{Accepted, NewConnection, NewSession};
pub use config::{Channels, Config};
pub use handle::{Session, Watch};
pub use listen::{ListenConfig, Listener};
pub use multirail_proto::session::{COPY_LIMIT_BYTES, WINDOW_BYTES};
pub use receiver::Receiver;
pub use sender::Sender;
pub use status::{RailStatus, Stats};

pub(crate) use multirail_proto::session::LINGER;
pub(crate) use occupancy::Place;
pub(crate) use shared::{Arrived, Made, Shared};
