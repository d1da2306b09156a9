//! One data set to many hosts: who sends which piece to whom, as state machines.
//!
//! A *group* is a list of hosts in clusters ([`members`]). One of them, the *root*, has the data,
//! which is cut into [`pieces`]. Three kinds of state machine decide:
//!
//! - a [`Node`] of a [`Method`], one for each host and broadcast, decides which piece goes to which
//!   peer;
//! - a [`member::Member`], one for each host and group, drives the nodes and decides about links,
//!   manifests, heartbeats and time-outs;
//! - a [`coordinator::Coordinator`] on the root decides which hosts a broadcast waits for.
//!
//! A node is driven like this:
//!
//! 1. [`Node::handle`] with an event ([`Input`]), then [`Node::poll`] until it returns `None`,
//!    carrying out every [`Output`].
//! 2. [`Node::handle`] with [`Input::Wake`] at the time of [`Node::wake_at_us`].
//!
//! A node never waits. Its outputs for a peer are queued, control messages before pieces. Every
//! piece is verified before a node learns of it.
//!
//! Modules: [`method`] has the nodes, [`plan`] what is computed before data moves, [`member`] a
//! host's part in a group.

pub mod bandwidths;
pub mod coordinator;
pub mod grouping;
pub mod member;
pub mod members;
pub mod message;
pub mod method;
mod method_name;
pub mod node;
pub mod pieces;
pub mod plan;

pub use bandwidths::Bandwidths;
pub use members::{MemberId, Members};
pub use message::Message;
pub use method::Nodes;
pub use method_name::Method;
pub use node::{Input, Node, Output};
pub use pieces::{PieceSet, Pieces};
pub use plan::{Plan, Tree};
