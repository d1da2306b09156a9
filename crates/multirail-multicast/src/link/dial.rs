//! Makes links: asks a peer for one, and answers a peer that asks.

use super::owner::LinkOwner;
use crate::request::{MULTICAST, MulticastRequest};
use crate::wire::{self, MAX_STATUS_BYTES, PeerHello, PeerReply};
use multirail_net::request;
use multirail_net::{Error, Session};
use multirail_proto::multicast::MemberId;
use std::sync::Arc;
use std::time::Duration;

/// How long a host waits for a link that the other host is making.
const DUPLICATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may take to answer a hello. Its invitation may still be on the way.
const REPLY_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a host that has a pass waits until this host is told of it.
const NEWS_TIMEOUT: Duration = Duration::from_secs(3);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a refused session may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks `peer` for a link and reports the outcome to `owner`.
pub(crate) async fn dial(owner: Arc<dyn LinkOwner>, peer: MemberId) {
    match dial_once(&*owner, peer).await {
        Ok((session, PeerReply::Welcome(_, pass))) if !owner.is_member(peer, session.peer().key, &pass) => {
            owner.dial_failed(peer, "another host answers at its address");
        }
        Ok((session, PeerReply::Welcome(theirs, _))) => owner.link_up(peer, session, theirs, true),
        Ok((session, reply)) => {
            drop(session);
            match reply {
                PeerReply::Refused(why) => owner.dial_failed(peer, &why),
                PeerReply::UnknownGroup => owner.dial_failed(peer, "it does not know the group"),
                _ => {
                    tokio::time::sleep(DUPLICATE_TIMEOUT).await;
                    owner.dial_failed(peer, "it did not make the link that it announced");
                }
            }
        }
        Err(error) => owner.dial_failed(peer, &error.to_string()),
    }
}

async fn dial_once(owner: &dyn LinkOwner, peer: MemberId) -> Result<(Session, PeerReply), Error> {
    let mut session = Session::connect(&owner.address(peer), owner.session_config().clone()).await?;
    request::send_request(&mut session, MULTICAST, &MulticastRequest::Peer(owner.hello(peer))).await?;
    let reply = wire::receive_body(session.split().1, MAX_STATUS_BYTES);
    let reply = match tokio::time::timeout(REPLY_TIMEOUT, reply).await {
        Ok(reply) => reply?,
        Err(_) => {
            return Err(Error::HandshakeTimeout { peer: owner.address(peer), after: REPLY_TIMEOUT });
        }
    };
    Ok((session, reply))
}

/// Answers a hello in the group's runtime: the session becomes a link or closes.
pub(crate) async fn admit(owner: Arc<dyn LinkOwner>, mut session: Session, hello: PeerHello) {
    let reply = match owner.is_member(hello.from, session.peer().key, &hello.pass) {
        true => {
            // A host that has just joined may be faster than the news of it.
            let until = tokio::time::Instant::now() + NEWS_TIMEOUT;
            while !owner.knows(hello.from) && tokio::time::Instant::now() < until {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            owner.admit(hello.from, hello.ends)
        }
        // The member that it claims to be is not to blame.
        false => PeerReply::Refused(format!("the root gave this host no pass as member {}", hello.from)),
    };
    let sent = request::send(&mut session, &reply).await;
    match (sent, reply) {
        (Ok(()), PeerReply::Welcome(..)) => {
            session.set_give_up_after(owner.session_config().give_up_after);
            owner.link_up(hello.from, session, hello.ends, false);
        }
        _ => drop(tokio::time::timeout(CLOSE_TIMEOUT, session.close()).await),
    }
}
