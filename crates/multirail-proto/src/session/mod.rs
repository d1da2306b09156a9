//! A session between two hosts as a state machine: every decision, and no I/O.
//!
//! A [`Machine`] is one side of a session. It decides which bytes of which message each channel
//! carries, what has arrived, what is sent a second time, when channels are opened and closed, and
//! when the session ends. A driver reads and writes sockets, answers questions about their
//! [`Paths`], and carries out [`Action`]s. The driver of the network crate uses TCP and tokio; the
//! simulator's has virtual time.
//!
//! # Call order
//!
//! All methods take the current [`Time`], which never goes back. After each call with `&mut self`,
//! [`Machine::poll_action`] is called until it returns `None`. In between,
//!
//! - connections are announced: [`Machine::handle_control_connected`],
//!   [`Machine::handle_channel_connected`], and the opposite when they are lost;
//! - whenever a call of the application runs or a socket is ready, the driver exchanges packets on
//!   the control connection: [`Machine::queue_requested_report`], [`Machine::control_output`],
//!   [`Machine::handle_control_bytes`];
//! - to send, a message begins ([`Machine::can_begin`], [`Machine::begin_message`]); then rounds
//!   follow: [`Machine::begin_round`], on each channel that takes bytes [`Machine::claim`],
//!   [`Machine::transmit`] and [`Machine::handle_written`], and [`Machine::end_round`] when none
//!   takes anything;
//! - to receive, the driver asks for [`Machine::take_early`] and on each channel for
//!   [`Machine::poll_receive`] and does what that says, until the message is complete
//!   ([`Machine::finish_message`]); otherwise [`Machine::report_if_due`] follows. A driver that does
//!   not need messages in their order asks for [`Machine::take_overtaking`] as well;
//! - at [`Machine::poll_timeout`], [`Machine::handle_timeout`] is called.
//!
//! # Sizes
//!
//! The machine copies messages of up to [`COPY_LIMIT_BYTES`] and keeps [`WINDOW_BYTES`] of them,
//! keeps at most twice [`WINDOW_BYTES`] of messages that arrive early, and some kilobytes for each
//! channel.

mod action;
mod channel;
mod channel_rx;
mod channel_tx;
mod close;
mod config;
mod confirm;
mod connections;
mod control;
mod departure;
mod early;
mod failure;
mod limits;
mod machine;
mod maintenance;
mod message;
mod path;
mod receive;
mod recovery;
mod redial;
mod report;
mod send;
mod serial;
mod spin;
mod time;
mod timers;
mod transfer;
mod tune;

pub use action::{Action, CloseReason, Event, Redial};
pub use close::ReceiveEnd;
pub use config::{MachineConfig, Role};
pub use early::Piece;
pub use failure::{Failure, Violation};
pub use limits::{COPY_LIMIT_BYTES, PROBE_BYTES, WINDOW_BYTES};
pub use machine::{ChannelStatus, Machine, MachineStats};
pub use path::{PathInfo, Paths};
pub use receive::{Direct, ReceiveStep};
pub use send::{INITIAL_UNSENT_BYTES, Payload, Transmit};
pub use spin::SPIN;
pub use time::Time;
pub use timers::{LINGER, UNSENT_AFTER};
