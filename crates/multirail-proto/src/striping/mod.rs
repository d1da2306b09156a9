//! Gives the bytes of one message to the channels of a session.
//!
//! A [`Striping`] exists for one message. The driver asks it for the next [`Run`] whenever a
//! channel can take bytes ([`Striping::next`]), and removes a channel that is lost
//! ([`Striping::channel_lost`]). It returns the ranges that the lost channel had claimed and the
//! receiver has not confirmed ([`Striping::give_back`]). The choice of a run is final: the run will
//! be sent.
//!
//! [`Strategy`] lists the five strategies.

mod adaptive;
mod equal_partition;
mod message;
pub(crate) mod rate;
mod run;
mod scheme;
mod shared_counter;
mod strategy;
mod two_ended;
mod view;

pub use message::Striping;
pub use run::{Direction, Framing, Next, Run};
pub use strategy::Strategy;
pub use view::{Channel, ChannelView};
