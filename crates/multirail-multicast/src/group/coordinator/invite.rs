//! The invitation of a host that the group was given.

use super::attend::{Ended, attend};
use super::shared::Shared;
use crate::request::{MULTICAST, MulticastRequest};
use crate::wire::{InviteRequest, send_body};
use multirail_net::Session;
use multirail_net::error::{Error, Result};
use multirail_net::request;
use multirail_proto::multicast::MemberId;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// The pause before a host that is not reached is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// A session to a host outlives its last rail by this much. Then the host is invited again.
const SESSION_GIVES_UP_AFTER: Duration = Duration::from_secs(1);

/// Invites one host, and invites it again when it was lost.
pub(super) async fn invite(shared: Arc<Shared>, host: usize) {
    let mut over = shared.over.subscribe();
    while !*over.borrow() {
        match invite_once(&shared, host).await {
            Ok(Ended::Dismissed) => return,
            Ok(Ended::Left) => return shared.on_left(host),
            Ok(Ended::Failed(why)) => return shared.on_failed(host, why),
            Err(error) if is_final(&error) => return shared.on_failed(host, error.to_string()),
            Err(error) => shared.on_lost(host, error.to_string()),
        }
        let _ = tokio::time::timeout(RETRY_EVERY, over.wait_for(|over| *over)).await;
    }
}

/// Whether another attempt is useless.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::TokenMissing { .. }
            | Error::TokenWrong
            | Error::TokenUnknown
            | Error::KeyRefused { .. }
            | Error::HostUnknown { .. }
            | Error::HostChanged { .. }
            | Error::PlaintextDiffers { .. }
            | Error::Version { .. }
            | Error::NotMultirail { .. }
    )
}

async fn invite_once(shared: &Arc<Shared>, host: usize) -> Result<Ended> {
    let config = shared.options.config.clone().give_up_after(SESSION_GIVES_UP_AFTER);
    let address = shared.roster().address(host as MemberId + 1).to_owned();
    let mut session = Session::connect(&address, config).await?;
    let ends = session.rails().first().and_then(|rail| rail.addresses);
    if let Some((_, remote)) = ends {
        shared.roster().reached(host as MemberId + 1, remote.ip().to_canonical());
    }
    let local = ends.map_or(Ipv4Addr::LOCALHOST.into(), |(local, _)| local.ip());
    let invite = shared.invite(host, local, session.peer().key);
    let begin = MulticastRequest::Invite(InviteRequest { group: shared.id });
    request::send_request(&mut session, MULTICAST, &begin).await?;
    send_body(session.split().0, &invite).await?;
    attend(shared, host, session).await
}
