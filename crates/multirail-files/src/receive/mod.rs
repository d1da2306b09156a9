//! The receiving half of a copy. It checks each item, stores it, and replies.

mod content;
mod delete;
mod entries;
mod incoming;
mod state;
mod takeover;

pub(super) use incoming::{Incoming, Order};
