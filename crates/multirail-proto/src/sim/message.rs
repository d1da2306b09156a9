//! One message over the rails of a session, simulated: what a strategy comes to.
//!
//! The sender is the driver that [`striping`](crate::striping) describes. Each channel writes its runs into a bounded
//! buffer and asks for the next one as soon as all it has claimed is written; packets leave at the rate that the [`Network`](super::network::Network)
//! gives, arrive a delay later at the receiver's ledger, and are acknowledged another delay later. Every
//! [`REPORT_US`] the receiver reports what arrived in how much busy time. A channel whose rail is down for `detect_us` is lost:
//! what the sender has not seen confirmed is given back; when the rail is up again, a new channel joins.

mod simulation;

use super::schedule::{At, Rail};
use crate::striping::Strategy;

/// How often the receiver reports.
pub const REPORT_US: f64 = 10_000.0;
/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The paths.
    pub rails: Vec<Rail>,
    /// What happens to them, in any order.
    pub schedule: Vec<At>,
    /// Who decides.
    pub strategy: Strategy,
    /// The message.
    pub message_bytes: u64,
    /// See [`Striping::new`](crate::striping::Striping::new).
    pub fragment_bytes: u64,
    /// Unsent bytes that a channel's socket takes (`TCP_NOTSENT_LOWAT`); its part of the rail's queue comes on top.
    pub send_buffer_bytes: u64,
    /// What a channel has under way at most; `f64::INFINITY`: as much as it likes.
    pub window_bytes: f64,
    /// Whether earlier messages have already told the rates.
    pub known_rates: bool,
    /// How long a rail is down before its channels count as lost.
    pub detect_us: f64,
    /// From a rail's return to a new channel on it.
    pub reopen_us: f64,
}

impl Setup {
    /// A message over `rails` that nothing happens to, with the defaults of the real thing.
    pub fn new(strategy: Strategy, message_bytes: u64, rails: Vec<Rail>) -> Self {
        Self {
            rails,
            schedule: Vec::new(),
            strategy,
            message_bytes,
            fragment_bytes: 2048,
            send_buffer_bytes: 16 << 10,
            window_bytes: f64::INFINITY,
            known_rates: true,
            detect_us: 200_000.0,
            reopen_us: 50_000.0,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// When the receiver had everything.
    pub finish_us: f64,
    /// When it could have ([`ideal_finish_us`](super::schedule::ideal_finish_us)).
    pub ideal_us: f64,
    /// Message bytes that each channel delivered until then, the second copies included.
    pub channel_bytes: Vec<u64>,
    /// Runs announced with a header.
    pub headers: u64,
    /// *Start* messages.
    pub starts: u64,
    /// Fragments that only a marker announced.
    pub continues: u64,
    /// Bytes that arrived again.
    pub duplicate_bytes: u64,
    /// Runs sent a second time on purpose.
    pub rescues: u64,
}

impl Outcome {
    /// How much later than possible it was: 0.03 is 3 %.
    pub fn excess(&self) -> f64 {
        self.finish_us / self.ideal_us - 1.0
    }
}

/// The message can never arrive: no rail is up, or nobody claims what is left.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("nothing happens any more at {at_us} us: {arrived_bytes} bytes have arrived, {unclaimed_bytes} are unclaimed")]
pub struct Stalled {
    /// When it was noticed.
    pub at_us: f64,
    /// What the receiver has.
    pub arrived_bytes: u64,
    /// What nobody has claimed.
    pub unclaimed_bytes: u64,
}

/// Simulates one message.
pub fn run(setup: &Setup) -> Result<Outcome, Stalled> {
    simulation::Simulation::new(setup).run()
}
