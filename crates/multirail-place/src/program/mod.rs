//! The BPF program and its maps.

mod info;
mod layout;
mod loaded;
mod maps;
#[cfg(test)]
mod model;
pub(crate) mod streams;

pub(crate) use info::run_time_ns_and_count;
pub(crate) use layout::{Config, policy_number};
pub(crate) use loaded::{LoadedProgram, unpin};
pub(crate) use maps::{Maps, PeerRow};
