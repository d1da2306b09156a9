//! The messages between the coordinator and the hosts, over one session for each host.

use super::layout::Layout;
use crate::runtime::Counts;
use multirail_net::error::{Error, Result};
use multirail_net::payload::VecSink;
use multirail_net::protocol::ProtocolName;
use multirail_net::session::{Receiver, Sender};
use multirail_proto::pipeline::progress::Outcome;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The name of the protocol that runs a part of a pipeline.
pub const PIPELINE: ProtocolName = ProtocolName::new("pipeline");
/// The name of the protocol that carries an edge of a pipeline.
pub const PIPELINE_EDGE: ProtocolName = ProtocolName::new("pipeline-edge");

/// Largest message: it carries a query or a group.
const MAX_BODY_BYTES: u64 = 4 << 20;

/// From the coordinator to a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToHost {
    /// The first message: the group, the host's number in it, and how to make each filter.
    Prepare { layout: Layout, me: u32, kinds: Vec<FilterKind> },
    /// All hosts are prepared: make the edges and start the copies.
    Join,
    /// Do a unit of work.
    Unit { number: u32, query: Vec<u8> },
    /// Stop a unit of work that has failed.
    Abort { unit: u32 },
}

/// A filter as a host can make it. Both fields are meaningless for a filter without a copy there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FilterKind {
    pub kind: String,
    /// JSON, since postcard cannot represent it.
    pub parameters: String,
}

/// From a host to the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromHost {
    Prepared,
    Joined,
    /// Instead of either of them, with the reason.
    Refused(String),
    /// A copy has ended a unit of work.
    Ended {
        filter: u32,
        copy: u32,
        unit: u32,
        outcome: Outcome,
        /// What the copy has done so far.
        counts: Counts,
    },
    /// What each copy has done so far: filter, copy, counts.
    Counts(Vec<(u32, u32, Counts)>),
}

/// Sends one message.
pub(crate) async fn send<T: Serialize>(sender: &mut Sender, message: &T) -> Result<()> {
    let bytes = postcard::to_allocvec(message)
        .map_err(|e| Error::Protocol(format!("a message about a pipeline that cannot be encoded: {e}")))?;
    sender.send(&bytes).await
}

/// Receives one message.
pub(crate) async fn receive<T: DeserializeOwned>(receiver: &mut Receiver) -> Result<T> {
    let mut sink = VecSink::new(MAX_BODY_BYTES);
    receiver.recv_into(&mut sink).await?;
    match postcard::take_from_bytes(&sink.bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(Error::Protocol("an invalid message about a pipeline".to_owned())),
    }
}
