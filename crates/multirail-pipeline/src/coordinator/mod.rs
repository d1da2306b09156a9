//! The process that started a group: it starts the group on all its hosts, gives it units of work,
//! and learns how they end.

mod group_state;
mod remote_host;
mod running;

pub use running::{CopyStatus, RunningGroup};
