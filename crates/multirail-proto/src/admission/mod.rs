//! Whom a server lets in: limits for each source address, beside those for all peers together.
//!
//! A [`Gate`] limits connections that have proven nothing, a [`Places`] those that are
//! authenticated. Time is an argument, and the driver opens and closes the connections.

mod bucket;
mod gate;
mod places;
mod source;

pub use bucket::TokenBucket;
pub use gate::{Gate, Ticket};
pub use places::{Entered, Full, MIN_IDLE, PlaceId, Places};
pub use source::Source;
