//! Many byte streams in one session, as QUIC has them: every decision, and no I/O.
//!
//! A [`Streams`] is one side. Its frames travel in the messages of a session, which are striped over
//! all rails. Messages may be handed over in any order: bytes have offsets, and each stream is put
//! in order alone, so that a late message holds up only the streams that have bytes in it.
//!
//! - Either side opens streams ([`Streams::open`]). The peer learns of a stream by its first bytes
//!   ([`StreamEvent::Opened`]).
//! - Each direction ends by itself ([`Streams::finish`]), or both at once ([`Streams::reset`]).
//! - The receiver limits what is under way in each stream ([`INITIAL_WINDOW_BYTES`] at first, up to
//!   [`MAX_WINDOW_BYTES`] where the reader keeps up), and in all streams together.
//! - Streams that have something to send take turns. One that begins goes first, so that a short
//!   transfer overtakes long ones.
//!
//! # Call order
//!
//! After each call that takes `&mut self`, [`Streams::poll_event`] tells what has changed. While the
//! session takes messages, [`Streams::next_message`] makes them. What arrives goes to
//! [`Streams::handle_message`]. A stream that the application has done with is released
//! ([`Streams::release`]).
//!
//! # Memory
//!
//! An idle stream has about 300 bytes. A side keeps at most [`SEND_BUFFER_BYTES`] a stream to send.
//! The peer can make it keep [`INITIAL_WINDOW_BYTES`] for each of [`MAX_STREAMS`] streams that are
//! not read, and [`MAX_GROWTH_BYTES`] for all of them together.

mod frame;
mod limits;
mod message_bytes;
mod receive_half;
mod schedule;
mod send_half;
mod stream_id;
mod table;
mod violation;

pub use limits::{INITIAL_WINDOW_BYTES, MAX_GROWTH_BYTES, MAX_STREAMS, MAX_WINDOW_BYTES, SEND_BUFFER_BYTES};
pub use message_bytes::message_bytes;
pub use stream_id::StreamId;
pub use table::{ReadOutcome, ResetCode, StreamEvent, Streams, WriteOutcome};
pub use violation::StreamViolation;
