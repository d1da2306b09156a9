//! The control messages between the members of a group.

use crate::multicast::message::Message;
use serde::{Deserialize, Serialize};

/// One item of a control frame. The number is that of the broadcast within the group.
///
/// The order of the variants is part of the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlItem {
    /// The sender has the manifest and its node runs: messages of the node may follow.
    Ready(u32),
    /// A message from the sender's node to the receiver's.
    Node(u32, Message),
    /// The sender holds every piece.
    Complete(u32),
    /// A heartbeat: the sender's process runs.
    Alive,
    /// The sender has no manifest of any broadcast in progress and asks for one.
    Ask,
}

/// One end of a link. Two members compare ends to decide whether a new session replaces an old
/// link or duplicates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnds {
    /// A number that differs each time the host joins a group.
    pub incarnation: u64,
    /// How many links to the other member this host has lost.
    pub downs: u32,
}
