//! The listener of the root.

use crate::group::driver::MemberDriver;
use crate::group::options::BroadcastHost;
use crate::group::serve::serve_root;
use multirail_net::Config;
use multirail_net::error::Result;
use multirail_net::session::{Accepted, ListenConfig, Listener};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The listener at which members reach the root.
pub(super) async fn listen(hosts: &[BroadcastHost], session: Config) -> Result<Listener> {
    let bind = |ip: IpAddr| Listener::bind(ListenConfig::new(SocketAddr::new(ip, 0), session.clone()));
    let is_here = |h: &BroadcastHost| {
        let name = h.address.rsplit_once(':').map_or(h.address.as_str(), |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    if hosts.iter().all(is_here) && !hosts.iter().any(|h| h.address.starts_with('[')) {
        return bind(Ipv4Addr::LOCALHOST.into()).await;
    }
    match bind(Ipv6Addr::UNSPECIFIED.into()).await {
        Ok(listener) => Ok(listener),
        Err(_) => bind(Ipv4Addr::UNSPECIFIED.into()).await,
    }
}

pub(super) async fn accept(mut listener: Listener, member: Arc<MemberDriver>) {
    while let Ok(accepted) = listener.accept().await {
        let Accepted::Session(new) = accepted else { continue };
        let member = member.clone();
        tokio::spawn(async move {
            if let Err(error) = serve_root(member, new.start()).await {
                tracing::debug!(%error, "a session to the root");
            }
        });
    }
}
