//! A deterministic discrete-event simulator: what the decisions of this crate come to, without a network.
//!
//! [`network`] is a fluid model: flows over paths of links, sharing them max-min fairly, with nothing to do between two
//! events. It knows nothing of messages. [`message`] drives a [`Striping`](crate::striping::Striping) over it; [`schedule`] says
//! what happens to the rails meanwhile. [`multicast`] drives thousands of nodes over links of its own. The same seed gives the same run, always.

pub mod message;
pub mod multicast;
pub mod network;
pub mod schedule;
