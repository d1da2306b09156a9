//! The sending half of a copy. It walks through the sources, announces what it finds, sends what the
//! receiver lacks, and sends a file again once if it did not arrive unchanged.

mod content;
mod entries;
mod found;
mod keep;
mod order;
mod outgoing;
mod tally;

pub(super) use found::digest;
pub(super) use order::Order;
pub(super) use outgoing::send_all;
pub(super) use tally::receive_reply;
