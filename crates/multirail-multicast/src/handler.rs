//! The server's handler for broadcasts.

use crate::attend::{self, Attendance};
use crate::discovery::bounds::Bounds;
use crate::discovery::measure;
use crate::group::serve::{Registry, serve_invite, serve_peer};
use crate::request::MulticastRequest;
use crate::store::tree::abandoned::{KEPT_FOR, remove_abandoned};
use multirail_net::request::Request;
use multirail_net::router::{Answering, Next, ProtocolHandler};
use multirail_net::{Config, Session};
use multirail_tree::dir::Dir;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Serves [`MULTICAST`](crate::MULTICAST).
pub struct MulticastHandler {
    registry: Registry,
    config: Config,
    attendance: Option<Arc<Attendance>>,
    bounds: Bounds,
}

impl std::fmt::Debug for MulticastHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MulticastHandler").finish_non_exhaustive()
    }
}

impl MulticastHandler {
    /// Receives broadcasts below the folder `root`, and dials other members with `config`. With
    /// `attendance`, a root may ask the server to end with its broadcast.
    pub fn new(root: &Path, config: Config, attendance: Option<Arc<Attendance>>) -> Self {
        if let Err(error) = Dir::open(root).and_then(|root| remove_abandoned(&root, KEPT_FOR)) {
            tracing::warn!(%error, "cannot look for the files of interrupted broadcasts");
        }
        Self { registry: Registry::new(root, config.clone()), config, attendance, bounds: Bounds::new() }
    }
}

impl ProtocolHandler for MulticastHandler {
    fn answer<'a>(&'a self, mut session: Session, peer: SocketAddr, request: Request) -> Answering<'a> {
        Box::pin(async move {
            let notes = request.notes().clone();
            match request.parse()? {
                MulticastRequest::Measure(request) => {
                    notes.operation("measure");
                    request.hosts.iter().for_each(|host| notes.detail(host.clone()));
                    measure::serve_measure(&mut session, request, &self.config, peer.ip(), &self.bounds).await?;
                }
                MulticastRequest::Attend => {
                    notes.operation("attend");
                    attend::serve_attend(&mut session, self.attendance.as_deref()).await?;
                }
                MulticastRequest::Invite(request) => {
                    serve_invite(&self.registry, &mut session, request, &notes).await?
                }
                MulticastRequest::Peer(hello) => {
                    notes.operation("link");
                    serve_peer(&self.registry, session, peer, hello).await?;
                    return Ok(Next::Done);
                }
            }
            Ok(Next::Request(session))
        })
    }
}
