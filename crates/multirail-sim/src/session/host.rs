//! One host of a session: its machine, and which connections the machine's channels are.

use super::connection::{Connection, Kernel};
use multirail_proto::session::{Direct, Machine, MachineConfig, Paths, Role, Time};
use multirail_proto::striping::{Channel, Strategy};
use std::time::Duration;

/// A simulated session never gives up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(1 << 30);

pub(crate) struct Host {
    pub(crate) machine: Machine,
    /// Connections by the machine's index of the channel.
    pub(super) table: Vec<Option<usize>>,
    /// What this host sends on, by the number of the connection.
    pub(super) connections: Vec<Connection>,
}

impl Host {
    pub(super) fn new(role: Role, strategy: Strategy, fragment_bytes: u32) -> Self {
        let give_up_after = GIVE_UP_AFTER;
        let config =
            MachineConfig { role, strategy, fragment_bytes, tune_channels: false, batch_reads: false, give_up_after };
        let mut machine = Machine::new(config, Time::ZERO);
        machine.handle_control_connected();
        Self { machine, table: Vec::new(), connections: Vec::new() }
    }

    /// Calls a method of the machine with what this host's kernel knows.
    pub(super) fn call<T>(&mut self, f: impl FnOnce(&mut Machine, &dyn Paths) -> T) -> T {
        f(&mut self.machine, &Kernel { connections: &self.connections, table: &self.table })
    }

    /// The machine's index of a connection, while it is open here.
    pub(super) fn channel(&self, connection: usize) -> Option<Channel> {
        self.table.iter().position(|c| *c == Some(connection))
    }
}

/// Reads as the machine asks for: what of `bytes`, which have arrived, belongs in the message that
/// is due, and how many of those behind it are now in the staging buffer. `bytes` keeps the rest.
pub(crate) fn split_read<'a>(bytes: &mut &'a [u8], direct: Option<Direct>, staging: &mut [u8]) -> (&'a [u8], usize) {
    let direct_bytes = direct.map_or(0, |run| run.left.min(bytes.len() as u64) as usize);
    let (run, rest) = bytes.split_at(direct_bytes);
    let ends = direct.is_none_or(|direct| direct.left == direct_bytes as u64);
    let staged_bytes = if ends { rest.len().min(staging.len()) } else { 0 };
    staging[..staged_bytes].copy_from_slice(&rest[..staged_bytes]);
    *bytes = &rest[staged_bytes..];
    (run, staged_bytes)
}
