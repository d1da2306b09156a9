//! Making an edge between two processes: the one that sends dials the other's server, proves that it knows the token, says which edge
//! it is for and what it can do; the server chooses.
//!
//! ```text
//! sends                                 receives
//!   handshake with Purpose::Edge  <->
//!   Hello  which edge, offers      ->
//!                                 <-    Reply  the transport, or why not
//! ```
//!
//! With `tcp` the same connection then carries the messages.

use super::tcp::Tcp;
use super::{Bell, Connection, Transport};
use crate::error::{Error, Result};
use crate::handshake::{self, Purpose};
use crate::{Config, service};
use multirail_proto::wire::packet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// No greeting is longer.
const MAX_PACKET_BYTES: usize = 16 << 10;

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
    stream: TcpStream,
    hello: Hello,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    edge: Vec<u8>,
    offers: Vec<Transport>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Accepted(Transport),
    Refused(String),
}

/// Makes an edge. It blocks, for some seconds at most.
pub fn connect(dial: Dial<'_>) -> Result<Box<dyn Connection>> {
    let mut stream = prove(dial)?;
    let offers = dial.transport.map_or(vec![Transport::Tcp], |only| vec![only]);
    send(&mut stream, &Hello { edge: dial.edge.to_vec(), offers })?;
    match receive(&mut stream)? {
        Reply::Accepted(Transport::Tcp) => Ok(Box::new(Tcp::new(stream, dial.limit_bytes)?)),
        Reply::Accepted(other) => Err(Error::Protocol(format!("it chose {other}, which was not offered"))),
        Reply::Refused(why) => Err(Error::Aborted(why)),
    }
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
    /// Reads what a proven peer wants. It blocks, for some seconds at most.
    pub fn read(mut stream: TcpStream) -> Result<Self> {
        patient(&stream)?;
        let hello = receive(&mut stream)?;
        Ok(Self { stream, hello })
    }

    /// Which edge it is for.
    pub fn edge(&self) -> &[u8] {
        &self.hello.edge
    }

    /// Makes it, for the owner of `bell`.
    pub fn accept(mut self, _bell: &Arc<Bell>, limit_bytes: u64) -> Result<Box<dyn Connection>> {
        if !self.hello.offers.contains(&Transport::Tcp) {
            let why = format!("no common transport among {:?}", self.hello.offers);
            send(&mut self.stream, &Reply::Refused(why.clone()))?;
            return Err(Error::Protocol(why));
        }
        send(&mut self.stream, &Reply::Accepted(Transport::Tcp))?;
        Ok(Box::new(Tcp::new(self.stream, limit_bytes)?))
    }

    /// Says why not.
    pub fn refuse(mut self, why: &str) -> Result<()> {
        send(&mut self.stream, &Reply::Refused(why.to_owned()))
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
