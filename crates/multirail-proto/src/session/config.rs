//! What a session is configured with.

use crate::striping::Strategy;
use std::time::Duration;

/// Which side opens the session's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This side dials: it opens channels, replaces lost ones, and chooses their number.
    Dialler,
    /// The peer dials.
    Listener,
}

/// How a [`Machine`](super::Machine) works.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// Which side opens the connections.
    pub role: Role,
    /// How messages are distributed over channels.
    pub strategy: Strategy,
    /// The fragment of `shared-counter` and `two-ended`, in bytes; at least 1.
    pub fragment_bytes: u32,
    /// Whether the number of channels of each rail is found by measurement. The dialler alone
    /// does this.
    pub tune_channels: bool,
    /// Whether it waits for several packets of a slow rail before it reads, which takes less CPU time.
    /// Strategies then learn of the rates of rails later.
    pub batch_reads: bool,
    /// How long the session outlives its last channel.
    pub give_up_after: Duration,
}
