//! Answers the kernel's questions about a program's connections.

use super::filter::{CONNECT, GETPEERNAME, Installed};
use super::listener::NotificationListener;
use super::notification::{Answer, Notification};
use super::parked::{Ends, Parked, in_family, no_address};
use super::process::{TCP_CLOSE, read_memory, shares_network, socket_of, tcp_state, write_memory};
use super::sockaddr;
use crate::allow::is_own;
use crate::client::{ForwardError, Forwarder};
use crate::loopback::{self, canonical};
use crate::peers::{Found, Peers};
use crate::relay::{relay, relay_plainly};
use multirail_net::streams::SessionStream;
use socket2::{Protocol, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long a non-blocking `connect` may take for the target's answer. Then it returns `EINPROGRESS`.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long a connection waits that the target has neither accepted nor refused: longer than the
/// program's own attempt takes by default.
const UNANSWERED: Duration = Duration::from_secs(150);

/// What became of a connection, for the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It goes through a session.
    Forwarded {
        /// Where the program connects to.
        target: SocketAddr,
    },
    /// It goes out plainly, because it cannot gain by the session: [`Forwarder::is_of_use`].
    OnePath {
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
    /// The targets of connections, by the ends of the program's socket.
    targets: Mutex<HashMap<Ends, SocketAddr>>,
}

struct Waiting {
    stream: SessionStream,
    target: SocketAddr,
}

/// How a target was reached whose connection is parked.
enum Reached {
    Stream(SessionStream),
    /// Without the session, which does not forward there.
    Plainly(TcpStream),
}

/// A call that a server's session takes over.
struct Connecting {
    socket: Socket,
    /// The address as the program has it, and without the form that IPv6 has for IPv4.
    named: SocketAddr,
    target: SocketAddr,
    forwarder: Arc<Forwarder>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Supervises the program that was spawned after [`install`](super::install).
    ///
    /// With `requires`, every connection to a server's host is forwarded, also if it cannot
    /// gain by that ([`Forwarder::is_of_use`]), and fails if it cannot be forwarded. `tell` is called for
    /// each connection to such a host.
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
            relays: loopback::listeners()?,
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
                // Each in a task of its own: a slow target holds up one connection only.
                CONNECT => drop(tokio::spawn(this.clone().connect(notification))),
                GETPEERNAME => this.listener.answer(&notification, this.name_peer(&notification)),
                _ => this.listener.answer(&notification, Answer::Unchanged),
            }
        }
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        this.peers.close().await;
        Ok(())
    }

    async fn connect(self: Arc<Self>, notification: Notification) {
        match self.target(&notification).await {
            Ok(connecting) => self.forward(&notification, connecting).await,
            Err(answer) => self.listener.answer(&notification, answer),
        }
    }

    /// Where the call connects to, if a server forwards that; otherwise the answer.
    async fn target(&self, notification: &Notification) -> Result<Connecting, Answer> {
        let [descriptor, address, length, ..] = notification.arguments;
        // The kernel names mistakes of the caller itself, such as a bad pointer.
        let named = read_address(notification, address, length).ok_or(Answer::Unchanged)?;
        let target = canonical(named);
        if is_own(target.ip()) || !shares_network(notification.thread) {
            return Err(Answer::Unchanged);
        }
        let socket = match socket_of(notification.thread, descriptor as i32) {
            Ok(socket) => socket,
            // The descriptor is none: the kernel says so.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Err(Answer::Unchanged),
            Err(error) if self.peers.has_server(target.ip()).await => return Err(self.local_failure(target, error)),
            Err(_) => return Err(Answer::Unchanged),
        };
        if !is_unconnected_tcp(&socket) || !self.listener.is_valid(notification) {
            return Err(Answer::Unchanged);
        }
        match self.peers.find(target.ip()).await {
            Found::None => Err(Answer::Unchanged),
            Found::Failed { host, error } => Err(self.plain(target, &host, &error)),
            Found::Server(forwarder) if !self.requires && !forwarder.is_of_use(target.ip()) => {
                (self.tell)(Outcome::OnePath { target });
                Err(Answer::Unchanged)
            }
            Found::Server(forwarder) => Ok(Connecting { socket, named, target, forwarder }),
        }
    }

    /// The answer for a connection that cannot be forwarded because of this host.
    fn local_failure(&self, target: SocketAddr, error: io::Error) -> Answer {
        self.plain(target, &target.ip().to_string(), &ForwardError::Session(multirail_net::Error::Local(error)))
    }

    /// The answer for a connection that should be forwarded and cannot be.
    fn plain(&self, target: SocketAddr, host: &str, error: &ForwardError) -> Answer {
        (self.tell)(Outcome::Plain { target, host, error });
        if self.requires { Answer::Error(libc::ENETUNREACH) } else { Answer::Unchanged }
    }

    async fn forward(self: &Arc<Self>, notification: &Notification, connecting: Connecting) {
        let Connecting { socket, named, target, forwarder } = connecting;
        if !matches!(socket.device(), Ok(None)) {
            let bound = io::Error::other("the socket is bound to a network interface");
            return self.listener.answer(notification, self.local_failure(target, bound));
        }
        // A connection that stands does not hold the session: its end waits for streams alone.
        let mut opening = Box::pin(async move { forwarder.open(target).await });
        let is_blocking = !matches!(socket.nonblocking(), Ok(true));
        let patience = if is_blocking { socket.write_timeout().ok().flatten() } else { Some(PATIENCE) };
        let opened = match patience {
            Some(patience) => tokio::time::timeout(patience, &mut opening).await,
            None => Ok((&mut opening).await),
        };
        // A signal has interrupted the call. It is made again, or the program gets EINTR.
        if !self.listener.is_valid(notification) {
            return self.listener.answer(notification, Answer::Unchanged);
        }
        let opened = match opened {
            Ok(opened) => opened,
            // As the kernel does at the end of SO_SNDTIMEO.
            Err(_) if is_blocking => return self.listener.answer(notification, Answer::Error(libc::EINPROGRESS)),
            Err(_) => match Parked::new(&socket, target.is_ipv4()) {
                Ok(parked) => {
                    drop(socket);
                    self.listener.answer(notification, Answer::Error(libc::EINPROGRESS));
                    return self.complete(parked, named, target, opening.await).await;
                }
                Err(error) => return self.listener.answer(notification, self.local_failure(target, error)),
            },
        };
        let answer = match opened {
            Ok(stream) => self.take_over(&socket, named, target, stream),
            Err(ForwardError::Target { cause, .. }) => Answer::Error(cause.raw_os_error().unwrap_or(libc::EIO)),
            Err(error) => self.plain(target, &target.ip().to_string(), &error),
        };
        self.listener.answer(notification, answer);
    }

    /// Connects a socket whose call has returned, or lets it be refused.
    async fn complete(
        self: &Arc<Self>,
        parked: Parked,
        named: SocketAddr,
        target: SocketAddr,
        opened: Result<SessionStream, ForwardError>,
    ) {
        let ends = parked.ends();
        let reached = match opened {
            Ok(stream) => Reached::Stream(stream),
            Err(ForwardError::Target { cause, .. }) if cause.raw_os_error() == Some(libc::ETIMEDOUT) => {
                tokio::time::sleep(UNANSWERED).await;
                return drop(parked);
            }
            Err(ForwardError::Target { .. }) => return drop(parked),
            Err(error) => {
                self.plain(target, &target.ip().to_string(), &error);
                match TcpStream::connect(target).await {
                    Ok(plain) if !self.requires => Reached::Plainly(plain),
                    _ => return drop(parked),
                }
            }
        };
        lock(&self.targets).insert(ends, named);
        // If this fails, the program has closed its socket meanwhile.
        if let Ok(connection) = parked.complete().await {
            match reached {
                Reached::Stream(stream) => return self.relay(connection, Waiting { stream, target }, ends).await,
                Reached::Plainly(plain) => relay_plainly(connection, plain).await,
            }
        }
        lock(&self.targets).remove(&ends);
    }

    /// Connects the program's socket to the relay.
    fn take_over(&self, socket: &Socket, named: SocketAddr, target: SocketAddr, stream: SessionStream) -> Answer {
        let connected = self.relay_for(socket, named).and_then(|relay| {
            match socket.connect(&relay.into()) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
                _ => {}
            }
            let own = socket.local_addr()?.as_socket().ok_or_else(no_address)?;
            Ok((canonical(own), canonical(relay)))
        });
        let ends = match connected {
            Ok(ends) => ends,
            // Such as a socket that is bound to a port: it cannot reach loopback.
            Err(error) => return self.local_failure(target, error),
        };
        lock(&self.waiting).insert(ends.0, Waiting { stream, target });
        lock(&self.targets).insert(ends, named);
        Answer::Success
    }

    /// The address of the relay, in the family of a socket.
    fn relay_for(&self, socket: &Socket, named: SocketAddr) -> io::Result<SocketAddr> {
        let is_v4 = named.ip().to_canonical().is_ipv4();
        let relay = self.relays[usize::from(!is_v4)].local_addr()?;
        Ok(in_family(relay, socket.domain()?))
    }

    async fn accept(self: Arc<Self>, index: usize) {
        loop {
            let (connection, own) = loopback::accept(&self.relays[index]).await;
            // Other programs of this host may connect as well; nothing waits for them.
            let Some(waiting) = lock(&self.waiting).remove(&own) else { continue };
            let Ok(relay) = connection.local_addr() else { continue };
            let (this, ends) = (self.clone(), (own, canonical(relay)));
            tokio::spawn(async move { this.relay(connection, waiting, ends).await });
        }
    }

    /// Relays a program's connection to its end.
    async fn relay(&self, connection: TcpStream, waiting: Waiting, ends: Ends) {
        let Waiting { stream, target } = waiting;
        (self.tell)(Outcome::Forwarded { target });
        let _ = connection.set_nodelay(true);
        if let Err(error) = relay(connection, stream).await {
            tracing::debug!(%target, %error, "a forwarded connection");
        }
        lock(&self.targets).remove(&ends);
    }

    /// Answers `getpeername` of a forwarded connection.
    fn name_peer(&self, notification: &Notification) -> Answer {
        let [descriptor, address, length_at, ..] = notification.arguments;
        let ends = socket_of(notification.thread, descriptor as i32).and_then(|socket| ends_of(&socket));
        let target = ends.ok().and_then(|ends| lock(&self.targets).get(&ends).copied());
        let Some(target) = target else { return Answer::Unchanged };
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

/// The ends of a connected socket.
fn ends_of(socket: &Socket) -> io::Result<Ends> {
    let of = |address: SockAddr| address.as_socket().map(canonical).ok_or_else(no_address);
    Ok((of(socket.local_addr()?)?, of(socket.peer_addr()?)?))
}

/// Whether this is a TCP socket that neither is connected nor connects.
fn is_unconnected_tcp(socket: &Socket) -> bool {
    matches!(socket.r#type(), Ok(Type::STREAM))
        && matches!(socket.protocol(), Ok(Some(Protocol::TCP | Protocol::MPTCP)))
        && tcp_state(socket) == Some(TCP_CLOSE)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
