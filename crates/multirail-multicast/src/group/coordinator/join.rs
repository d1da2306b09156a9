//! A host that joins by a ticket.

use super::attend::{Ended, attend};
use super::shared::Shared;
use crate::group::progress::{HostProgress, HostState};
use crate::wire::{JoinReply, JoinRequest, send_body};
use multirail_net::error::Result;
use multirail_net::{PublicKey, Session};
use multirail_proto::multicast::members::MAX_MEMBERS;
use multirail_proto::multicast::{MemberId, Members};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Serves a host that asks to join, until it leaves or is lost.
pub(super) async fn serve_join(shared: &Arc<Shared>, mut session: Session, asked: JoinRequest) -> Result<()> {
    let (member, local) = match admit(shared, &session, &asked) {
        Ok(admitted) => admitted,
        Err(why) => {
            send_body(session.split().0, &JoinReply::Refused(why)).await?;
            return session.close().await;
        }
    };
    let host = member as usize - 1;
    let begun = shared.roster().begin_session(member);
    let invite = shared.invite(host, local, session.peer().key);
    let ended = match send_body(session.split().0, &JoinReply::Invite(Box::new(invite))).await {
        Ok(()) => attend(shared, host, session).await,
        Err(error) => Err(error),
    };
    if !shared.roster().is_current(member, begun) {
        // The host is back before its loss was noticed.
        return Ok(());
    }
    match ended {
        Ok(Ended::Dismissed) => {}
        Ok(Ended::Left) => shared.on_left(host),
        Ok(Ended::Failed(why)) => shared.on_failed(host, why),
        // The host comes back by itself.
        Err(error) => shared.on_lost(host, error.to_string()),
    }
    Ok(())
}

/// The number of a host that joins, and the address of this host that it has reached.
fn admit(shared: &Arc<Shared>, session: &Session, asked: &JoinRequest) -> Result<(MemberId, IpAddr), String> {
    if asked.group != shared.id || shared.options.joining.is_none() || *shared.over.borrow() {
        return Err("the broadcast of this ticket is over; ask for a new ticket".to_owned());
    }
    let ends = session.rails().first().and_then(|rail| rail.addresses);
    let (local, remote) = ends.ok_or("the session has no address")?;
    let (local, remote) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let key = session.peer().key;
    if let Some(member) = shared.roster().returning(asked.me, key) {
        return Ok((member, local));
    }
    // The others reach it where its session comes from, so that it cannot have them dial another host.
    let address = SocketAddr::new(remote, asked.port).to_string();
    let member = shared.add(address, (local, remote), key)?;
    tracing::info!(member, %remote, "a host has joined");
    Ok((member, local))
}

impl Shared {
    /// Adds a host that joins to the group.
    fn add(self: &Arc<Self>, address: String, ends: (IpAddr, IpAddr), key: PublicKey) -> Result<MemberId, String> {
        let mut roster = self.roster();
        let count = roster.count();
        if count >= MAX_MEMBERS {
            return Err(format!("the group has {count} hosts already, and can have no more"));
        }
        let (local, remote) = ends;
        let member = roster.join(address.clone(), remote, local, key);
        let clusters = roster.all_clusters(self.machine().clusters().to_vec());
        let members = Arc::new(Members::new(clusters.clone(), 0).map_err(|error| error.to_string())?);
        self.machine().handle_added(self.now_us(), members.clone());
        self.member.regroup(clusters, member, &roster.since(member as usize));
        drop(roster);
        self.options.progress.update(|snapshot| {
            // Before the broadcast begins, no host is shown.
            if snapshot.hosts.len() + 1 == member as usize {
                let (cluster, state) = (members.cluster(member), HostState::Waiting(None));
                snapshot.hosts.push(HostProgress { address, cluster, held_bytes: 0, state });
            }
        });
        self.grouping.announce_soon();
        Ok(member)
    }
}
