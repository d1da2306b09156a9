//! What one copy of a filter does with its edges: a state machine without I/O.
//!
//! The owner of a [`CopyProtocol`] moves messages between it and the connections:
//!
//! 1. [`CopyProtocol::begin`] starts a unit of work.
//! 2. While the filter wants input, the owner passes the messages of [readable] inputs to
//!    [`CopyProtocol::read`]; [`CopyProtocol::finish_buffer`] ends the filter's work on a buffer.
//!    What the filter writes goes to [`CopyProtocol::write`].
//! 3. Messages from consumers go to [`CopyProtocol::on_consumer_message`], at any time. Messages
//!    from [replaceable] producers go to [`CopyProtocol::look_ahead`] while the filter is not
//!    reading, so that queries are answered.
//! 4. After each of these, [`CopyProtocol::advance`] and then [`CopyProtocol::poll_action`] until
//!    it returns `None`: the owner sends and closes what the actions say.
//! 5. A lost connection is reported by `on_input_lost` or `on_output_lost`.
//! 6. Once [`CopyProtocol::is_settled`], [`CopyProtocol::end`] ends the unit of work. After a
//!    failure, [`CopyProtocol::abandon`] and [`CopyProtocol::discard`] bring all edges to the end
//!    of the unit, so that the next one can begin.
//!
//! Nothing here depends on time: back-pressure comes from the `Scheduler`'s window alone.
//!
//! [readable]: CopyProtocol::is_readable
//! [replaceable]: InputConfig::replaceable

mod end;
mod input;
mod output;
mod protocol;
mod query;
mod types;

pub use protocol::CopyProtocol;
pub use types::{Action, CopyError, Delivery, EdgeEnd, InputConfig, OutputConfig, Read, Violation};

#[cfg(test)]
mod tests;
