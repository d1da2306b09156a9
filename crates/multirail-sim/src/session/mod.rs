//! Two hosts with a session over rails, below [`message`](super::message) and
//! [`streams`](super::streams).
//!
//! The hosts are [`session::Machine`](multirail_proto::session::Machine)s, as on real sockets. Each
//! channel is a simulated TCP connection: its socket holds as many unsent bytes as the machine
//! allows, packets leave at the rate that the [`Network`](super::network::Network) gives, arrive a
//! delay later, and are acknowledged another delay later. The two directions of a rail share
//! nothing. Reports travel over the nearest rail that is up. If a rail is down for
//! [`Timing::detect_us`], both kernels give its connections up; the machine dials again, and once
//! the rail is up, a new channel joins.
//!
//! What goes into messages, and what comes of them, belongs to the users of this module.

mod connection;
mod host;
mod simulation;
mod timers;

pub(crate) use host::{Host, split_read};
pub(crate) use simulation::{Arrival, DIALLER, LISTENER, Session, Timing};
