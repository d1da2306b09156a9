//! A deterministic discrete-event simulator for the state machines of `multirail-proto`.
//!
//! [`network`] is a fluid model: flows over paths of links, which they share max-min fairly. It
//! knows nothing of messages. [`message`] and [`streams`] drive two
//! [`session::Machine`](multirail_proto::session::Machine)s over it; [`schedule`] says what happens
//! to the rails meanwhile. [`multicast`] drives thousands of nodes over links of its own. The same
//! seed always gives the same run.

#![warn(unreachable_pub)]

pub mod message;
pub mod multicast;
pub mod network;
pub mod schedule;
mod session;
pub mod streams;
