//! Admits peers that prove who they are.

use super::accept::{GateKeeper, Unproven};
use super::accepted::{Accepted, NewConnection, NewSession};
use super::config::Config;
use super::driver::SessionDriver;
use super::log_limit::LogLimit;
use super::mailbox::Joining;
use super::occupancy::{Occupancy, Place};
use super::shared::Shared;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::handshake::{self, Admitted, Doorkeeper, Joined, Peer, Purpose, Refusal, SessionId};
use crate::rails::local_ports;
use crate::secure::keys::SessionSecret;
use crate::sync::lock;
use crate::traffic::Refused;
use multirail_proto::admission::Source;
use multirail_proto::session::Role;
use multirail_proto::topology::RailFilter;
use multirail_proto::wire::Port;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Limit of unauthenticated connections, which is half of this process's open files if that is less.
/// Each holds less than 24 KiB. [`Gate`](multirail_proto::admission::Gate) says which are ended
/// beyond it.
const MAX_UNPROVEN: usize = 2048;
/// Limit of channels in a session.
const MAX_CHANNELS_UP: usize = 256;
/// Limit of entries in a session's table of channels. A lost channel keeps its entry while a
/// message refers to it, so this limits how often rails can come and go within one message. Each
/// entry costs a few KiB.
const MAX_CHANNELS_EVER: usize = 16 * 1024;

/// Admits connections.
pub(super) struct Admission {
    config: Config,
    address: SocketAddr,
    sessions: Mutex<HashMap<SessionId, (Weak<Shared>, SessionSecret)>>,
    gate: Arc<GateKeeper>,
    occupancy: Arc<Occupancy>,
    accepted: mpsc::Sender<Accepted>,
    refused: LogLimit,
}

impl Admission {
    pub(super) fn new(
        config: Config,
        address: SocketAddr,
        occupancy: Arc<Occupancy>,
        accepted: mpsc::Sender<Accepted>,
    ) -> Self {
        let gate = GateKeeper::new(MAX_UNPROVEN.min(max_open_files() / 2));
        Self { config, address, sessions: Mutex::default(), gate, occupancy, accepted, refused: LogLimit::default() }
    }

    /// Limits unauthenticated connections.
    pub(super) fn gate(&self) -> &Arc<GateKeeper> {
        &self.gate
    }

    /// Begins a connection's handshake.
    pub(super) fn start(self: &Arc<Self>, stream: std::net::TcpStream, peer: SocketAddr) {
        let admission = self.clone();
        self.gate.spawn(peer, move |unproven| async move {
            if let Err(error) = admission.admit(stream, peer, unproven).await {
                if matches!(error, Error::Closed) {
                    return tracing::debug!(%peer, "a connection was closed before it sent anything");
                }
                Refused::from(&error).add(1);
                admission.refused.log(move |count| match count {
                    1 => tracing::warn!(%peer, %error, "refused a connection"),
                    _ => tracing::warn!(count, first = %peer, %error, "refused further connections"),
                });
            }
        });
    }

    async fn admit(&self, stream: std::net::TcpStream, peer: SocketAddr, unproven: Unproven) -> Result<()> {
        stream.set_nonblocking(true).map_err(Error::io("setting up a connection"))?;
        let mut stream = TcpStream::from_std(stream).map_err(Error::io("setting up a connection"))?;
        stream.set_nodelay(true).map_err(Error::io("setting up a connection"))?;
        let mut door = Door { admission: self, source: Source::from(peer.ip()), place: None };
        let admitted = handshake::accept(&mut stream, &self.config, &mut door).await?;
        let place = door.place;
        // Without a limit for authenticated peers, those that wait to be accepted have this one.
        let _unproven = place.is_none().then_some(unproven);
        // On the heap, so that connections without a proof do not take its room.
        Box::pin(self.pass_on(admitted, stream, peer, place)).await
    }

    async fn pass_on(
        &self,
        admitted: Admitted<Arc<Shared>>,
        stream: TcpStream,
        peer: SocketAddr,
        place: Option<Place>,
    ) -> Result<()> {
        let local = stream.local_addr().map_err(Error::io("setting up a connection"))?.ip().to_canonical();
        let stream = stream.into_std().map_err(Error::io("setting up a connection"))?;
        match admitted {
            Admitted::Opened(opened, Purpose::Connection { protocol }) => {
                let connection = Connection::new(stream, opened);
                self.hand_on(Accepted::Connection(NewConnection { protocol, connection, place })).await
            }
            Admitted::Opened(opened, Purpose::New) => {
                let mut driver = SessionDriver::new(&self.config, Role::Listener);
                driver.machine.set_own_ports(self.ports(local).await?);
                driver.mailbox.put(Joining::Control { stream, protection: opened.protection });
                opened.client.permissions.rate_limit().into_iter().for_each(|limit| driver.throttle.add(limit.clone()));
                let shared = Shared::new(driver, opened.peer, opened.client);
                self.remember(opened.session, &shared, opened.secret);
                self.hand_on(Accepted::Session(NewSession { shared, peer, place })).await
            }
            Admitted::Joined(shared, joined, protection) => {
                shared.mailbox.put(match joined {
                    Joined::Control => Joining::Control { stream, protection },
                    Joined::Data { channel: id, rail, replaces } => {
                        Joining::Data { stream, protection, id, rail, replaces }
                    }
                });
                shared.wake();
                Ok(())
            }
        }
    }

    async fn hand_on(&self, accepted: Accepted) -> Result<()> {
        self.accepted.send(accepted).await.map_err(|_| Error::Closed)
    }

    fn remember(&self, id: SessionId, shared: &Arc<Shared>, secret: SessionSecret) {
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, (s, _)| s.strong_count() > 0);
        sessions.insert(id, (Arc::downgrade(shared), secret));
    }

    /// The session with this id, if it still exists and has room for another channel.
    fn find(&self, id: SessionId) -> Result<(Arc<Shared>, SessionSecret), Refusal> {
        let sessions = lock(&self.sessions);
        let (shared, secret) = sessions.get(&id).ok_or(Refusal::Session)?;
        let shared = shared.upgrade().ok_or(Refusal::Session)?;
        let over = shared.mailbox.is_closed();
        let (up, entries) = shared.mailbox.counts();
        let room = up < MAX_CHANNELS_UP && entries < MAX_CHANNELS_EVER;
        match (over, room) {
            (true, _) => Err(Refusal::Session),
            (false, false) => Err(Refusal::Channels),
            (false, true) => Ok((shared, secret.clone())),
        }
    }

    /// The ports that a peer may dial that has reached this side at `local`.
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

/// Decides for one connection.
struct Door<'a> {
    admission: &'a Admission,
    source: Source,
    place: Option<Place>,
}

impl Doorkeeper for Door<'_> {
    type Session = Arc<Shared>;

    fn enter(&mut self, _: Peer, _: Purpose) -> Result<SessionId, Refusal> {
        self.place = self.admission.occupancy.enter(self.source)?;
        Ok(SessionId::random())
    }

    fn find(&mut self, id: SessionId) -> Result<(Arc<Shared>, SessionSecret), Refusal> {
        self.admission.find(id)
    }
}

fn max_open_files() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a valid rlimit.
    let ok = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if ok { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { usize::MAX }
}
