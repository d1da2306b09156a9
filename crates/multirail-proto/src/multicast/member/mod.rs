//! One host's part in a group: everything that a member of a multicast decides.
//!
//! [`Member`] is a state machine without I/O. It decides which links to make and to give up, who
//! gets a manifest from whom, when a silent peer is abandoned, what counts as a flood, and when a
//! broadcast is over. For every broadcast it drives the [`Node`](super::Node) of the method.
//!
//! The driver calls it in this order, as quinn's driver calls its `Connection`:
//!
//! 1. A `handle_*` method with an event and the time in microseconds. Time never goes back.
//! 2. [`Member::poll_action`] until it returns `None`. The driver carries out every [`Action`].
//! 3. [`Member::poll_timeout`]. At that time the driver calls [`Member::handle_timeout`].
//!
//! The methods take `now_us` as microseconds since any fixed point. A [`Fault`] returned by a
//! method is the peer's: the driver ends the link and reports it with [`Member::handle_link_down`].
//!
//! # A broadcast, as the machine sees it
//!
//! The root calls [`Member::handle_broadcast`]; the other hosts call [`Member::handle_manifest`]
//! when a manifest arrives. Both then open a store and call [`Member::handle_store_open`]. From
//! then on, pieces come ([`Member::handle_piece_start`], [`Member::handle_stored`]) and go
//! ([`Action::SendPiece`], [`Member::handle_sent`]). When every piece is stored, the machine
//! returns [`Action::Finish`], and the driver answers with [`Member::handle_finished`].

mod action;
mod fault;
mod forward;
mod item;
mod links;
mod machine;
mod member_core;

mod transfer;

pub use action::{Action, Admission, MemberConfig, Membership, TransferStatus};
pub use fault::Fault;
pub use item::{ControlItem, LinkEnds};
pub use machine::Member;
