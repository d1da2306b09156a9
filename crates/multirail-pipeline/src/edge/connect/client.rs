//! The dialling host's side.

use super::dial::{Dial, PEER_TIMEOUT};
use super::fabric::has_fabric;
use super::greeting::{Answer, Hello, Reply, receive, send, set_timeouts};
use super::ucx_edge;
use crate::edge::connection::Connection;
use crate::edge::shm::{Client, MachineId};
use crate::edge::striped::Striped;
use crate::edge::tcp::Tcp;
use multirail_net as net;
use multirail_net::error::{Error, Result};
use multirail_net::runtime;
use multirail_proto::pipeline::Transport;
use multirail_proto::pipeline::transport::offers;

/// Most replies until the accepting host must have chosen.
const MAX_REPLIES: usize = 4;

/// Makes an edge. It blocks for some seconds at most.
///
/// # Errors
///
/// If the host cannot be reached, refuses the edge, or has no transport in common.
pub fn connect(dial: Dial<'_>) -> Result<Box<dyn Connection>> {
    if dial.transport == Some(Transport::Striped) {
        return Ok(Box::new(Striped::dial(dial)?));
    }
    greet(dial, authenticate(dial)?, offers(dial.transport, has_fabric()))
}

/// Agrees on a transport with a host that has accepted the handshake.
pub(super) fn greet(
    dial: Dial<'_>,
    mut stream: net::Connection,
    offers: Vec<Transport>,
) -> Result<Box<dyn Connection>> {
    let wants_machine = offers.iter().any(|offer| matches!(offer, Transport::Shm | Transport::Ucx));
    let machine = wants_machine.then(MachineId::here).flatten();
    send(&mut stream, &Hello { edge: dial.edge.to_vec(), offers: offers.clone(), machine })?;
    let mut client = None;
    for _ in 0..MAX_REPLIES {
        match receive(&mut stream)? {
            Reply::Meet(point) => {
                let connected = Client::connect(&point, dial.notifier).map_err(|error| error.to_string());
                let answer = connected.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
                client = connected.ok();
                send(&mut stream, &Answer(answer))?;
            }
            Reply::Accepted(Transport::Shm) if client.is_some() => {
                let made = client.take().expect("checked above").finish(dial.limit_bytes);
                return Ok(Box::new(made.map_err(Error::io("sharing memory with a stream's peer"))?));
            }
            Reply::Accepted(Transport::Tcp) if offers.contains(&Transport::Tcp) => {
                return Ok(Box::new(Tcp::new(stream, dial.limit_bytes, dial.config.give_up_after)?));
            }
            Reply::Ucx { address, one_machine } if offers.contains(&Transport::Ucx) => {
                if let Some(made) = ucx_edge::connect(&mut stream, &address, one_machine, dial.limit_bytes)? {
                    return Ok(made);
                }
            }
            Reply::Ucx { .. } => return Err(Error::Protocol("the peer chose UCX, which was not offered".to_owned())),
            Reply::Session if offers.contains(&Transport::Striped) => return Ok(Box::new(Striped::dial(dial)?)),
            Reply::Session => {
                return Err(Error::Protocol("the peer chose a session, which was not offered".to_owned()));
            }
            Reply::Accepted(other) => {
                return Err(Error::Protocol(format!("the peer chose {other}, which was not offered")));
            }
            Reply::Refused(why) => return Err(Error::Aborted(why)),
        }
    }
    Err(Error::Protocol("the peer does not choose a transport".to_owned()))
}

/// Connects and passes the handshake.
fn authenticate(dial: Dial<'_>) -> Result<net::Connection> {
    let unreachable = |cause| Error::Unreachable { host: dial.host.to_owned(), cause };
    let stream = runtime::block_on(async {
        let dialled = tokio::time::timeout(PEER_TIMEOUT, tokio::net::TcpStream::connect(dial.host)).await;
        let stream = dialled.map_err(|_| unreachable(std::io::ErrorKind::TimedOut.into()))?.map_err(unreachable)?;
        net::Connection::open(stream, dial.host, dial.config, dial.protocol).await
    })?;
    set_timeouts(&stream)?;
    Ok(stream)
}
