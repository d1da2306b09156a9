//! One message over the rails of a session, simulated.
//!
//! The two hosts are [`session::Machine`](multirail_proto::session::Machine)s, as on real sockets.
//! Each channel is a simulated TCP connection: its socket holds as many unsent bytes as the machine
//! allows, packets leave at the rate that the [`Network`](super::network::Network) gives, arrive a
//! delay later, and are acknowledged another delay later. Reports travel over the nearest rail that
//! is up. If a rail is down for `detect_us`, both kernels give its connections up; the machine
//! dials again, and once the rail is up, a new channel joins. The receiver checks every byte.

mod connection;
mod host;
mod outcome;
mod setup;
mod simulation;
mod timers;

pub use outcome::Outcome;
pub use setup::{Setup, Stalled};

/// Simulates one message.
pub fn run(setup: &Setup) -> Result<Outcome, Stalled> {
    simulation::Simulation::new(setup).run()
}
