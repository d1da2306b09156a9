//! A simulated multicast: up to thousands of hosts in clusters, each with its
//! [`Node`](multirail_proto::multicast::Node).
//!
//! The model contains ports, limits towards the outside and links between clusters with rates and
//! delays, shared among the pieces that cross them (`links`); changing WAN rates; the time to
//! connect; a queue for each peer with control messages before pieces; the bytes of control
//! messages and headers; hosts that die and come back.
//!
//! It does not contain packets and their loss; TCP's slow start (a flow fills its path at once) and
//! unfairness; disks and CPUs (a piece is verified and stored at once); links within a cluster
//! other than the hosts' ports; and a member's heartbeats and manifests. Rates are those of
//! payload. Control messages wait for each other, not for pieces, as if they had a channel of their
//! own.
//!
//! A run depends on its arguments only: the same scenario and nodes give the same outcome.

mod ids;
#[cfg(test)]
mod join_tests;
mod links;
mod methods;
mod outcome;
mod queue;
#[cfg(test)]
mod recruit_tests;
#[cfg(test)]
mod regroup_tests;
mod scenario;
mod sessions;
mod simulation;
#[cfg(test)]
mod tests;

pub use methods::run_method;
pub use outcome::{End, Outcome, Traffic};
pub use scenario::{At, Change, GIGABIT_BYTES_S, HostLinks, MIN_RATE_BYTES_S, Scenario, Until, Wan};
pub use simulation::run;
