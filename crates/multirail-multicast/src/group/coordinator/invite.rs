//! The invitation of a host, and the session that follows it.

use super::shared::Shared;
use crate::request::{MULTICAST, MulticastRequest};
use crate::wire::{FromHost, InviteRequest, MAX_STATUS_BYTES, ToHost, receive_body, send_body};
use multirail_net::Session;
use multirail_net::error::{Error, Result};
use multirail_net::request;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// The pause before a host that is not reached is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// A session to a host outlives its last rail by this much. Then the host is invited again.
const SESSION_GIVES_UP_AFTER: Duration = Duration::from_secs(1);
/// A host that reports nothing for this long is lost. Hosts report every second.
const SILENCE: Duration = Duration::from_secs(30);
/// The time limit for hosts to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// How a session to a host ended without an error.
enum Ended {
    /// The host was told to leave.
    Left,
    /// The host will not take part any more.
    Failed(String),
}

/// Invites one host, and invites it again when it was lost.
pub(super) async fn invite(shared: Arc<Shared>, host: usize) {
    let mut over = shared.over.subscribe();
    while !*over.borrow() {
        match invite_once(&shared, host).await {
            Ok(Ended::Left) => return,
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
    let mut session = Session::connect(&shared.given[host].address, config).await?;
    let local = session.rails().first().and_then(|r| r.addresses).map(|(local, _)| local.ip());
    let invite = shared.invite(host, local.unwrap_or(Ipv4Addr::LOCALHOST.into()), session.peer().key);
    request::send_request(&mut session, MULTICAST, &MulticastRequest::Invite(InviteRequest { group: shared.id }))
        .await?;
    let (sender, receiver) = session.split();
    send_body(sender, &invite).await?;
    let mut over = shared.over.subscribe();
    let hear = async {
        loop {
            let said = tokio::time::timeout(SILENCE, receive_body(receiver, MAX_STATUS_BYTES)).await;
            match said.map_err(|_| silent())?? {
                FromHost::Joined => shared.on_joined(host),
                FromHost::Status(status) => shared.on_status(host, status),
                FromHost::Measured { round, rtts_us } => shared.on_measured(host, round, &rtts_us),
                FromHost::Refused(why) | FromHost::Failed(why) => return Ok::<_, Error>(Ended::Failed(why)),
            }
        }
    };
    let mut below = shared.over_below.subscribe();
    let mut clusters = shared.clusters.subscribe();
    // The invitation has the clusters that were thought of first.
    clusters.mark_changed();
    let mut measurements = shared.measurements[host].subscribe();
    let tell = async {
        loop {
            let order = tokio::select! {
                changed = below.changed() => changed.ok().map(|()| ToHost::Over(*below.borrow_and_update())),
                changed = measurements.changed() => changed.ok().and_then(|()| measurements.borrow_and_update().clone()),
                changed = clusters.changed() => match changed {
                    Ok(()) => match &*clusters.borrow_and_update() {
                        Some(clusters) => Some(ToHost::Regroup(clusters.to_vec())),
                        None => continue,
                    },
                    Err(_) => None,
                },
            };
            let Some(order) = order else { return Ok::<_, Error>(Ended::Left) };
            send_body(sender, &order).await?;
        }
    };
    let ended = tokio::select! {
        ended = hear => ended?,
        ended = tell => ended?,
        _ = over.wait_for(|over| *over) => Ended::Left,
    };
    if matches!(ended, Ended::Left) {
        send_body(session.split().0, &ToHost::Leave).await?;
    }
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, session.close()).await;
    Ok(ended)
}

fn silent() -> Error {
    Error::Io { what: "waiting for the host to tell how far it is", cause: std::io::ErrorKind::TimedOut.into() }
}
