//! The listener of the root.

use super::join::serve_join;
use super::shared::Shared;
use crate::group::options::BroadcastHost;
use crate::link;
use crate::request::MulticastRequest;
use crate::wire::PeerReply;
use multirail_net::error::{Error, Result};
use multirail_net::session::{Accepted, ListenConfig, Listener};
use multirail_net::{Config, Session, request};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The listener at which members reach the root. With `any`, those may be hosts that are not in the list.
pub(super) async fn listen(hosts: &[BroadcastHost], any: bool, session: Config) -> Result<Listener> {
    let bind = |ip: IpAddr| Listener::bind(ListenConfig::new(SocketAddr::new(ip, 0), session.clone()));
    let is_here = |h: &BroadcastHost| {
        let name = h.address.rsplit_once(':').map_or(h.address.as_str(), |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    if !any && hosts.iter().all(is_here) && !hosts.iter().any(|h| h.address.starts_with('[')) {
        return bind(Ipv4Addr::LOCALHOST.into()).await;
    }
    match bind(Ipv6Addr::UNSPECIFIED.into()).await {
        Ok(listener) => Ok(listener),
        Err(_) => bind(Ipv4Addr::UNSPECIFIED.into()).await,
    }
}

pub(super) async fn accept(mut listener: Listener, shared: Arc<Shared>) {
    while let Ok(accepted) = listener.accept().await {
        let Accepted::Session(new) = accepted else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(&shared, new.start()).await {
                tracing::debug!(%error, "a session to the root");
            }
        });
    }
}

async fn serve(shared: &Arc<Shared>, mut session: Session) -> Result<()> {
    match request::receive_request(&mut session).await?.parse()? {
        MulticastRequest::Peer(hello) if hello.group == shared.id => {
            link::admit(shared.member.clone(), session, hello).await;
            Ok(())
        }
        MulticastRequest::Join(asked) => serve_join(shared, session, asked).await,
        _ => {
            let _ = request::send(&mut session, &PeerReply::UnknownGroup).await;
            Err(Error::Protocol("a connection for another protocol".to_owned()))
        }
    }
}
