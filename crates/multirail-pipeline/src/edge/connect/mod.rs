//! Making an edge between two processes.
//!
//! One process dials the other's server, passes the handshake, names the edge and offers
//! transports. The server chooses.
//!
//! ```text
//! dials                                 accepts
//!   handshake, naming a protocol  <->
//!   Hello: the edge, offers        ->
//!                                 <-    Reply: the transport, what to try first, or why not
//!   Answer: how trying went        ->
//! ```
//!
//! With `tcp`, the same connection then carries the messages. With `striped`, the dialling process
//! makes the edge over a session, whose first request names the edge.

mod arrival;
mod client;
pub(super) mod dial;
mod fabric;
mod greeting;
mod handler;
mod ucx_edge;

pub use arrival::Arrival;
pub use client::connect;
pub use dial::Dial;
pub use handler::EdgeHandler;

#[cfg(test)]
mod tests;
