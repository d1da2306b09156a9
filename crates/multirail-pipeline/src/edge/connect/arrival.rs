//! The accepting host's side.

use super::fabric::has_fabric;
use super::greeting::{Answer, Hello, Reply, receive, send, set_timeouts};
use super::ucx_edge;
use crate::edge::connection::Connection;
use crate::edge::notifier::Notifier;
use crate::edge::shm::{MachineId, Rendezvous};
use crate::edge::striped::{EdgeReply, Striped};
use crate::edge::tcp::Tcp;
use multirail_net as net;
use multirail_net::error::{Error, Result};
use multirail_net::session::NewSession;
use multirail_net::{request, runtime};
use multirail_proto::pipeline::Transport;
use multirail_proto::pipeline::transport::candidates;
use std::sync::Arc;
use std::time::Duration;

/// An edge that another host wants to make. It is accepted or refused once.
#[derive(Debug)]
pub struct Arrival {
    pub(super) edge: Vec<u8>,
    pub(super) way: Way,
}

/// How an edge has arrived.
#[derive(Debug)]
pub(super) enum Way {
    Greeting { stream: net::Connection, tries: Vec<Transport>, machine: Option<MachineId> },
    Session(NewSession),
}

impl Arrival {
    /// Reads the greeting of an authenticated peer. It blocks for some seconds at most. `None`
    /// means that the peer was told to make the edge over a session.
    pub(super) fn read(mut stream: net::Connection) -> Result<Option<Self>> {
        set_timeouts(&stream)?;
        let Hello { edge, offers, machine } = receive(&mut stream)?;
        let same_machine = machine.is_some() && machine == MachineId::here();
        let tries = candidates(&offers, same_machine, has_fabric());
        if tries.first() == Some(&Transport::Striped) {
            send(&mut stream, &Reply::Session)?;
            return Ok(None);
        }
        Ok(Some(Self { edge, way: Way::Greeting { stream, tries, machine } }))
    }

    /// The edge that a session requests. No runtime may drive the session.
    pub(super) fn of_session(session: NewSession, edge: Vec<u8>) -> Self {
        Self { edge, way: Way::Session(session) }
    }

    /// The name of the edge, as the dialling host gave it.
    pub fn edge(&self) -> &[u8] {
        &self.edge
    }

    /// Makes the edge, for the owner of `notifier`. It blocks for some seconds at most. The edge
    /// fails when the peer has been unreachable for `give_up_after`.
    ///
    /// # Errors
    ///
    /// If no transport works. The peer is told the reason.
    pub fn accept(
        self,
        notifier: &Arc<Notifier>,
        limit_bytes: u64,
        give_up_after: Duration,
    ) -> Result<Box<dyn Connection>> {
        let (mut stream, tries, machine) = match self.way {
            Way::Session(session) => {
                return Ok(Box::new(Striped::accept(session, notifier, limit_bytes, give_up_after)?));
            }
            Way::Greeting { stream, tries, machine } => (stream, tries, machine),
        };
        let mut why = "no common transport".to_owned();
        for transport in tries {
            match transport {
                Transport::Shm => match meet(&mut stream, machine.as_ref(), notifier, limit_bytes)? {
                    Ok(made) => return Ok(made),
                    Err(failed) => why = format!("no shared memory: {failed}"),
                },
                Transport::Ucx => {
                    let one_machine = machine.is_some() && machine == MachineId::here();
                    match ucx_edge::accept(&mut stream, one_machine, limit_bytes)? {
                        Ok(made) => return Ok(made),
                        Err(failed) => why = format!("no UCX: {failed}"),
                    }
                }
                Transport::Tcp => {
                    send(&mut stream, &Reply::Accepted(Transport::Tcp))?;
                    return Ok(Box::new(Tcp::new(stream, limit_bytes, give_up_after)?));
                }
                // `read` has handled a session already, and `memory` is never offered.
                Transport::Striped | Transport::Memory => continue,
            }
            tracing::debug!(why, "no {transport} with the peer of a stream");
        }
        send(&mut stream, &Reply::Refused(why.clone()))?;
        Err(Error::Protocol(why))
    }

    /// Refuses the edge, and tells the peer why.
    ///
    /// # Errors
    ///
    /// If the peer cannot be told.
    pub fn refuse(self, why: &str) -> Result<()> {
        match self.way {
            Way::Greeting { mut stream, .. } => send(&mut stream, &Reply::Refused(why.to_owned())),
            Way::Session(session) => runtime::block_on(async {
                let mut session = session.start_moved().map_err(Error::io("taking over a session"))?;
                request::send(&mut session, &EdgeReply(Err(why.to_owned()))).await?;
                session.close().await
            }),
        }
    }
}

/// Tries to share memory. After an inner error, the peer waits for another choice.
fn meet(
    stream: &mut net::Connection,
    theirs: Option<&MachineId>,
    notifier: &Arc<Notifier>,
    limit_bytes: u64,
) -> Result<Result<Box<dyn Connection>, String>> {
    if theirs.is_none() || theirs != MachineId::here().as_ref() {
        return Ok(Err("the two processes are not on one machine and network namespace".to_owned()));
    }
    let rendezvous = match Rendezvous::open() {
        Ok(rendezvous) => rendezvous,
        Err(error) => return Ok(Err(error.to_string())),
    };
    send(stream, &Reply::Meet(rendezvous.point().clone()))?;
    if let Answer(Err(why)) = receive(stream)? {
        return Ok(Err(why));
    }
    match rendezvous.accept(notifier, limit_bytes) {
        Ok(made) => {
            send(stream, &Reply::Accepted(Transport::Shm))?;
            Ok(Ok(Box::new(made)))
        }
        Err(error) => Ok(Err(error.to_string())),
    }
}
