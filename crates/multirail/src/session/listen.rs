//! The server's side: listens, lets proven peers in, and hands their connections to their sessions.

use super::state::{Joining, State};
use super::{Config, Session, Shared, keeper};
use crate::error::{Error, Result};
use crate::handshake::{self, Purpose, Refusal, SessionId};
use crate::rails::ports::local_ports;
use multirail_proto::topology::RailFilter;
use multirail_proto::wire::Port;
use socket2::{Domain, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};

/// Connections that have not proven themselves; beyond it, or beyond half of the files that this process may open, the
/// oldest is shown the door, so that a flood of them costs its sender as much as us. Each holds less than 16 KiB.
pub const MAX_UNPROVEN: usize = 2048;
/// Sessions that were let in and nobody has accepted yet.
const ACCEPT_QUEUE: usize = 64;
/// No session has more channels.
const MAX_CHANNELS: usize = 256;
/// Lost channels stay in a session's table while a message refers to them, so this is how often rails may come and go within one
/// message. Each costs a few KiB.
const MAX_CHANNELS_EVER: usize = 16 * 1024;
const BACKLOG: i32 = 1024;

/// How to listen.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    /// Where; port 0 takes any.
    pub address: SocketAddr,
    /// Serve beyond this machine although there is no token.
    pub insecure_no_token: bool,
    /// What the sessions are like; the token is in there.
    pub session: Config,
}

/// Accepts sessions.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    accepted: mpsc::Receiver<Accepted>,
    task: JoinHandle<()>,
}

/// What a peer came for. It can be taken to another thread, and used in the runtime there.
#[derive(Debug)]
pub enum Accepted {
    /// A session.
    Session(NewSession),
    /// A plain TCP connection, to be answered with no protocol of ours (for measuring against).
    Plain(std::net::TcpStream),
    /// A connection for an edge of a pipeline, whose greeting follows ([`crate::transport::connect`]).
    Edge(std::net::TcpStream),
}

/// A session that no runtime drives yet.
#[derive(Debug)]
pub struct NewSession {
    shared: Arc<Shared>,
    peer: SocketAddr,
}

impl NewSession {
    /// The address that the peer's first connection came from.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Starts a session that another runtime had, in the runtime that calls.
    pub(crate) fn start_moved(self) -> std::io::Result<Session> {
        self.shared.lock().move_sockets()?;
        self.shared.wake();
        Ok(self.start())
    }

    /// Starts the session in the runtime that calls.
    pub fn start(self) -> Session {
        let mut state = self.shared.lock();
        state.take_joining();
        // The client waits for our ports.
        state.control.flush(&mut std::task::Context::from_waker(&self.shared.both));
        drop(state);
        keeper::spawn(&self.shared, None);
        Session::new(self.shared)
    }
}

impl Session {
    /// Takes the session out of the runtime that drives it, for another one ([`NewSession::start_moved`]). The runtime must
    /// end, so that nothing of the session is driven by both. Only for a session that was accepted.
    pub(crate) fn into_new(self, peer: SocketAddr) -> NewSession {
        NewSession { shared: self.sender.shared.clone(), peer }
    }
}

impl Listener {
    /// Listens. Without a token it does so on loopback only, unless `insecure_no_token` says otherwise.
    pub async fn bind(config: ListenConfig) -> Result<Listener> {
        let address = config.address;
        if config.session.token.is_none() && !config.insecure_no_token && !address.ip().is_loopback() {
            return Err(Error::OpenWithoutToken { address });
        }
        let socket = listening_socket(address).map_err(Error::io("listening"))?;
        let listener = TcpListener::from_std(socket).map_err(Error::io("listening"))?;
        let address = listener.local_addr().map_err(Error::io("listening"))?;
        let (sender, accepted) = mpsc::channel(ACCEPT_QUEUE);
        let door = Arc::new(Door { config: config.session, address, sessions: Mutex::default(), accepted: sender });
        let task = tokio::spawn(door.watch(listener));
        Ok(Listener { address, accepted, task })
    }

    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next peer that was let in.
    pub async fn accept(&mut self) -> Result<Accepted> {
        self.accepted.recv().await.ok_or(Error::Closed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Door {
    config: Config,
    address: SocketAddr,
    sessions: Mutex<HashMap<SessionId, Weak<Shared>>>,
    accepted: mpsc::Sender<Accepted>,
}

impl Door {
    async fn watch(self: Arc<Self>, listener: TcpListener) {
        let mut unproven: VecDeque<AbortHandle> = VecDeque::new();
        let most_unproven = MAX_UNPROVEN.min(max_open_files() / 2);
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(connection) => connection,
                Err(error) => {
                    // Out of file descriptors, most likely: those who are in go on, and the oldest of those who are not leaves.
                    tracing::warn!(%error, "cannot accept a connection");
                    unproven.retain(|task| !task.is_finished());
                    match unproven.pop_front() {
                        Some(oldest) => {
                            oldest.abort();
                            tokio::task::yield_now().await;
                        }
                        None => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
                    }
                    continue;
                }
            };
            unproven.retain(|task| !task.is_finished());
            if unproven.len() >= most_unproven
                && let Some(oldest) = unproven.pop_front()
            {
                oldest.abort();
            }
            unproven.push_back(tokio::spawn(self.clone().admit(stream, peer)).abort_handle());
        }
    }

    async fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        if let Err(error) = self.try_admit(stream, peer).await {
            tracing::warn!(%peer, %error, "refused a connection");
        }
    }

    async fn try_admit(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<()> {
        stream.set_nodelay(true).map_err(Error::io("setting up a connection"))?;
        let mut joined = None;
        let (purpose, id) = handshake::accept(&mut stream, self.config.token.as_ref(), |purpose| match purpose {
            Purpose::New | Purpose::Plain | Purpose::Edge => Ok(SessionId::random()),
            Purpose::Control { session } | Purpose::Data { session, .. } => {
                joined = Some(self.find(session)?);
                Ok(session)
            }
        })
        .await?;
        let local = stream.local_addr().map_err(Error::io("setting up a connection"))?.ip().to_canonical();
        let stream = stream.into_std().map_err(Error::io("setting up a connection"))?;
        let joining = match purpose {
            Purpose::Plain => return self.hand_on(Accepted::Plain(stream)).await,
            Purpose::Edge => return self.hand_on(Accepted::Edge(stream)).await,
            Purpose::New => {
                let mut state = State::new(self.config.clone());
                state.own_ports = self.ports(local).await?;
                state.mailbox.put(Joining::Control(stream));
                let shared = Shared::new(state);
                self.remember(id, &shared);
                return self.hand_on(Accepted::Session(NewSession { shared, peer })).await;
            }
            Purpose::Control { .. } => Joining::Control(stream),
            Purpose::Data { channel: id, rail, replaces, .. } => Joining::Data { stream, id, rail, replaces },
        };
        if let Some(shared) = joined {
            shared.mailbox.put(joining);
            shared.wake();
        }
        Ok(())
    }

    async fn hand_on(&self, accepted: Accepted) -> Result<()> {
        self.accepted.send(accepted).await.map_err(|_| Error::Closed)
    }

    fn remember(&self, id: SessionId, shared: &Arc<Shared>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sessions.retain(|_, s| s.strong_count() > 0);
        sessions.insert(id, Arc::downgrade(shared));
    }

    /// The session of that name, if it is still there and has room for another channel.
    fn find(&self, id: SessionId) -> Result<Arc<Shared>, Refusal> {
        let sessions = self.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let shared = sessions.get(&id).and_then(Weak::upgrade).ok_or(Refusal::Session)?;
        let over = shared.mailbox.is_closed();
        let (up, places) = shared.mailbox.counts();
        let room = up < MAX_CHANNELS && places < MAX_CHANNELS_EVER;
        match (over, room) {
            (true, _) => Err(Refusal::Session),
            (false, false) => Err(Refusal::Channels),
            (false, true) => Ok(shared),
        }
    }

    /// The ports that a peer may dial which reached us at `local`.
    async fn ports(&self, local: IpAddr) -> Result<Vec<Port>> {
        let alone = || Port { name: "lo".to_owned(), index: 1, address: local, prefix_bits: 8, speed_mbit_s: 0 };
        if local.is_loopback() {
            return Ok(vec![alone()]);
        }
        let all = local_ports().await.map_err(Error::io("listing this host's ports"))?;
        let mut ports = all.including(&RailFilter::default(), Some(local)).ports;
        if !self.address.ip().is_unspecified() {
            ports.retain(|p| p.address == local);
        }
        if self.address.is_ipv4() {
            ports.retain(|p| p.address.is_ipv4());
        }
        Ok(ports)
    }
}

fn max_open_files() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a valid rlimit.
    let ok = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if ok { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { usize::MAX }
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
