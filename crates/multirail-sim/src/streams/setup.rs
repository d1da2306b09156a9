//! What is simulated.

use crate::schedule::{At, Rail};

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The paths.
    pub rails: Vec<Rail>,
    /// What happens to them, in any order.
    pub schedule: Vec<At>,
    /// The most that a packet carries; the grain in which bytes arrive.
    pub packet_bytes: usize,
    /// How long a rail is down before its channels count as lost.
    pub detect_us: f64,
    /// From dialling on a rail that is up, or its return, to a new channel on it.
    pub reopen_us: f64,
}

impl Setup {
    /// A session over `rails` that nothing happens to, with the defaults of the real thing.
    pub fn new(rails: Vec<Rail>) -> Self {
        Self { rails, schedule: Vec::new(), packet_bytes: 1448, detect_us: 200_000.0, reopen_us: 50_000.0 }
    }
}
