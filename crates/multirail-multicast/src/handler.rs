//! The server's handler for broadcasts.

use crate::attend::{self, Attendance};
use crate::discovery::bounds::Bounds;
use crate::discovery::measure;
use crate::group::serve::{Registry, serve_invite, serve_peer};
use crate::request::MulticastRequest;
use crate::store::tree::abandoned::{KEPT_FOR, remove_abandoned};
use crate::wire::JoinReply;
use multirail_net::request::{self, Request};
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
                MulticastRequest::Join(_) => {
                    notes.operation("join");
                    let why = "no broadcast with this ticket begins here; ask for a new ticket".to_owned();
                    notes.refused(&why);
                    request::send(&mut session, &JoinReply::Refused(why)).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::MULTICAST;
    use crate::wire::{self, FromHost, Invite, InviteHost, InviteRequest, MAX_STATUS_BYTES, Status};
    use crate::{Method, pass::Pass};
    use multirail_net::router::Router;
    use multirail_net::session::{ListenConfig, Listener};

    /// A host lost its coordinator, went on alone until it and its peers had everything, and left.
    #[tokio::test]
    async fn a_host_that_has_left_complete_says_so_when_it_is_invited_again() {
        let handler = MulticastHandler::new(&std::env::temp_dir(), Config::default(), None);
        let report = FromHost::Status(Status { transfer: Some(0), held_bytes: 7, done: true, ..Status::default() });
        handler.registry.forget(&[1; 16], report.clone());
        handler.registry.forget(&[2; 16], FromHost::Status(Status::default()));
        let listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::default())).await.unwrap();
        let address = listener.address().to_string();
        tokio::spawn(Router::new().register(MULTICAST, Arc::new(handler)).serve(listener));
        let host = |cluster| InviteHost { address: "127.0.0.1:1".to_owned(), cluster };
        for (group, second) in [(1, report), (2, FromHost::Status(Status::default()))] {
            let mut session = Session::connect(&address, Config::default()).await.unwrap();
            let begin = MulticastRequest::Invite(InviteRequest { group: [group; 16] });
            request::send_request(&mut session, MULTICAST, &begin).await.unwrap();
            let (sender, receiver) = session.split();
            let invite = Invite {
                hosts: vec![host(0), host(0)],
                me: 1,
                root: 0,
                method: Method::Adaptive,
                bandwidths: None,
                destination: Some(b"to".to_vec()),
                sync: false,
                manifest: None,
                seed: 1,
                pass: Pass::default(),
            };
            wire::send_body(sender, &invite).await.unwrap();
            let mut receive = async || wire::receive_body::<FromHost>(receiver, MAX_STATUS_BYTES).await.unwrap();
            assert_eq!((receive().await, receive().await), (FromHost::Joined, second), "group {group}");
        }
    }
}
