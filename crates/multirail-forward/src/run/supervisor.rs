//! Answers the kernel's questions about a program's connections.

use super::filter::{CONNECT, GETPEERNAME, Installed};
use super::notification::{Answer, Notification, NotificationListener};
use super::peers::{Found, Peers};
use super::process::{read_memory, shares_network, socket_of, write_memory};
use super::sockaddr;
use crate::allow::is_own;
use crate::client::ForwardError;
use crate::relay::relay;
use multirail_net::streams::SessionStream;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;

/// Connections of programs that have reached the relay and were not accepted yet.
const BACKLOG: i32 = 4096;

/// What became of a connection, for the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It goes through a session.
    Forwarded {
        /// Where the program connects to.
        target: SocketAddr,
    },
    /// It should go through a session, and goes out plainly, or fails if that is required.
    Plain {
        /// Where the program connects to.
        target: SocketAddr,
        /// The server that should have forwarded it.
        host: &'a str,
        /// Why it did not.
        error: &'a ForwardError,
    },
}

type Tell = dyn Fn(Outcome<'_>) + Send + Sync;

/// Supervises a program and its children.
pub struct Supervisor {
    listener: NotificationListener,
    peers: Peers,
    /// Where programs' sockets are connected to, for each family.
    relays: [TcpListener; 2],
    requires: bool,
    tell: Box<Tell>,
    /// Streams whose connections have not reached the relay, by the address of the program's socket.
    waiting: Mutex<HashMap<SocketAddr, Waiting>>,
    /// The targets of connections, by the address of the program's socket.
    targets: Mutex<HashMap<SocketAddr, SocketAddr>>,
}

struct Waiting {
    stream: SessionStream,
    target: SocketAddr,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Supervises the program that was spawned after [`install`](super::install).
    ///
    /// With `requires`, a connection to a server's host fails if it cannot be forwarded. `tell` is
    /// called for each connection to such a host.
    ///
    /// # Errors
    ///
    /// If the listener does not arrive, or this host has no loopback.
    pub fn new(
        installed: Installed,
        peers: Peers,
        requires: bool,
        tell: impl Fn(Outcome<'_>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: NotificationListener::new(installed.receive()?)?,
            peers,
            relays: [
                listen(Ipv4Addr::LOCALHOST.into())?,
                listen(Ipv6Addr::LOCALHOST.into()).or_else(|_| listen(Ipv4Addr::LOCALHOST.into()))?,
            ],
            requires,
            tell: Box::new(tell),
            waiting: Mutex::default(),
            targets: Mutex::default(),
        })
    }

    /// Answers until no supervised process is left. It must run in the runtime in which the supervisor
    /// was made.
    ///
    /// # Errors
    ///
    /// If the kernel's questions cannot be read. The program's further calls of `connect` fail then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves questions without an answer.
    pub async fn run(self) -> io::Result<()> {
        let this = Arc::new(self);
        let accepting = (0..this.relays.len()).map(|index| tokio::spawn(this.clone().accept(index)));
        let accepting: Vec<_> = accepting.collect();
        while let Some(notification) = this.listener.next().await? {
            match notification.call {
                CONNECT => {
                    let this = this.clone();
                    // Each in a task of its own: a slow target holds up one connection only.
                    tokio::spawn(async move {
                        let answer = this.connect(&notification).await;
                        this.listener.answer(&notification, answer);
                    });
                }
                GETPEERNAME => this.listener.answer(&notification, this.name_peer(&notification)),
                _ => this.listener.answer(&notification, Answer::Unchanged),
            }
        }
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        this.peers.close().await;
        Ok(())
    }

    async fn connect(&self, notification: &Notification) -> Answer {
        let [descriptor, address, length, ..] = notification.arguments;
        // The kernel names mistakes of the caller itself, such as a bad pointer.
        let Some(named) = read_address(notification, address, length) else { return Answer::Unchanged };
        let target = SocketAddr::new(named.ip().to_canonical(), named.port());
        if is_own(target.ip()) || !shares_network(notification.thread) {
            return Answer::Unchanged;
        }
        let Ok(socket) = socket_of(notification.thread, descriptor as i32) else { return Answer::Unchanged };
        if !is_unconnected_tcp(&socket) || !self.listener.is_valid(notification) {
            return Answer::Unchanged;
        }
        let (host, error) = match self.peers.find(target.ip()).await {
            Found::None => return Answer::Unchanged,
            Found::Failed { host, error } => (host, error),
            Found::Server(forwarder) => match forwarder.open(target).await {
                Ok(stream) => return self.take_over(&socket, named, target, stream),
                Err(ForwardError::Target { cause, .. }) => {
                    return Answer::Error(cause.raw_os_error().unwrap_or(libc::EIO));
                }
                Err(error) => (target.ip().to_string(), error),
            },
        };
        (self.tell)(Outcome::Plain { target, host: &host, error: &error });
        if self.requires { Answer::Error(libc::ENETUNREACH) } else { Answer::Unchanged }
    }

    /// Connects the program's socket to the relay.
    fn take_over(&self, socket: &Socket, named: SocketAddr, target: SocketAddr, stream: SessionStream) -> Answer {
        let connected = self.relay_for(socket, named).and_then(|relay| {
            match socket.connect(&relay.into()) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
                _ => {}
            }
            socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("a socket without an address"))
        });
        // A socket that is bound to a port cannot reach loopback. The call goes on as it was.
        let Ok(own) = connected else { return Answer::Unchanged };
        let own = SocketAddr::new(own.ip().to_canonical(), own.port());
        lock(&self.waiting).insert(own, Waiting { stream, target });
        lock(&self.targets).insert(own, named);
        Answer::Success
    }

    /// The address of the relay, in the family of a socket.
    fn relay_for(&self, socket: &Socket, named: SocketAddr) -> io::Result<SocketAddr> {
        let is_v4 = named.ip().to_canonical().is_ipv4();
        let relay = self.relays[usize::from(!is_v4)].local_addr()?;
        Ok(match (socket.domain()?, relay.ip()) {
            (Domain::IPV6, IpAddr::V4(v4)) => SocketAddr::new(v4.to_ipv6_mapped().into(), relay.port()),
            _ => relay,
        })
    }

    async fn accept(self: Arc<Self>, index: usize) {
        loop {
            let (connection, own) = match self.relays[index].accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a program's connection");
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                    continue;
                }
            };
            // Other programs of this host may connect as well; nothing waits for them.
            let Some(Waiting { stream, target }) = lock(&self.waiting).remove(&own) else { continue };
            (self.tell)(Outcome::Forwarded { target });
            let this = self.clone();
            tokio::spawn(async move {
                let _ = connection.set_nodelay(true);
                if let Err(error) = relay(connection, stream).await {
                    tracing::debug!(%target, %error, "a forwarded connection");
                }
                lock(&this.targets).remove(&own);
            });
        }
    }

    /// Answers `getpeername` of a forwarded connection.
    fn name_peer(&self, notification: &Notification) -> Answer {
        let [descriptor, address, length_at, ..] = notification.arguments;
        let own = socket_of(notification.thread, descriptor as i32).and_then(|socket| socket.local_addr());
        let own = own.ok().and_then(|own| own.as_socket());
        let own = own.map(|own| SocketAddr::new(own.ip().to_canonical(), own.port()));
        let Some(target) = own.and_then(|own| lock(&self.targets).get(&own).copied()) else { return Answer::Unchanged };
        let bytes = sockaddr::encode(target);
        let mut room = [0; 4];
        let written = read_memory(notification.thread, length_at, &mut room).and_then(|()| {
            let room = usize::try_from(i32::from_ne_bytes(room));
            let room = room.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
            if !self.listener.is_valid(notification) {
                return Ok(());
            }
            write_memory(notification.thread, address, &bytes[..bytes.len().min(room)])?;
            write_memory(notification.thread, length_at, &(bytes.len() as u32).to_ne_bytes())
        });
        match written {
            Ok(()) => Answer::Success,
            Err(error) => Answer::Error(error.raw_os_error().unwrap_or(libc::EFAULT)),
        }
    }
}

/// The address that a call has, copied once.
fn read_address(notification: &Notification, address: u64, length: u64) -> Option<SocketAddr> {
    let length = usize::try_from(length).ok().filter(|length| *length <= sockaddr::MAX_BYTES)?;
    let mut bytes = [0; sockaddr::MAX_BYTES];
    read_memory(notification.thread, address, &mut bytes[..length]).ok()?;
    sockaddr::parse(&bytes[..length])
}

fn is_unconnected_tcp(socket: &Socket) -> bool {
    matches!(socket.r#type(), Ok(Type::STREAM))
        && matches!(socket.protocol(), Ok(Some(Protocol::TCP | Protocol::MPTCP)))
        && socket.peer_addr().is_err()
}

fn listen(address: IpAddr) -> io::Result<TcpListener> {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
