//! The list of streams: sockets for which the program keeps state.

use super::layout::{self, StreamState};
use crate::kernel::sock_diag::{self, StoredSocket};
use crate::{Error, Result};
use multirail_proto::placement::MAX_PORTS;
use serde::Serialize;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Limit of the streams in a status, which is kept in memory.
pub(crate) const MAX_STREAMS: usize = 100_000;

/// A stream of a program on this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamStatus {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The address and port of this host.
    pub local: SocketAddr,
    /// The address and port of the other end.
    pub remote: SocketAddr,
    /// The port to which its last packet was given.
    pub port: u32,
    /// Whether it stays at that port.
    pub pinned: bool,
    /// Why its last packet was given to that port: `first-port`, `hash`, `round-robin`, `pinned`,
    /// `spread` or `earliest`.
    pub reason: &'static str,
    /// The ports that it may use, if the policy limits them.
    pub allowed_ports: Vec<u32>,
    /// Packets given to ports.
    pub packets: u64,
    /// Bytes given to ports.
    pub bytes: u64,
    /// Bytes that the program wrote and the other end has not acknowledged; 0 unless it is TCP.
    pub backlog_bytes: u32,
    /// How often a packet left by another port than the one before.
    pub port_changes: u64,
}

/// Lists the streams in `map`, at most [`MAX_STREAMS`].
pub(crate) async fn list(map: BorrowedFd<'_>) -> Result<Vec<StreamStatus>> {
    let sockets = sock_diag::sockets_with_values(map, MAX_STREAMS).await.map_err(Error::io("listing streams"))?;
    Ok(sockets.iter().filter_map(status_of).collect())
}

fn status_of(socket: &StoredSocket) -> Option<StreamStatus> {
    let value = socket.value.get(..size_of::<StreamState>())?;
    // SAFETY: the bytes are as many as the struct has, and its integers may have any value.
    let state = unsafe { value.as_ptr().cast::<StreamState>().read_unaligned() };
    let is_tcp = socket.protocol == libc::IPPROTO_TCP;
    Some(StreamStatus {
        protocol: if is_tcp { "tcp" } else { "udp" },
        local: socket.local,
        remote: socket.remote,
        port: state.port,
        pinned: state.pinned != 0,
        reason: reason_name(state.reason),
        allowed_ports: (0..MAX_PORTS as u32).filter(|port| state.allowed_ports >> port & 1 == 1).collect(),
        packets: state.packets,
        bytes: state.bytes,
        backlog_bytes: if is_tcp { socket.send_queue_bytes } else { 0 },
        port_changes: state.port_changes,
    })
}

/// The name of a reason of the program.
fn reason_name(reason: u64) -> &'static str {
    match u32::try_from(reason) {
        Ok(layout::REASON_FIRST_PORT) => "first-port",
        Ok(layout::REASON_HASH) => "hash",
        Ok(layout::REASON_ROUND_ROBIN) => "round-robin",
        Ok(layout::REASON_PINNED) => "pinned",
        Ok(layout::REASON_SPREAD) => "spread",
        Ok(layout::REASON_EARLIEST) => "earliest",
        _ => "unknown",
    }
}
