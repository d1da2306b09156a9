//! Plain TCP connections to a server, for measuring a path: messages go back and forth without
//! another protocol around them. The handshake authenticates both sides. What follows is not encrypted,
//! since it is plain TCP that is measured; the messages are the benchmark's own.

use crate::budget::MemoryBudget;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::protocol::ProtocolName;
use crate::request::Request;
use crate::router::{Answering, ProtocolHandler};
use crate::socket;
use crate::tcp_info::tcp_info;
use crate::{Config, Session};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

pub use crate::socket::LocalEnd;

/// The protocol's name.
pub const PROBE: ProtocolName = ProtocolName::new("probe");
/// The longest message; both sides hold one in memory.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 30;
/// A flag in the number of rounds: the server receives all messages and replies with one byte at
/// the end.
pub const TAKE: u64 = 1 << 63;
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a plain connection from `local` to the server at `remote`.
///
/// The client then sends the length of a message and the number of messages, each as a
/// little-endian `u64`, and then the messages. The server returns each message; with [`TAKE`] it
/// sends only one byte at the end.
///
/// # Errors
///
/// [`Error::Unreachable`] after 5 s, or those of the handshake.
///
/// # Cancel safety
///
/// Cancel-safe: dropping the future closes the connection.
pub async fn connect(local: Option<&LocalEnd>, remote: SocketAddr, config: &Config) -> Result<TcpStream> {
    let host = remote.to_string();
    let unreachable = |cause| Error::Unreachable { host: host.clone(), cause };
    let stream = socket::dial(local, remote, CONNECT_TIMEOUT).await.map_err(unreachable)?;
    Ok(Connection::open(stream, &host, config, PROBE).await?.into_unprotected())
}

/// The shortest round trip that the kernel has seen on a connection. Unlike a round trip that a program
/// measures, it does not include the time until a busy program runs.
pub fn min_round_trip(stream: &impl AsRawFd) -> Option<Duration> {
    let info = tcp_info(stream).filter(|info| (1..u32::MAX).contains(&info.tcpi_min_rtt))?;
    Some(Duration::from_micros(info.tcpi_min_rtt.into()))
}

/// Measures the round trip to `remote` by the first packets of a connection, which it closes at once. The
/// kernels of both hosts make this round trip, so the program that listens there adds no time to it.
///
/// # Errors
///
/// [`Error::Unreachable`] after 5 s, or if packets were lost, since the kernel then has no round trip.
///
/// # Cancel safety
///
/// Cancel-safe: dropping the future closes the connection.
pub async fn round_trip(remote: SocketAddr) -> Result<Duration> {
    let unreachable = |cause| Error::Unreachable { host: remote.to_string(), cause };
    let stream = socket::dial(None, remote, CONNECT_TIMEOUT).await.map_err(unreachable)?;
    min_round_trip(&stream).ok_or_else(|| unreachable(std::io::ErrorKind::TimedOut.into()))
}

/// The default of [`ProbeHandler::max_idle`].
const MAX_IDLE: Duration = Duration::from_secs(60);

/// Serves [`PROBE`].
#[derive(Debug, Clone)]
pub struct ProbeHandler {
    budget: MemoryBudget,
    max_idle: Duration,
}

impl Default for ProbeHandler {
    fn default() -> Self {
        Self::new(MemoryBudget::default())
    }
}

impl ProbeHandler {
    /// A handler whose messages use this budget.
    pub fn new(budget: MemoryBudget) -> Self {
        Self { budget, max_idle: MAX_IDLE }
    }

    /// Sets how long a client may send and take nothing before its connection is closed; default
    /// 60 s.
    #[must_use]
    pub fn max_idle(mut self, limit: Duration) -> Self {
        self.max_idle = limit;
        self
    }
}

impl ProtocolHandler for ProbeHandler {
    fn answer<'a>(&'a self, _: Session, _: SocketAddr, _: Request) -> Answering<'a> {
        Box::pin(async { Err(Error::Protocol("a request for a probe within a session".to_owned())) })
    }

    fn idle_limit(&self) -> Option<Duration> {
        Some(self.max_idle)
    }

    fn serve_connection(&self, connection: Connection) -> Result<()> {
        // A client ends a probe by closing the connection.
        let _ = serve(connection.into_unprotected(), &self.budget);
        Ok(())
    }
}

fn serve(mut stream: TcpStream, budget: &MemoryBudget) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    loop {
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        let rounds = &mut [0; 8];
        stream.read_exact(rounds)?;
        let (length, rounds) = (u64::from_le_bytes(length), u64::from_le_bytes(*rounds));
        let (take, rounds) = (rounds & TAKE != 0, rounds & !TAKE);
        if length > MAX_MESSAGE_BYTES {
            return Err(std::io::Error::other("a message longer than the benchmark allows"));
        }
        let _claim = budget.claim(length).map_err(std::io::Error::other)?;
        let mut buffer = vec![0; length as usize];
        for _ in 0..rounds {
            stream.read_exact(&mut buffer)?;
            if !take {
                stream.write_all(&buffer)?;
            }
        }
        if take {
            stream.write_all(&[0])?;
        }
    }
}
