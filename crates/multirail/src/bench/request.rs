//! The requests of benchmarks to a server.

use multirail_net::protocol::ProtocolName;
use serde::{Deserialize, Serialize};

/// The name of the protocol that benchmarks speak in a session.
pub const BENCH: ProtocolName = ProtocolName::new("bench");
/// The name of the protocol of the edges that [`super::curve`] measures.
pub const BENCH_EDGE: ProtocolName = ProtocolName::new("bench-edge");

/// What a client asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum BenchRequest {
    /// Send back `rounds` messages of `message_bytes`, with this strategy.
    Echo {
        /// Length of each.
        message_bytes: u64,
        /// How many.
        rounds: u32,
        /// By name; see [`multirail_net::Strategy`].
        strategy: String,
        /// Fragment of the papers' strategies.
        fragment_bytes: u32,
    },
    /// Receive messages of at most `message_bytes` until an empty one, and report the bytes of each
    /// interval.
    Absorb {
        /// Length of each.
        message_bytes: u64,
    },
    /// Tell the CPU time this server has used, in seconds, as a little-endian `f64`.
    CpuTime,
}
