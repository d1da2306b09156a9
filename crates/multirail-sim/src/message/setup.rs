//! What is simulated, and how it can fail.

use crate::schedule::{At, Rail};
use multirail_proto::striping::Strategy;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The paths.
    pub rails: Vec<Rail>,
    /// What happens to them, in any order.
    pub schedule: Vec<At>,
    /// How the message is distributed over channels.
    pub strategy: Strategy,
    /// The message.
    pub message_bytes: u64,
    /// See [`Striping::new`](multirail_proto::striping::Striping::new).
    pub fragment_bytes: u64,
    /// The most that a channel has under way; `f64::INFINITY` for no limit.
    pub window_bytes: f64,
    /// Whether the first probes of a session have measured the rates before the message begins.
    /// Otherwise it begins together with them.
    pub known_rates: bool,
    /// How long a rail is down before its channels count as lost.
    pub detect_us: f64,
    /// From dialling on a rail that is up, or its return, to a new channel on it.
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
            window_bytes: f64::INFINITY,
            known_rates: true,
            detect_us: 200_000.0,
            reopen_us: 50_000.0,
        }
    }
}

/// The message can never arrive, since no rail is up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("nothing happens any more at {at_us} us, when {arrived_bytes} bytes have arrived")]
pub struct Stalled {
    /// When it was noticed, since the message began.
    pub at_us: f64,
    /// Bytes of the message that have arrived.
    pub arrived_bytes: u64,
}
