//! Which server an address belongs to, and the session to it.

use crate::client::{ForwardError, Forwarder};
use futures_util::future::join_all;
use multirail_net::{Config, DEFAULT_PORT};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long a host that is not named may take to answer on multirail's port.
const PROBE_WITHIN: Duration = Duration::from_millis(300);
/// How long an address without a server, or with one that does not forward, is left alone.
const ABSENT_FOR: Duration = Duration::from_secs(60);
/// How long the last bytes of connections may take when the program has ended.
const CLOSE_WITHIN: Duration = Duration::from_secs(30);
/// How long a server that is named, or had a session before, is left alone when it could not be reached.
const FAILED_FOR: Duration = Duration::from_secs(2);

/// The servers that forward connections, by the addresses of their hosts.
///
/// A server is named, or an address is asked on multirail's port ([`DEFAULT_PORT`]) when a program
/// connects to it first. Addresses to which a session has a rail belong to its server as well: the peer
/// has proven there that it has the session's secret.
#[derive(Debug)]
pub struct Peers {
    config: Config,
    probes: bool,
    by_address: Mutex<HashMap<IpAddr, Arc<Peer>>>,
}

/// A server, or an address of which it is not known whether it has one.
#[derive(Debug)]
struct Peer {
    /// Where its server is, as [`Forwarder::connect`] takes it.
    host: String,
    known: tokio::sync::Mutex<Known>,
}

/// What is known of a server.
#[derive(Debug)]
struct Known {
    /// Whether there is one: it is named, or had a session before.
    exists: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Unknown,
    Connected(Arc<Forwarder>),
    /// There is no server.
    Absent {
        until: Instant,
    },
    /// It could not be reached, or does not forward.
    Failed {
        error: Arc<ForwardError>,
        until: Instant,
    },
}

/// What became of the search for a server.
#[derive(Debug)]
pub(crate) enum Found {
    /// The session to it.
    Server(Arc<Forwarder>),
    /// There is none.
    None,
    /// There should be one. The attempt has failed now or a short time ago.
    Failed { host: String, error: Arc<ForwardError> },
}

impl Peer {
    fn new(host: String, is_named: bool) -> Self {
        Self { host, known: Known { exists: is_named, state: State::Unknown }.into() }
    }

    fn failed(&self, error: Arc<ForwardError>) -> Found {
        Found::Failed { host: self.host.clone(), error }
    }
}

impl Peers {
    /// Servers that are found by a probe of each address.
    pub fn probing(config: Config) -> Self {
        Self { config, probes: true, by_address: Mutex::default() }
    }

    /// These servers and no others, each as `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// [`multirail_net::Error::Unreachable`] if a name cannot be resolved.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    pub async fn named(config: Config, hosts: &[String]) -> multirail_net::Result<Self> {
        let mut by_address = HashMap::new();
        for host in hosts {
            let unreachable = |cause| multirail_net::Error::Unreachable { host: host.clone(), cause };
            let addresses = tokio::net::lookup_host(host).await.map_err(unreachable)?;
            let peer = Arc::new(Peer::new(host.clone(), true));
            by_address.extend(addresses.map(|address| (address.ip().to_canonical(), peer.clone())));
        }
        Ok(Self { config, probes: false, by_address: by_address.into() })
    }

    /// The session to the server at `address`.
    pub(crate) async fn find(&self, address: IpAddr) -> Found {
        let Some(peer) = self.peer(address) else { return Found::None };
        let mut known = peer.known.lock().await;
        match &known.state {
            State::Connected(forwarder) if !forwarder.is_over() => return Found::Server(forwarder.clone()),
            State::Absent { until } if Instant::now() < *until => return Found::None,
            State::Failed { error, until } if Instant::now() < *until => return peer.failed(error.clone()),
            _ => {}
        }
        if !known.exists && !answers(SocketAddr::new(address, DEFAULT_PORT)).await {
            known.state = State::Absent { until: Instant::now() + ABSENT_FOR };
            return Found::None;
        }
        match self.connect(&peer).await {
            Ok(forwarder) => {
                let forwarder = Arc::new(forwarder);
                *known = Known { exists: true, state: State::Connected(forwarder.clone()) };
                Found::Server(forwarder)
            }
            Err(error) => {
                let error = Arc::new(error);
                let after = if known.exists { FAILED_FOR } else { ABSENT_FOR };
                known.state = State::Failed { error: error.clone(), until: Instant::now() + after };
                peer.failed(error)
            }
        }
    }

    /// Whether a server at `address` is named, or had a session.
    pub(crate) async fn has_server(&self, address: IpAddr) -> bool {
        let peer = self.lock().get(&address).cloned();
        match peer {
            Some(peer) => peer.known.lock().await.exists,
            None => false,
        }
    }

    fn peer(&self, address: IpAddr) -> Option<Arc<Peer>> {
        let mut by_address = self.lock();
        if let Some(peer) = by_address.get(&address) {
            return Some(peer.clone());
        }
        if !self.probes {
            return None;
        }
        let host = SocketAddr::new(address, DEFAULT_PORT).to_string();
        let peer = Arc::new(Peer::new(host, false));
        by_address.insert(address, peer.clone());
        Some(peer)
    }

    async fn connect(&self, peer: &Arc<Peer>) -> Result<Forwarder, ForwardError> {
        let forwarder = Forwarder::connect(&peer.host, self.config.clone()).await?;
        self.lock().extend(forwarder.addresses().iter().map(|address| (*address, peer.clone())));
        Ok(forwarder)
    }

    /// Ends all sessions when their connections have ended.
    pub(crate) async fn close(&self) {
        let peers: Vec<Arc<Peer>> = self.lock().drain().map(|(_, peer)| peer).collect();
        let closing = peers.into_iter().map(async |peer| {
            let before = std::mem::replace(&mut peer.known.lock().await.state, State::Unknown);
            let State::Connected(forwarder) = before else { return };
            // A connection that still opens keeps it.
            let Some(forwarder) = Arc::into_inner(forwarder) else { return };
            if tokio::time::timeout(CLOSE_WITHIN, forwarder.close()).await.is_err() {
                tracing::warn!(host = peer.host, "connections are reset before everything was sent");
            }
        });
        join_all(closing).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Peer>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether anything listens there.
async fn answers(address: SocketAddr) -> bool {
    matches!(tokio::time::timeout(PROBE_WITHIN, TcpStream::connect(address)).await, Ok(Ok(_)))
}
