//! The router's handler for edges.

use super::arrival::Arrival;
use multirail_net::error::Result;
use multirail_net::request::Request;
use multirail_net::router::{Answering, Next, ProtocolHandler};
use multirail_net::{Connection, Session};
use std::net::SocketAddr;
use std::sync::Arc;

/// Serves a protocol whose connections and requests are edges.
///
/// Each edge is passed to a function, in a thread of the edge's own.
pub struct EdgeHandler {
    take: Arc<dyn Fn(Arrival) -> Result<()> + Send + Sync>,
}

impl std::fmt::Debug for EdgeHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgeHandler").finish_non_exhaustive()
    }
}

impl EdgeHandler {
    /// Passes each edge to `take`, which may block.
    pub fn new(take: impl Fn(Arrival) -> Result<()> + Send + Sync + 'static) -> Self {
        Self { take: Arc::new(take) }
    }
}

impl ProtocolHandler for EdgeHandler {
    fn answer<'a>(&'a self, session: Session, peer: SocketAddr, request: Request) -> Answering<'a> {
        let take = self.take.clone();
        let arrival = Arrival::of_session(session.into_new(peer), request.body().to_vec());
        Box::pin(async move { Ok(Next::Detached(Box::new(move || take(arrival)))) })
    }

    fn serve_connection(&self, connection: Connection) -> Result<()> {
        match Arrival::read(connection)? {
            Some(arrival) => (self.take)(arrival),
            None => Ok(()),
        }
    }
}
