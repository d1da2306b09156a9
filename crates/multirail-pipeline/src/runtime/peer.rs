//! An edge of a copy, with the copy at its other end.

use super::failure::StreamError;
use crate::edge::Connection;

/// The copy at the other end of an edge.
#[derive(Debug, Clone)]
pub(crate) struct EdgePeer {
    pub filter: String,
    pub copy: usize,
    pub host: String,
}

/// An edge and what carries it; `None` once it is closed.
#[derive(Debug)]
pub(crate) struct PeerEdge {
    pub peer: EdgePeer,
    pub connection: Option<Box<dyn Connection>>,
}

impl PeerEdge {
    pub(crate) fn new(peer: EdgePeer, connection: Box<dyn Connection>) -> Self {
        Self { peer, connection: Some(connection) }
    }
}

impl EdgePeer {
    pub(crate) fn lost(&self, cause: impl ToString) -> StreamError {
        let (filter, host) = (self.filter.clone(), self.host.clone());
        StreamError::PeerLost { filter, copy: self.copy, host, cause: cause.to_string() }
    }
}
