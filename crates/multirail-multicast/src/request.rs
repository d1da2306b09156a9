//! What a client asks a server for.

use crate::wire::{InviteRequest, JoinRequest, PeerHello};
use multirail_net::protocol::ProtocolName;
use serde::{Deserialize, Serialize};

/// The name of the protocol for broadcasts.
pub const MULTICAST: ProtocolName = ProtocolName::new("multicast");

/// A client's request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum MulticastRequest {
    /// Measure to other servers.
    Measure(MeasureRequest),
    /// Run until a broadcast is over.
    Attend,
    /// Take part in a group; the invitation follows.
    Invite(InviteRequest),
    /// Be a link between two members of a group.
    Peer(PeerHello),
    /// Join a group by a ticket. Only the root of the group answers it.
    Join(JoinRequest),
}

/// The request to measure to other hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MeasureRequest {
    /// `name:port` or `address:port`.
    pub(crate) hosts: Vec<String>,
    /// Whether to measure the rate, too.
    pub(crate) rate: bool,
}
