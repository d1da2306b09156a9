//! What a client asks a server for.

use crate::browse::ask::BrowseRequest;
use crate::options::Terms;
use multirail_net::protocol::ProtocolName;
use serde::{Deserialize, Serialize};

/// The name of the protocol that copies files.
pub const FILES: ProtocolName = ProtocolName::new("files");

/// What a client asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FilesRequest {
    /// Receive files.
    Put(PutRequest),
    /// Send files.
    Get(GetRequest),
    /// Look at files, or change entries.
    Browse(BrowseRequest),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PutRequest {
    pub(crate) destination: Vec<u8>,
    pub(crate) several: bool,
    pub(crate) sync: bool,
    pub(crate) terms: Terms,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct GetRequest {
    pub(crate) sources: Vec<Vec<u8>>,
    pub(crate) terms: Terms,
    pub(crate) strategy: Option<(String, u32)>,
    /// Whether the content yields to other traffic.
    pub(crate) background: bool,
}
