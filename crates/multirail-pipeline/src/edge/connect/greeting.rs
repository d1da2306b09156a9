//! The messages with which two hosts agree on a transport.

use super::dial::PEER_TIMEOUT;
use crate::edge::shm::{MachineId, MeetingPoint};
use multirail_net::Connection;
use multirail_net::error::{Error, Result};
use multirail_proto::pipeline::Transport;
use multirail_proto::wire::packet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};

/// Largest message of the greeting.
const MAX_PACKET_BYTES: usize = 16 << 10;

/// The first message of the dialling host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub edge: Vec<u8>,
    /// The transports that the host can do, in any order.
    pub offers: Vec<Transport>,
    /// For `shm` and `ucx`.
    pub machine: Option<MachineId>,
}

/// The accepting host's reply.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// This transport carries the edge.
    Accepted(Transport),
    /// No transport does, for this reason.
    Refused(String),
    /// Bring rings to this meeting point, and answer.
    Meet(MeetingPoint),
    /// Connect a UCX worker to this address, and answer with the worker's own address.
    Ucx { address: Vec<u8>, one_machine: bool },
    /// Make the edge over a session. This connection ends.
    Session,
}

/// The dialling host's answer: what the other side must know, or why it failed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer(pub Result<Vec<u8>, String>);

/// Makes the greeting's connection blocking, with time-outs.
pub(super) fn set_timeouts(stream: &Connection) -> Result<()> {
    let socket = stream.socket();
    let set_up = socket.set_nonblocking(false).and_then(|()| socket.set_read_timeout(Some(PEER_TIMEOUT)));
    set_up
        .and_then(|()| socket.set_write_timeout(Some(PEER_TIMEOUT)))
        .map_err(Error::io("setting up a stream's connection"))
}

/// Sends one message of the greeting.
pub(super) fn send<T: Serialize>(stream: &mut Connection, body: &T) -> Result<()> {
    let mut bytes = Vec::new();
    packet::encode(body, &mut bytes);
    stream.write_all(&bytes).map_err(Error::io("greeting the peer of a stream"))
}

/// Receives one message of the greeting.
pub(super) fn receive<T: DeserializeOwned>(stream: &mut Connection) -> Result<T> {
    let mut prefix = [0; packet::PREFIX_BYTES];
    stream.read_exact(&mut prefix).map_err(Error::io("waiting for the greeting of a stream's peer"))?;
    let mut body = vec![0; packet::body_bytes(prefix, MAX_PACKET_BYTES)?];
    stream.read_exact(&mut body).map_err(Error::io("waiting for the greeting of a stream's peer"))?;
    Ok(packet::decode_body(&body)?)
}
