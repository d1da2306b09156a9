//! The listening side: admits peers that prove that they know the token, and passes their
//! connections to their sessions.

use super::accept::Acceptor;
use super::accepted::Accepted;
use super::admission::Admission;
use super::config::Config;
use super::occupancy::Occupancy;
use crate::error::{Error, Result};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Limit of sessions that were admitted and not yet accepted.
const ACCEPT_QUEUE: usize = 64;
/// Limit of connections that the kernel has accepted and this process has not.
const BACKLOG: i32 = 4096;

/// How to listen.
///
/// ```
/// use multirail_net::Config;
/// use multirail_net::session::ListenConfig;
///
/// let listen = ListenConfig::new(([127, 0, 0, 1], 0), Config::new());
/// assert!(listen.address.ip().is_loopback());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListenConfig {
    /// The address to listen on; port 0 takes any free port.
    pub address: SocketAddr,
    /// The configuration of the sessions, with the token.
    pub session: Config,
    /// The socket to listen on instead of [`address`](Self::address), for example of a service manager.
    pub socket: Option<Arc<std::net::TcpListener>>,
}

impl ListenConfig {
    /// Listens on `address`, with sessions configured by `session`. Port 0 takes any free port.
    #[must_use]
    pub fn new(address: impl Into<SocketAddr>, session: Config) -> Self {
        Self { address: address.into(), session, socket: None }
    }

    /// Listens on a socket that listens already, instead of on the address.
    #[must_use]
    pub fn on_socket(mut self, socket: std::net::TcpListener) -> Self {
        self.socket = Some(Arc::new(socket));
        self
    }
}

/// Accepts sessions.
///
/// A peer is admitted after it has proven who it is. Dropping the listener refuses
/// further connections, also further channels of its sessions.
///
/// # Examples
///
/// ```
/// use multirail_net::session::{Accepted, ListenConfig, Listener};
/// use multirail_net::{Config, Result, Session, Token};
///
/// async fn echo(listener: &mut Listener) -> Result<()> {
///     let Accepted::Session(new) = listener.accept().await? else { return Ok(()) };
///     let mut session = new.start();
///     let mut buffer = vec![0; 64 << 10];
///     let length = session.recv(&mut buffer).await?;
///     session.send(&buffer[..length]).await?;
///     session.close().await
/// }
///
/// # multirail_net::runtime::block_on(async {
/// let config = Config::new().token(Token::new(b"a secret of both sides"));
/// let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), config.clone())).await?;
/// let address = listener.address().to_string();
/// # let client = async {
/// #     let mut session = Session::connect(&address, config).await?;
/// #     session.send(b"hello").await?;
/// #     let mut answer = [0; 5];
/// #     assert_eq!(session.recv(&mut answer).await?, 5);
/// #     assert_eq!(&answer, b"hello");
/// #     session.close().await
/// # };
/// # tokio::try_join!(
/// echo(&mut listener)
/// # , client)?;
/// # Ok(())
/// # })?;
/// # Ok::<(), multirail_net::Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    accepted: mpsc::Receiver<Accepted>,
    occupancy: Arc<Occupancy>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Listens. It admits peers that know the token, or whose keys the configuration accepts.
    ///
    /// The task that admits peers runs in the runtime that calls.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the address cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it never waits.
    pub async fn bind(config: ListenConfig) -> Result<Listener> {
        let passed = config.socket.as_ref().map(|socket| socket.try_clone()).transpose();
        let passed = passed.map_err(Error::io("listening"))?;
        let address = match &passed {
            Some(socket) => socket.local_addr().map_err(Error::io("listening"))?,
            None => config.address,
        };
        let socket = match passed {
            Some(socket) => socket.set_nonblocking(true).map(|()| socket),
            None => listening_socket(address),
        };
        let socket = socket.map_err(Error::io("listening"))?;
        let address = socket.local_addr().map_err(Error::io("listening"))?;
        let (sender, accepted) = mpsc::channel(ACCEPT_QUEUE);
        let occupancy = Occupancy::new();
        let admission = Arc::new(Admission::new(config.session, address, occupancy.clone(), sender));
        let acceptor = Acceptor::new(socket, admission.gate().clone()).map_err(Error::io("listening"))?;
        let task = tokio::spawn(acceptor.run(move |stream, peer| admission.start(stream, peer)));
        Ok(Listener { address, accepted, occupancy, task })
    }

    /// Limits the sessions and connections that exist at the same time, from now on. Each that is
    /// accepted holds its place until [`Place`](super::Place) is dropped.
    pub(crate) fn limit_places(&self, limit: usize) {
        self.occupancy.set_limit(limit);
    }

    /// Admits no further peer. Channels of sessions that exist still join them.
    pub(crate) fn close_places(&self) {
        self.occupancy.close();
    }

    /// The address on which it listens, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next admitted peer.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the task that admits peers has ended, because its runtime has.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a peer that was admitted stays in the queue for the next call.
    pub async fn accept(&mut self) -> Result<Accepted> {
        self.accepted.recv().await.ok_or(Error::Closed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn listening_socket(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    if address.is_ipv6() {
        // One socket for both families.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
