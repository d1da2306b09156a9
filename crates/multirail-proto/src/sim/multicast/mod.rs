//! A multicast, simulated: thousands of hosts in clusters, each with its [`Node`](crate::multicast::Node).
//!
//! What is modelled: ports, limits towards the outside and links between clusters with rates and delays, shared among the
//! pieces that cross them (`links`); WAN rates that change; the time to connect; queues for each peer with
//! control messages before pieces; the bytes of control messages and headers; hosts that die and come back.
//!
//! What is not: packets, their loss, TCP's slow start (a flow fills its path at once) and its errors of fairness; disks and CPUs (a piece is verified
//! and stored in no time); links within a cluster other than the hosts' ports. Rates are those of payload. Control messages wait for each other, not for
//! pieces, as if they had a channel of their own.
//!
//! A run depends on nothing but its arguments: the same scenario and the same nodes give the same outcome.

mod links;
mod methods;
mod outcome;
mod queue;
mod scenario;
mod sessions;
mod simulation;
#[cfg(test)]
mod tests;

pub use methods::run_method;
pub use outcome::{End, Outcome, Traffic};
pub use scenario::{At, Change, GIGABIT_BYTES_S, HostLinks, MIN_RATE_BYTES_S, Scenario, Until, Wan};
pub use simulation::run;
