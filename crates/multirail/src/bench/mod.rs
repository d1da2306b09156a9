//! The MuniSocket ping-pong (MuniSocket paper, section 3.2) beside plain TCP and the ideal fixed
//! split, streams in one direction (PSockets paper, section 4), and curves of pipeline edges.

pub mod curve;
mod echo;
mod handler;
mod pingpong;
mod request;
mod stream;

pub(crate) use handler::{BenchHandler, edges};
pub use multirail_net::probe::MAX_MESSAGE_BYTES;
pub use pingpong::{Bench, Measured, measure_rails};
// For tests of peers that break the protocol.
#[doc(hidden)]
pub use request::{BENCH, BENCH_EDGE, BenchRequest};
pub use stream::{INTERVAL, MAX_STREAM, Streamed};
