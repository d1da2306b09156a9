//! What an edge is dialled with.

use crate::edge::notifier::Notifier;
use multirail_net::Config;
use multirail_net::protocol::ProtocolName;
use multirail_proto::pipeline::Transport;
use std::sync::Arc;
use std::time::Duration;

/// How long either host waits for the other.
pub(in crate::edge) const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// What [`connect`](super::connect) needs to make an edge.
#[derive(Debug, Clone, Copy)]
pub struct Dial<'a> {
    /// The address of the accepting host's server (`HOST:PORT`).
    pub host: &'a str,
    /// The token and the rails.
    pub config: &'a Config,
    /// The protocol whose handler accepts the edge.
    pub protocol: ProtocolName,
    /// Names the edge. Only the handler interprets it.
    pub edge: &'a [u8],
    /// What carries the edge; `None` for the best that both hosts can do.
    pub transport: Option<Transport>,
    /// The notifier of the edge's owner.
    pub notifier: &'a Arc<Notifier>,
    /// Largest body in bytes.
    pub limit_bytes: u64,
}
