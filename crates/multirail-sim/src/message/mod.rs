//! One message over the rails of a session, simulated.
//!
//! One host sends it, and the other one's application checks every byte. Sockets, rails and
//! machines are as in `session`: real machines over simulated TCP connections.

mod application;
mod outcome;
mod setup;
mod simulation;

pub use outcome::Outcome;
pub use setup::{Setup, Stalled};

/// Simulates one message.
pub fn run(setup: &Setup) -> Result<Outcome, Stalled> {
    simulation::Simulation::new(setup).run()
}
