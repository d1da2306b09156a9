//! Move data between machines over every network path they have.
//!
//! A [`Session`] joins two hosts by channels on all the rails between them; a message sent over it is striped.

pub mod bench;
pub mod blocking;
pub mod error;
pub mod files;
pub mod handshake;
pub mod multicast;
pub mod payload;
pub mod pipeline;
pub mod placement;
pub mod rails;
pub mod service;
pub mod session;
pub mod socket;
pub mod stream;
pub mod transport;

pub use error::{Error, Result};
pub use handshake::Token;
pub use multirail_proto::striping::Strategy;
pub use session::{Config, Session};
pub use stream::Stream;
