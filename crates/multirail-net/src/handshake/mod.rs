//! How two hosts authenticate each other and agree on keys before they allocate anything else.
//!
//! The first connection of a session:
//!
//! ```text
//! client                                         server
//!   Hello    magic, version, Open  + TLS 1.3  ->
//!                                             <-  Welcome  magic, version  + TLS 1.3
//!   TLS: Request  purpose, proof              ->
//!                                             <-  TLS: Verdict  session, proof; or a refusal
//! ```
//!
//! Every other connection of the session:
//!
//! ```text
//!   Hello    magic, version, Join, nonce      ->
//!                                             <-  Welcome  nonce, proof; or a refusal
//!   Proof                                     ->
//! ```
//!
//! TLS proves that each side has the private half of its key. With a token, the two packets in clear
//! carry the messages of a PAKE, and the proofs are keyed by what it makes of the token; the proofs
//! are bound to TLS's keys, so that a relay cannot pass them on, and each connection lets an attacker
//! try one guess. Without a token, each side must know the other one's key. The exporter of TLS gives
//! the secret of the session, from which each connection gets its own keys.

mod agreed;
mod client;
mod packets;
#[doc(hidden)]
pub mod raw;
mod server;
mod types;

pub(crate) use client::{join, open};
#[doc(hidden)]
pub use packets::decode_any;
pub(crate) use packets::{GREETING_BYTES, is_greeting};
pub(crate) use server::{Admitted, Doorkeeper, accept};
pub(crate) use types::Opened;
pub use types::{Joined, PROTOCOL_VERSION, Peer, Purpose, Refusal, SessionId, TIMEOUT};
