//! The coordinator's session with a host, from the invitation on.

use super::shared::Shared;
use crate::wire::{FromHost, MAX_STATUS_BYTES, ToHost, receive_body, send_body};
use multirail_net::Session;
use multirail_net::error::{Error, Result};
use multirail_proto::multicast::MemberId;
use std::sync::Arc;
use std::time::Duration;

/// A host that reports nothing for this long is lost. Hosts report every second.
const SILENCE: Duration = Duration::from_secs(30);
/// The time limit for hosts to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// How a session to a host ended without an error.
pub(super) enum Ended {
    /// The host was told to leave.
    Dismissed,
    /// The host has left of its own accord.
    Left,
    /// The host will not take part any more.
    Failed(String),
}

/// Receives the reports of a host that has its invitation, and tells it what changes.
pub(super) async fn attend(shared: &Arc<Shared>, host: usize, mut session: Session) -> Result<Ended> {
    let (sender, receiver) = session.split();
    let mut over = shared.over.subscribe();
    let listen = async {
        loop {
            let said = tokio::time::timeout(SILENCE, receive_body(receiver, MAX_STATUS_BYTES)).await;
            match said.map_err(|_| silent())?? {
                FromHost::Joined => shared.on_joined(host),
                FromHost::Status(status) => shared.on_status(host, status),
                FromHost::Measured { round, rtts_us } => shared.on_measured(host, round, &rtts_us),
                FromHost::Leaving => return Ok(Ended::Left),
                FromHost::Refused(why) | FromHost::Failed(why) => return Ok::<_, Error>(Ended::Failed(why)),
            }
        }
    };
    let mut below = shared.over_below.subscribe();
    let mut grouping = shared.grouping.subscribe();
    // The invitation has the clusters that were thought of first.
    grouping.mark_changed();
    let mut measure = shared.roster().measure(host as MemberId + 1).subscribe();
    let tell = async {
        loop {
            let order = tokio::select! {
                changed = below.changed() => changed.ok().map(|()| ToHost::Over(*below.borrow_and_update())),
                changed = measure.changed() => changed.ok().and_then(|()| measure.borrow_and_update().clone()),
                changed = grouping.changed() => match changed {
                    Ok(()) if *grouping.borrow_and_update() == 0 => continue,
                    Ok(()) => Some(shared.regrouped()),
                    Err(_) => None,
                },
            };
            let Some(order) = order else { return Ok::<_, Error>(Ended::Dismissed) };
            send_body(sender, &order).await?;
        }
    };
    let ended = tokio::select! {
        ended = listen => ended?,
        ended = tell => ended?,
        _ = over.wait_for(|over| *over) => Ended::Dismissed,
    };
    if matches!(ended, Ended::Dismissed) {
        send_body(session.split().0, &ToHost::Leave).await?;
    }
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, session.close()).await;
    Ok(ended)
}

fn silent() -> Error {
    Error::Io { what: "waiting for the host to tell how far it is", cause: std::io::ErrorKind::TimedOut.into() }
}
