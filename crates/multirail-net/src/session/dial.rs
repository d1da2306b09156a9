//! The dialling side of opening a session: the first connection, the rails, and the channels.

use super::config::Config;
use super::driver::SessionDriver;
use super::handle::Session;
use super::mailbox::Joining;
use super::maintenance;
use super::redial::{Dialer, RailEnds, new_ids};
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::handshake::{self, Opened, Purpose};
use crate::rails::{LeftOut, LocalPorts, local_ports};
use crate::socket::{self, LocalEnd};
use futures_util::future::join_all;
use multirail_proto::session::Role;
use multirail_proto::topology::{Pair, RailFilter, Unreachable, pair_excluding};
use multirail_proto::wire::Port;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long the first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the peer may take to send its ports.
const PORTS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long measuring the rails may delay the start of a session. At 5 Mbit/s, 32 KiB take this
/// long.
const PROBE_TIMEOUT: Duration = Duration::from_millis(50);
/// Rounds of choosing and dialling rails. Each round tries others in place of those that did not
/// answer.
const ROUNDS: usize = 3;

impl Session {
    /// Connects to a listener at `host` (`name:port` or `address:port`), finds the rails between
    /// the two hosts and opens channels on all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if no address of `host` answers within 5 s; [`Error::NoRail`];
    /// [`Error::TokenMissing`], [`Error::TokenWrong`], [`Error::HostUnknown`] and the other errors of the
    /// handshake.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: dropping the future closes all connections.
    ///
    /// # Examples
    ///
    /// ```
    /// use multirail_net::{Config, Session, Token};
    /// # use multirail_net::session::{Accepted, ListenConfig, Listener};
    ///
    /// # multirail_net::runtime::block_on(async {
    /// let config = Config::new().token(Token::new(b"a secret of both sides"));
    /// # let mut listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), config.clone())).await?;
    /// # let address = listener.address().to_string();
    /// # let server = async {
    /// #     let Accepted::Session(new) = listener.accept().await? else { unreachable!() };
    /// #     let mut session = new.start();
    /// #     let mut buffer = vec![0; 1 << 20];
    /// #     assert_eq!(session.recv(&mut buffer).await?, 300_000);
    /// #     session.close().await
    /// # };
    /// # let client = async {
    /// // `address` is any address of the other host, with its port.
    /// let mut session = Session::connect(&address, config).await?;
    /// let message = vec![42; 300_000];
    /// session.send(&message).await?;
    /// session.close().await
    /// # };
    /// # tokio::try_join!(server, client)?;
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), multirail_net::Error>(())
    /// ```
    pub async fn connect(host: &str, config: Config) -> Result<Session> {
        Session::connect_and_tell(host, config).await.map(|(session, _)| session)
    }

    /// As [`Session::connect`], but also returns all pairs of addresses: the rails by number, then
    /// the unused pairs with the reasons.
    ///
    /// # Errors
    ///
    /// Those of [`Session::connect`].
    ///
    /// # Cancel safety
    ///
    /// That of [`Session::connect`].
    pub async fn connect_and_tell(host: &str, config: Config) -> Result<(Session, Vec<Pair>)> {
        let mut stream = first_connection(host).await?;
        let (local, remote) = (stream.local_addr(), stream.peer_addr());
        let (local, remote) =
            local.and_then(|l| Ok((l, remote?))).map_err(Error::io("reading a connection's addresses"))?;
        let Opened { session, secret, protection, peer, client } =
            handshake::open(&mut stream, host, &config, Purpose::New).await?;
        let shared = Shared::new(SessionDriver::new(&config, Role::Dialler), peer, client);
        let control = stream.into_std().map_err(Error::io("taking over a connection"))?;
        shared.mailbox.put(Joining::Control { stream: control, protection });
        let peer_ports = peer_ports(&shared).await?;
        let mut dialer = Dialer { session, secret, rails: Vec::new() };
        let connected = (local.ip().to_canonical(), remote.ip().to_canonical());
        let pairs = open_rails(&shared, &mut dialer, &config, host, connected, remote.port(), &peer_ports).await?;
        exchange_probes(&shared).await?;
        maintenance::spawn(&shared, Some(dialer));
        Ok((Session::new(shared), pairs))
    }
}

/// Exchanges probes, so that both sides know the rates before the first message begins. Probes read
/// later would say nothing about the path.
async fn exchange_probes(shared: &Arc<Shared>) -> Result<()> {
    let exchanged = poll_fn(|cx| {
        shared.send_waker.register(cx.waker());
        let cx = &mut Context::from_waker(&shared.both);
        let mut driver = shared.lock();
        driver.take_joining();
        driver.poll_control(cx)?;
        driver.poll_transmit(cx, None);
        let all = driver.poll_probes(cx)? && !driver.machine.is_transmit_due();
        if all {
            let now = driver.now();
            driver.machine.report_now(now);
            driver.flush_control(cx);
        }
        if all { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    tokio::time::timeout(PROBE_TIMEOUT, exchanged).await.unwrap_or(Ok(()))
}

async fn first_connection(host: &str) -> Result<tokio::net::TcpStream> {
    let unreachable = |cause| Error::Unreachable { host: host.to_owned(), cause };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(host).await.map_err(unreachable)? {
        match socket::dial(None, address, CONNECT_TIMEOUT).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}

/// Waits until the peer has sent the list of its ports.
async fn peer_ports(shared: &Arc<Shared>) -> Result<Vec<Port>> {
    let told = poll_fn(|cx| {
        shared.send_waker.register(cx.waker());
        let mut driver = shared.lock();
        driver.take_joining();
        driver.poll_control(&mut Context::from_waker(&shared.both))?;
        driver.check()?;
        match driver.machine.take_peer_ports() {
            Some(ports) => Poll::Ready(Ok(ports)),
            None if driver.control.is_none() => Poll::Ready(Err(Error::Closed)),
            None => Poll::Pending,
        }
    });
    match tokio::time::timeout(PORTS_TIMEOUT, told).await {
        Ok(ports) => ports,
        Err(_) => Err(Error::Protocol("it did not send its ports".to_owned())),
    }
}

/// Opens channels on every rail that answers, and tries others in place of those that do not.
async fn open_rails(
    shared: &Arc<Shared>,
    dialer: &mut Dialer,
    config: &Config,
    host: &str,
    connected: (IpAddr, IpAddr),
    port: u16,
    peer_ports: &[Port],
) -> Result<Vec<Pair>> {
    let LocalPorts { ports: local, left_out } = if connected.1.is_loopback() {
        LocalPorts { ports: vec![loopback_port(connected.0)], left_out: Vec::new() }
    } else {
        let all = local_ports().await.map_err(Error::io("listing this host's ports"))?;
        all.including(&config.rails, Some(connected.0))
    };
    let (mut standing, mut unreachable) = (Vec::new(), Vec::new());
    // The interfaces that were tried in vain, with the errors.
    let mut failed = Vec::new();
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        // The first connection works, so its rail is known, unless the filter leaves it out.
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
            // With an automatic number, a rail starts with one channel.
            let ids = new_ids(shared, config.channels.initial());
            async move { (dialer.open(&ends, rail, ids).await, ends) }
        }))
        .await;
        for (pair, (opened, rail)) in new.iter().zip(dialled) {
            // Rails keep the numbers they were dialled with, even if one of them has failed.
            dialer.rails.push(rail);
            match opened {
                Ok(channels) => {
                    standing.push(ends(pair));
                    channels.into_iter().for_each(|joining| shared.mailbox.put(joining));
                }
                Err(error) => {
                    let error = error.to_string();
                    failed.push((pair.local.name.clone(), error.clone()));
                    unreachable.push(Unreachable { local: pair.local.address, remote: pair.remote.address, error });
                }
            }
        }
    }
    if standing.is_empty() {
        let (rail, why) = why_no_rail(&config.rails, &left_out, &pairs, &failed);
        return Err(Error::NoRail { host: host.to_owned(), rail, why });
    }
    Ok(pairs)
}

/// The interface that is to blame, if it is one, and why it cannot be used.
fn why_no_rail(
    filter: &RailFilter,
    left_out: &[LeftOut],
    pairs: &[Pair],
    failed: &[(String, String)],
) -> (Option<String>, String) {
    if let Some((name, error)) = failed.first() {
        let is_only = failed.iter().all(|(other, _)| other == name);
        return (is_only.then(|| name.clone()), error.clone());
    }
    let Some(name) = filter.only_name() else {
        return (None, "the filter leaves out all of them".to_owned());
    };
    let left_out = left_out.iter().find(|port| port.name == name).map(|port| port.reason.to_string());
    let skipped = || pairs.iter().find(|pair| pair.local.name == name)?.skip.as_ref().map(ToString::to_string);
    let why = left_out.or_else(skipped).unwrap_or_else(|| "it is no interface that leads there".to_owned());
    (Some(name.to_owned()), why)
}

fn loopback_port(address: IpAddr) -> Port {
    Port { name: "lo".to_owned(), index: 1, address, prefix_bits: 8, speed_mbit_s: 0 }
}

fn interface_of(port: &Port) -> Option<String> {
    (!port.name.is_empty() && !port.address.is_loopback()).then(|| port.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rails::PortSkip;
    use multirail_proto::topology::Skip;

    #[test]
    fn the_rail_that_is_to_blame() {
        let port = |name: &str, address: &str| Port {
            name: name.to_owned(),
            index: 1,
            address: address.parse().unwrap(),
            prefix_bits: 24,
            speed_mbit_s: 0,
        };
        let left_out = [LeftOut { name: "eth1".to_owned(), address: None, reason: PortSkip::NoCarrier, port: None }];
        let pairs =
            [Pair { local: port("eth2", "10.0.0.1"), remote: port("", "fd00::1"), skip: Some(Skip::DifferentFamily) }];
        let why = |filter: &str, failed: &[(&str, &str)]| {
            let failed: Vec<_> = failed.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect();
            why_no_rail(&filter.parse().unwrap(), &left_out, &pairs, &failed)
        };
        let of = |name: &str, why: &str| (Some(name.to_owned()), why.to_owned());
        assert_eq!(why("eth1", &[]), of("eth1", "no carrier"));
        assert_eq!(why("eth2", &[]), of("eth2", &Skip::DifferentFamily.to_string()));
        assert_eq!(why("eth9", &[]), of("eth9", "it is no interface that leads there"));
        assert_eq!(why("eth*", &[]), (None, "the filter leaves out all of them".to_owned()));
        assert_eq!(why("", &[("eth2", "refused"), ("eth2", "late")]), of("eth2", "refused"));
        assert_eq!(why("", &[("eth2", "refused"), ("eth3", "late")]), (None, "refused".to_owned()));
    }
}
