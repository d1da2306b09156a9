//! The client's side of opening a session: the first connection, the rails, the channels, and all of them again.

use super::state::{Joining, Lost, State};
use super::{Config, Session, Shared, keeper};
use crate::error::{Error, Result};
use crate::handshake::{self, Purpose, SessionId, Token};
use crate::rails::ports::local_ports;
use crate::socket::{self, LocalEnd};
use futures_util::future::join_all;
use multirail_proto::topology::{Pair, Unreachable, pair_excluding};
use multirail_proto::wire::Port;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long the first connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a rail may take to answer before it counts as unreachable.
const RAIL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the peer may take to tell its ports.
const PORTS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the beginning of a session may be held up by measuring its rails: 32 KiB take that long at 5 Mbit/s.
const PROBE_TIMEOUT: Duration = Duration::from_millis(50);
/// A lost channel is dialled again after this long, then after twice as long each time, up to the second number: a rail that
/// is back is used within three seconds.
const REDIAL_FIRST: Duration = Duration::from_millis(100);
const REDIAL_MOST: Duration = Duration::from_secs(2);
/// Rounds of choosing and dialling rails: each puts others in the place of those that did not answer.
const ROUNDS: usize = 3;

/// Everything needed to open a session's connections again.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    session: SessionId,
    token: Option<Token>,
    rails: Vec<RailEnds>,
    next_channel: Arc<AtomicU32>,
    control_dialling: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
struct RailEnds {
    local: LocalEnd,
    remote: SocketAddr,
}

pub(super) async fn connect(host: &str, config: Config) -> Result<Session> {
    connect_and_tell(host, config).await.map(|(session, _)| session)
}

impl Session {
    /// As [`Session::connect`], and tells all pairs of addresses: the rails in the order of their numbers, then the others
    /// with the reasons why they are none.
    pub async fn connect_and_tell(host: &str, config: Config) -> Result<(Session, Vec<Pair>)> {
        connect_and_tell(host, config).await
    }
}

async fn connect_and_tell(host: &str, config: Config) -> Result<(Session, Vec<Pair>)> {
    let mut stream = first_connection(host).await?;
    let (local, remote) = (stream.local_addr(), stream.peer_addr());
    let (local, remote) =
        local.and_then(|l| Ok((l, remote?))).map_err(Error::io("reading a connection's addresses"))?;
    let session = handshake::connect(&mut stream, config.token.as_ref(), Purpose::New).await?;
    let shared = Shared::new(State::new(config.clone()));
    let control = stream.into_std().map_err(Error::io("taking over a connection"))?;
    shared.mailbox.put(Joining::Control(control));
    let peer_ports = peer_ports(&shared).await?;
    let mut dialer = Dialer {
        session,
        token: config.token.clone(),
        rails: Vec::new(),
        next_channel: Arc::new(AtomicU32::new(0)),
        control_dialling: Arc::default(),
    };
    let connected = (local.ip().to_canonical(), remote.ip().to_canonical());
    let pairs = open_rails(&shared, &mut dialer, &config, connected, remote.port(), &peer_ports).await?;
    exchange_probes(&shared).await?;
    keeper::spawn(&shared, Some(dialer));
    Ok((Session::new(shared), pairs))
}

/// Sends probes and takes the peer's, so that both sides know the rates when the first message begins. Nobody else
/// would read them as they come, and read later they would say nothing.
async fn exchange_probes(shared: &Arc<Shared>) -> Result<()> {
    let exchanged = poll_fn(|cx| {
        shared.send_waker.register(cx.waker());
        let cx = &mut Context::from_waker(&shared.both);
        let mut state = shared.lock();
        state.take_joining();
        state.poll_control(cx)?;
        state.poll_transmit(cx, None);
        let all = state.poll_probes(cx)? && !state.transmit_due();
        if all {
            state.queue_report();
            state.control.flush(cx);
        }
        if all { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    tokio::time::timeout(PROBE_TIMEOUT, exchanged).await.unwrap_or(Ok(()))
}

/// A connection to `host` on which the peer answers as a plain TCP echo: what multirail is measured against.
pub async fn connect_plain(
    local: Option<&LocalEnd>,
    remote: SocketAddr,
    token: Option<&Token>,
) -> Result<std::net::TcpStream> {
    let unreachable = |source| Error::Unreachable { host: remote.to_string(), source };
    let mut stream = socket::dial(local, remote, CONNECT_TIMEOUT).await.map_err(unreachable)?;
    handshake::connect(&mut stream, token, Purpose::Plain).await?;
    stream.into_std().map_err(Error::io("taking over a connection"))
}

async fn first_connection(host: &str) -> Result<tokio::net::TcpStream> {
    let unreachable = |source| Error::Unreachable { host: host.to_owned(), source };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(host).await.map_err(unreachable)? {
        match socket::dial(None, address, CONNECT_TIMEOUT).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}

/// Waits for the peer to tell which of its ports can be dialled.
async fn peer_ports(shared: &Arc<Shared>) -> Result<Vec<Port>> {
    let told = poll_fn(|cx| {
        shared.send_waker.register(cx.waker());
        let mut state = shared.lock();
        state.take_joining();
        state.poll_control(&mut Context::from_waker(&shared.both))?;
        state.check()?;
        match state.peer_ports.take() {
            Some(ports) => Poll::Ready(Ok(ports)),
            None if state.control.socket.is_none() => Poll::Ready(Err(Error::Closed)),
            None => Poll::Pending,
        }
    });
    match tokio::time::timeout(PORTS_TIMEOUT, told).await {
        Ok(ports) => ports,
        Err(_) => Err(Error::Protocol("it did not tell its ports".to_owned())),
    }
}

/// Opens channels on every rail that answers, and puts others in the place of those that do not.
async fn open_rails(
    shared: &Arc<Shared>,
    dialer: &mut Dialer,
    config: &Config,
    connected: (IpAddr, IpAddr),
    port: u16,
    peer_ports: &[Port],
) -> Result<Vec<Pair>> {
    let local = if connected.1.is_loopback() {
        vec![loopback_port(connected.0)]
    } else {
        let all = local_ports().await.map_err(Error::io("listing this host's ports"))?;
        all.including(&config.rails, Some(connected.0)).ports
    };
    let (mut standing, mut unreachable) = (Vec::new(), Vec::new());
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        // The first connection works, so it stands from the start, unless the filter leaves it out.
        let known = if round == 0 { vec![connected] } else { standing.clone() };
        pairs = pair_excluding(&local, peer_ports, &known, &config.rails, &unreachable);
        let ends = |p: &Pair| (p.local.address, p.remote.address);
        let new: Vec<&Pair> = pairs.iter().filter(|p| p.is_rail() && !standing.contains(&ends(p))).collect();
        if new.is_empty() {
            break;
        }
        let dialled = join_all(new.iter().map(|pair| {
            let ends = RailEnds {
                local: LocalEnd { address: pair.local.address, interface: interface_of(&pair.local) },
                remote: SocketAddr::new(pair.remote.address, port),
            };
            let rail = (dialer.rails.len() + new.iter().position(|p| p == pair).unwrap_or(0)) as u32;
            let dialer = &*dialer;
            async move { (dialer.open(&ends, rail, config.channels_per_rail).await, ends) }
        }))
        .await;
        for (pair, (opened, rail)) in new.iter().zip(dialled) {
            let number = dialer.rails.len() as u32;
            // Rails keep the numbers they were dialled with: one that failed keeps its place and is never lost.
            dialer.rails.push(rail);
            match opened {
                Ok(channels) => {
                    standing.push(ends(pair));
                    let joining = channels.into_iter().map(|(id, stream)| Joining::Data {
                        stream,
                        id,
                        rail: number,
                        replaces: None,
                    });
                    joining.for_each(|j| shared.mailbox.put(j));
                }
                Err(error) => unreachable.push(Unreachable {
                    local: pair.local.address,
                    remote: pair.remote.address,
                    error: error.to_string(),
                }),
            }
        }
    }
    if standing.is_empty() {
        let why = unreachable.first().map_or_else(|| "--rails leaves out all of them".to_owned(), |u| u.error.clone());
        let none = io::Error::new(io::ErrorKind::AddrNotAvailable, format!("none of the rails can be used: {why}"));
        return Err(Error::Unreachable { host: connected.1.to_string(), source: none });
    }
    Ok(pairs)
}

fn loopback_port(address: IpAddr) -> Port {
    Port { name: "lo".to_owned(), index: 1, address, prefix_bits: 8, speed_mbit_s: 0 }
}

fn interface_of(port: &Port) -> Option<String> {
    (!port.name.is_empty() && !port.address.is_loopback()).then(|| port.name.clone())
}

impl Dialer {
    /// Opens `count` channels on a rail; all or none.
    async fn open(&self, ends: &RailEnds, rail: u32, count: u32) -> Result<Vec<(u32, std::net::TcpStream)>> {
        let one = || async {
            let channel = self.next_channel.fetch_add(1, Ordering::Relaxed);
            let purpose = Purpose::Data { session: self.session, channel, rail, replaces: None };
            Ok((channel, self.dial(ends, purpose).await?))
        };
        join_all((0..count.max(1)).map(|_| one())).await.into_iter().collect()
    }

    async fn dial(&self, ends: &RailEnds, purpose: Purpose) -> Result<std::net::TcpStream> {
        let unreachable = |source| Error::Unreachable { host: ends.remote.to_string(), source };
        let mut stream = socket::dial(Some(&ends.local), ends.remote, RAIL_TIMEOUT).await.map_err(unreachable)?;
        handshake::connect(&mut stream, self.token.as_ref(), purpose).await?;
        stream.into_std().map_err(Error::io("taking over a connection"))
    }

    /// Has lost channels, and a lost control connection, dialled until they are back or the session is over.
    pub(super) fn reopen(&mut self, session: &Weak<Shared>, lost: Vec<Lost>, control_lost: bool) {
        for lost in lost {
            tokio::spawn(self.clone().reopen_channel(session.clone(), lost));
        }
        if control_lost && !self.control_dialling.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.clone().reopen_control(session.clone()));
        }
    }

    /// Opens further channels on rails that gain by it.
    pub(super) fn open_more(&self, session: &Weak<Shared>, more: Vec<(u32, u32)>) {
        for (rail, count) in more {
            let (dialer, session) = (self.clone(), session.clone());
            tokio::spawn(async move {
                let Some(ends) = dialer.rails.get(rail as usize) else { return };
                // One that cannot be opened is one that does not pay: the trial will tell.
                for (id, stream) in dialer.open(ends, rail, count).await.unwrap_or_default() {
                    join(&session, Joining::Data { stream, id, rail, replaces: None });
                }
            });
        }
    }

    async fn reopen_channel(self, session: Weak<Shared>, lost: Lost) {
        let Some(ends) = self.rails.get(lost.rail as usize) else { return };
        let mut wait = REDIAL_FIRST;
        while is_alive(&session) {
            let id = self.next_channel.fetch_add(1, Ordering::Relaxed);
            let purpose =
                Purpose::Data { session: self.session, channel: id, rail: lost.rail, replaces: Some(lost.id) };
            match self.dial(ends, purpose).await {
                Ok(stream) => {
                    return join(&session, Joining::Data { stream, id, rail: lost.rail, replaces: Some(lost.id) });
                }
                Err(Error::SessionUnknown) => return end(&session),
                Err(error) => tracing::debug!(rail = lost.rail, %error, "still down"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(REDIAL_MOST);
        }
    }

    async fn reopen_control(self, session: Weak<Shared>) {
        let mut wait = REDIAL_FIRST;
        'again: while is_alive(&session) {
            for ends in &self.rails {
                match self.dial(ends, Purpose::Control { session: self.session }).await {
                    Ok(stream) => {
                        join(&session, Joining::Control(stream));
                        break 'again;
                    }
                    Err(Error::SessionUnknown) => {
                        end(&session);
                        break 'again;
                    }
                    Err(_) => {}
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(REDIAL_MOST);
        }
        self.control_dialling.store(false, Ordering::Relaxed);
    }
}

fn is_alive(session: &Weak<Shared>) -> bool {
    let is_alive = |s: Arc<Shared>| {
        let state = s.lock();
        state.failure.is_none() && !state.peer_gone
    };
    session.upgrade().is_some_and(is_alive)
}

fn join(session: &Weak<Shared>, joining: Joining) {
    if let Some(shared) = session.upgrade() {
        shared.mailbox.put(joining);
        shared.wake();
    }
}

fn end(session: &Weak<Shared>) {
    if let Some(shared) = session.upgrade() {
        shared.lock().forgotten(&mut Context::from_waker(&shared.both));
        shared.wake();
    }
}
