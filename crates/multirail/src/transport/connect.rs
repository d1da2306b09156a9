//! Making an edge between two processes: the one that sends dials the other's server, proves that it knows the token, says which edge
//! it is for and what it can do; the server chooses.
//!
//! ```text
//! sends                                 receives
//!   handshake with Purpose::Edge  <->
//!   Hello  which edge, offers      ->
//!                                 <-    Reply  the transport; or what to try first; or why not
//!   Answer  how trying went        ->
//! ```
//!
//! With `tcp` the same connection then carries the messages. With `striped` the sender comes again, by a session, whose first request
//! is for the edge.

use super::shm::meet::{Coming, Machine, Meeting, Place};
use super::striped::{EdgeReply, Striped};
use super::tcp::Tcp;
use super::{Bell, Connection, Transport, choice, fabric};
use crate::error::{Error, Result};
use crate::handshake::{self, Purpose};
use crate::session::NewSession;
use crate::{Config, service};
use multirail_proto::wire::packet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How long either side waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// No greeting is longer.
const MAX_PACKET_BYTES: usize = 16 << 10;
/// A server that has not chosen after so many never will.
const MAX_REPLIES: usize = 4;

/// What an edge is made with.
#[derive(Debug, Clone, Copy)]
pub struct Dial<'a> {
    /// The receiver's server, with its port.
    pub host: &'a str,
    /// Token and rails.
    pub config: &'a Config,
    /// Which edge; the receiver's owner understands it.
    pub edge: &'a [u8],
    /// What shall carry it; `None`: the best that both can do.
    pub transport: Option<Transport>,
    /// The caller's.
    pub bell: &'a Arc<Bell>,
    /// No body is longer.
    pub limit_bytes: u64,
}

/// An edge that a peer wants to make.
#[derive(Debug)]
pub struct Arrival {
    edge: Vec<u8>,
    way: Way,
}

/// How it came.
#[derive(Debug)]
enum Way {
    Greeting { stream: TcpStream, tries: Vec<Transport>, machine: Option<Machine> },
    Session(NewSession),
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    edge: Vec<u8>,
    /// Those that it can do, whatever the order.
    offers: Vec<Transport>,
    /// For `shm` and `ucx`.
    machine: Option<Machine>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Accepted(Transport),
    Refused(String),
    /// Bring rings to this place, and answer.
    Meet(Place),
    /// Make a worker of UCX for this address, and answer with its own.
    Ucx {
        address: Vec<u8>,
        one_machine: bool,
    },
    /// Come by a session: this connection is over.
    Session,
}

/// How it went, with what the other side must know; or why it did not go.
#[derive(Debug, Serialize, Deserialize)]
struct Answer(Result<Vec<u8>, String>);

/// Makes an edge. It blocks, for some seconds at most.
pub fn connect(dial: Dial<'_>) -> Result<Box<dyn Connection>> {
    if dial.transport == Some(Transport::Striped) {
        return Ok(Box::new(Striped::dial(dial)?));
    }
    greet(dial, prove(dial)?, choice::offers(dial.transport, has_fabric()))
}

/// Comes to a choice with a server that has let it in.
fn greet(dial: Dial<'_>, mut stream: TcpStream, offers: Vec<Transport>) -> Result<Box<dyn Connection>> {
    let wants_machine = offers.iter().any(|offer| matches!(offer, Transport::Shm | Transport::Ucx));
    let machine = wants_machine.then(Machine::here).flatten();
    send(&mut stream, &Hello { edge: dial.edge.to_vec(), offers: offers.clone(), machine })?;
    let mut coming = None;
    for _ in 0..MAX_REPLIES {
        match receive(&mut stream)? {
            Reply::Meet(place) => {
                let came = Coming::to(&place, dial.bell).map_err(|error| error.to_string());
                let (answer, came) = came.map_or_else(|error| (Err(error), None), |came| (Ok(Vec::new()), Some(came)));
                coming = came;
                send(&mut stream, &Answer(answer))?;
            }
            Reply::Accepted(Transport::Shm) if coming.is_some() => {
                let made = coming.take().expect("it is there").finish(dial.limit_bytes);
                return Ok(Box::new(made.map_err(Error::io("sharing memory with a stream's peer"))?));
            }
            Reply::Accepted(Transport::Tcp) if offers.contains(&Transport::Tcp) => {
                return Ok(Box::new(Tcp::new(stream, dial.limit_bytes)?));
            }
            Reply::Ucx { address, one_machine } if offers.contains(&Transport::Ucx) => {
                if let Some(made) = ucx::connect(&mut stream, &address, one_machine, dial.limit_bytes)? {
                    return Ok(made);
                }
            }
            Reply::Ucx { .. } => return Err(Error::Protocol("it wants UCX, which was not offered".to_owned())),
            Reply::Session if offers.contains(&Transport::Striped) => return Ok(Box::new(Striped::dial(dial)?)),
            Reply::Session => return Err(Error::Protocol("it wants a session, which was not offered".to_owned())),
            Reply::Accepted(other) => return Err(Error::Protocol(format!("it chose {other}, which was not offered"))),
            Reply::Refused(why) => return Err(Error::Aborted(why)),
        }
    }
    Err(Error::Protocol("it does not come to a choice of transport".to_owned()))
}

fn prove(dial: Dial<'_>) -> Result<TcpStream> {
    let unreachable = |source| Error::Unreachable { host: dial.host.to_owned(), source };
    let stream = service::block_on(async {
        let dialled = tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(dial.host)).await;
        let mut stream = dialled.map_err(|_| unreachable(std::io::ErrorKind::TimedOut.into()))?.map_err(unreachable)?;
        handshake::connect(&mut stream, dial.config.token.as_ref(), Purpose::Edge).await?;
        stream.into_std().map_err(Error::io("setting up a stream's connection"))
    })?;
    patient(&stream)?;
    Ok(stream)
}

impl Arrival {
    /// Reads what a proven peer wants. It blocks, for some seconds at most. `None`: it was told to come by a session.
    pub fn read(mut stream: TcpStream) -> Result<Option<Self>> {
        patient(&stream)?;
        let Hello { edge, offers, machine } = receive(&mut stream)?;
        let together = machine.is_some() && machine == Machine::here();
        let tries = choice::tries(&offers, together, has_fabric());
        if tries.first() == Some(&Transport::Striped) {
            send(&mut stream, &Reply::Session)?;
            return Ok(None);
        }
        Ok(Some(Self { edge, way: Way::Greeting { stream, tries, machine } }))
    }

    /// Of a session that asks for an edge. No runtime must drive it.
    pub(crate) fn of_session(session: NewSession, edge: Vec<u8>) -> Self {
        Self { edge, way: Way::Session(session) }
    }

    /// Which edge it is for.
    pub fn edge(&self) -> &[u8] {
        &self.edge
    }

    /// Makes it, for the owner of `bell`.
    pub fn accept(self, bell: &Arc<Bell>, limit_bytes: u64) -> Result<Box<dyn Connection>> {
        let (mut stream, tries, machine) = match self.way {
            Way::Session(session) => return Ok(Box::new(Striped::accept(session, bell, limit_bytes)?)),
            Way::Greeting { stream, tries, machine } => (stream, tries, machine),
        };
        let mut why = "no common transport".to_owned();
        for transport in tries {
            match transport {
                Transport::Shm => match meet(&mut stream, machine.as_ref(), bell, limit_bytes)? {
                    Ok(made) => return Ok(made),
                    Err(failed) => why = format!("no shared memory: {failed}"),
                },
                Transport::Ucx => {
                    let one_machine = machine.is_some() && machine == Machine::here();
                    match ucx::accept(&mut stream, one_machine, limit_bytes)? {
                        Ok(made) => return Ok(made),
                        Err(failed) => why = format!("no UCX: {failed}"),
                    }
                }
                Transport::Tcp => {
                    send(&mut stream, &Reply::Accepted(Transport::Tcp))?;
                    return Ok(Box::new(Tcp::new(stream, limit_bytes)?));
                }
                // The edge is waited for on this connection; a session would be another one. Memory is never offered.
                Transport::Striped | Transport::Memory => continue,
            }
            tracing::debug!(why, "no {transport} with the peer of a stream");
        }
        send(&mut stream, &Reply::Refused(why.clone()))?;
        Err(Error::Protocol(why))
    }

    /// Says why not.
    pub fn refuse(self, why: &str) -> Result<()> {
        match self.way {
            Way::Greeting { mut stream, .. } => send(&mut stream, &Reply::Refused(why.to_owned())),
            Way::Session(session) => service::block_on(async {
                let mut session = session.start_moved().map_err(Error::io("taking over a session"))?;
                service::send(&mut session, &EdgeReply(Err(why.to_owned()))).await?;
                session.close().await
            }),
        }
    }
}

/// Tries to share memory; the inner error says why it did not work, and the peer waits for another choice.
fn meet(
    stream: &mut TcpStream,
    theirs: Option<&Machine>,
    bell: &Arc<Bell>,
    limit_bytes: u64,
) -> Result<Result<Box<dyn Connection>, String>> {
    if theirs.is_none() || theirs != Machine::here().as_ref() {
        return Ok(Err("the two processes are not on one machine and network namespace".to_owned()));
    }
    let meeting = match Meeting::open() {
        Ok(meeting) => meeting,
        Err(error) => return Ok(Err(error.to_string())),
    };
    send(stream, &Reply::Meet(meeting.place().clone()))?;
    if let Answer(Err(why)) = receive(stream)? {
        return Ok(Err(why));
    }
    match meeting.accept(bell, limit_bytes) {
        Ok(made) => {
            send(stream, &Reply::Accepted(Transport::Shm))?;
            Ok(Ok(Box::new(made)))
        }
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Whether UCX may be chosen by itself.
fn has_fabric() -> bool {
    cfg!(feature = "ucx") && fabric::is_here()
}

#[cfg(feature = "ucx")]
mod ucx {
    use super::*;
    use crate::transport::ucx::Opened;

    const FAILED: &str = "making an edge by UCX";

    /// `None`: it does not work, and the peer, who was told, chooses again.
    pub(super) fn connect(
        stream: &mut TcpStream,
        address: &[u8],
        one_machine: bool,
        limit_bytes: u64,
    ) -> Result<Option<Box<dyn Connection>>> {
        let opened = Opened::new();
        let answer = opened.as_ref().map(|o| o.address().to_vec()).map_err(|error| error.to_string());
        send(stream, &Answer(answer))?;
        opened.ok().map(|opened| finish(opened, stream, address, one_machine, limit_bytes)).transpose()
    }

    /// The inner error says why it does not work, and the peer waits for another choice.
    pub(super) fn accept(
        stream: &mut TcpStream,
        one_machine: bool,
        limit_bytes: u64,
    ) -> Result<Result<Box<dyn Connection>, String>> {
        let opened = match Opened::new() {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error.to_string())),
        };
        send(stream, &Reply::Ucx { address: opened.address().to_vec(), one_machine })?;
        match receive(stream)? {
            Answer(Ok(address)) => finish(opened, stream, &address, one_machine, limit_bytes).map(Ok),
            Answer(Err(why)) => Ok(Err(why)),
        }
    }

    fn finish(
        opened: Opened,
        stream: &TcpStream,
        address: &[u8],
        one_machine: bool,
        limit_bytes: u64,
    ) -> Result<Box<dyn Connection>> {
        let life = stream.try_clone().map_err(Error::io(FAILED))?;
        let made = opened.connect(address, one_machine, life, limit_bytes);
        Ok(Box::new(made.map_err(Error::io(FAILED))?))
    }
}

#[cfg(not(feature = "ucx"))]
mod ucx {
    use super::*;

    const MISSING: &str = "this multirail was built without the feature `ucx`";

    pub(super) fn connect(stream: &mut TcpStream, _: &[u8], _: bool, _: u64) -> Result<Option<Box<dyn Connection>>> {
        send(stream, &Answer(Err(MISSING.to_owned())))?;
        Ok(None)
    }

    pub(super) fn accept(_: &mut TcpStream, _: bool, _: u64) -> Result<Result<Box<dyn Connection>, String>> {
        Ok(Err(MISSING.to_owned()))
    }
}

fn patient(stream: &TcpStream) -> Result<()> {
    let set_up = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
    set_up
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .map_err(Error::io("setting up a stream's connection"))
}

fn send<T: Serialize>(stream: &mut TcpStream, body: &T) -> Result<()> {
    let mut bytes = Vec::new();
    packet::encode(body, &mut bytes);
    stream.write_all(&bytes).map_err(Error::io("greeting the peer of a stream"))
}

fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> Result<T> {
    let mut prefix = [0; packet::PREFIX_BYTES];
    stream.read_exact(&mut prefix).map_err(Error::io("waiting for the greeting of a stream's peer"))?;
    let mut body = vec![0; packet::body_bytes(prefix, MAX_PACKET_BYTES)?];
    stream.read_exact(&mut body).map_err(Error::io("waiting for the greeting of a stream's peer"))?;
    Ok(packet::decode_body(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Between two ends of which the one that serves tries `tries`.
    fn made(tries: &[Transport]) -> (Result<Transport>, Result<Transport>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut served = listener.accept().unwrap().0;
        let (offers, tries) = (tries.to_vec(), tries.to_vec());
        let dialler = std::thread::spawn(move || {
            let (config, bell) = (Config::default(), Bell::new().unwrap());
            let dial =
                Dial { host: "", config: &config, edge: b"e", transport: None, bell: &bell, limit_bytes: 1 << 20 };
            greet(dial, stream, offers).map(|made| made.transport())
        });
        let Hello { edge, .. } = receive(&mut served).unwrap();
        let way = Way::Greeting { stream: served, tries, machine: None };
        let accepted = Arrival { edge, way }.accept(&Bell::new().unwrap(), 1 << 20).map(|made| made.transport());
        (dialler.join().unwrap(), accepted)
    }

    #[test]
    fn where_the_best_does_not_work_the_next_is_taken() {
        let (dialled, accepted) = made(&[Transport::Shm, Transport::Tcp]);
        assert_eq!((dialled.unwrap(), accepted.unwrap()), (Transport::Tcp, Transport::Tcp));
        let ucx = if cfg!(feature = "ucx") { Transport::Ucx } else { Transport::Tcp };
        let (dialled, accepted) = made(&[Transport::Ucx, Transport::Tcp]);
        assert_eq!((dialled.unwrap(), accepted.unwrap()), (ucx, ucx));
    }

    #[test]
    fn both_ends_are_told_why_nothing_works() {
        let (dialled, accepted) = made(&[Transport::Shm]);
        for told in [dialled.unwrap_err().to_string(), accepted.unwrap_err().to_string()] {
            assert!(told.contains("not on one machine"), "{told}");
        }
    }
}
