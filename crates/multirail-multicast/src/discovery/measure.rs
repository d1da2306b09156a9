//! Finds clusters by measuring: hosts measure to each other on request, and [`grouping`] evaluates
//! the result.
//!
//! A measurement is a plain TCP connection to the other host's server, which echoes: the round
//! trips of the handshake and of one byte, and, only if these do not decide, of more bytes for the rate.
//! Up to [`MAX_ALL_PAIRS`] hosts measure to all others. Beyond that only a few hosts that are far from each other do, the
//! landmarks: one in each cluster and one more are enough.

use crate::discovery::bounds::{Bounds, may_dial};
use crate::discovery::hosts::grouping::{self, Decided, Edge};
use crate::request::{MULTICAST, MeasureRequest, MulticastRequest};
use futures_util::StreamExt;
use multirail_net::Session;
use multirail_net::error::{Error, Result};
use multirail_net::probe;
use multirail_net::request;
use multirail_net::session::Config;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most hosts for which all pairs are measured.
pub const MAX_ALL_PAIRS: usize = 32;
/// The most landmarks. A group has fewer clusters, or the farthest hosts are taken.
const MAX_LANDMARKS: usize = 48;
/// The most hosts in one request, so that it fits one message with the longest names.
const MAX_TARGETS: usize = 128;
/// The round trips that one host measures at once: few enough not to delay each other.
const AT_ONCE: usize = 8;
/// The sessions that are opened at once to ask for measurements.
const ASKED_AT_ONCE: usize = MAX_ALL_PAIRS;
/// The time limit of one measurement.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The length of the first message for a rate. [`LONG_PROBE_BYTES`] follow unless it took longer
/// than [`LONG_PROBE`].
const SHORT_PROBE_BYTES: u64 = 64 << 10;
const LONG_PROBE_BYTES: u64 = 512 << 10;
const LONG_PROBE: Duration = Duration::from_millis(5);

/// The result for each host; `None` if it did not answer.
type Answers = Vec<Option<Measured>>;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Measured {
    rtt_us: f64,
    rate_bytes_s: Option<f64>,
}

/// The result. The root is host 0; the others follow in the given order.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Discovered {
    /// The cluster of each host, numbered in the order of the first host of each.
    pub clusters: Vec<u32>,
    /// What told the clusters apart.
    pub decided: Decided,
    /// All measurements.
    pub edges: Vec<Edge>,
    /// Hosts that the root could not measure to, by number, and why. Each is a cluster of its own
    /// unless another host reaches it.
    pub unreachable: Vec<(u32, String)>,
}

/// Measures between this host and `hosts` (`name:port`), all of which run a server, and finds their
/// clusters.
///
/// This function does not fail: hosts that cannot be reached are in the result.
///
/// # Cancel safety
///
/// Cancel-safe: dropping the future ends the measurements of this host. Other hosts finish theirs.
pub async fn discover(hosts: &[String], config: &Config) -> Discovered {
    let mut survey = Survey { hosts, config, edges: Vec::new(), places: HashMap::new(), unreachable: Vec::new() };
    survey.run(false).await;
    let (clusters, decided) = grouping::clusters_from(hosts.len() + 1, &survey.edges);
    let (clusters, decided) = if decided == Decided::RoundTrips {
        (clusters, decided)
    } else {
        survey.run(true).await;
        grouping::clusters_from(hosts.len() + 1, &survey.edges)
    };
    Discovered { clusters, decided, edges: survey.edges, unreachable: survey.unreachable }
}

struct Survey<'a> {
    hosts: &'a [String],
    config: &'a Config,
    edges: Vec<Edge>,
    /// The index in `edges` of a pair, the lower number first.
    places: HashMap<(u32, u32), usize>,
    unreachable: Vec<(u32, String)>,
}

impl Survey<'_> {
    /// Measures round trips, or rates in addition.
    async fn run(&mut self, rate: bool) {
        let all: Vec<u32> = (1..=self.hosts.len() as u32).filter(|h| !self.is_unreachable(*h)).collect();
        let told = measure(&self.names(&all), rate, self.config, None).await;
        self.unreachable
            .extend(all.iter().zip(&told).filter_map(|(host, told)| Some((*host, told.as_ref().err()?.to_string()))));
        self.add(0, &all, told.iter().map(|t| t.as_ref().ok().copied()));
        let reached: Vec<u32> = all.into_iter().filter(|h| !self.is_unreachable(*h)).collect();
        if self.hosts.len() < MAX_ALL_PAIRS {
            self.all_pairs(&reached, rate).await;
        } else {
            self.landmarks(&reached, rate).await;
        }
    }

    /// Every host measures to half of the others, beginning behind itself, so that hosts begin with
    /// different targets.
    async fn all_pairs(&mut self, reached: &[u32], rate: bool) {
        let count = reached.len();
        let turns = (0..count).map(|at| {
            let behind = (1..=count / 2).map(|step| (at + step) % count);
            // With an even number, two hosts would measure the pair on opposite sides.
            let once = move |other: &usize| count % 2 == 1 || (other + count - at) % count != count / 2 || at < *other;
            (reached[at], behind.filter(once).map(|other| reached[other]).collect::<Vec<u32>>())
        });
        let turns: Vec<_> = turns.filter(|(_, targets)| !targets.is_empty()).collect();
        let this = &*self;
        let told: Vec<_> = futures_util::stream::iter(turns)
            .map(|(host, targets)| async move {
                let answers = this.ask(host, &targets, rate).await;
                (host, targets, answers)
            })
            .buffer_unordered(ASKED_AT_ONCE)
            .collect()
            .await;
        for (host, targets, answers) in told {
            self.add(host, &targets, answers.into_iter());
        }
    }

    /// After the root, the farthest host measures, until no host is far.
    async fn landmarks(&mut self, reached: &[u32], rate: bool) {
        let mut done = vec![0];
        while done.len() < MAX_LANDMARKS {
            let Some(next) = grouping::next_landmark(self.hosts.len() + 1, &self.edges, &done, rate) else { return };
            let targets: Vec<u32> = reached.iter().copied().filter(|h| !done.contains(h) && *h != next).collect();
            let answers = self.ask(next, &targets, rate).await;
            self.add(next, &targets, answers.into_iter());
            done.push(next);
        }
    }

    /// Asks a host to measure. A host that does not answer does not stop the others, which measure
    /// to it.
    async fn ask(&self, host: u32, targets: &[u32], rate: bool) -> Answers {
        let ask = async {
            let mut session = Session::connect(&self.hosts[host as usize - 1], self.config.clone()).await?;
            let mut answers: Answers = Vec::with_capacity(targets.len());
            for part in targets.chunks(MAX_TARGETS) {
                request::send_request(
                    &mut session,
                    MULTICAST,
                    &MulticastRequest::Measure(MeasureRequest { hosts: self.names(part), rate }),
                )
                .await?;
                let told: Answers = request::receive(&mut session).await?;
                if told.len() != part.len() {
                    return Err(Error::Protocol(format!("{} answers for {} hosts", told.len(), part.len())));
                }
                answers.extend(told);
            }
            session.close().await?;
            Ok(answers)
        };
        ask.await.unwrap_or_else(|error| {
            tracing::warn!(host = self.hosts[host as usize - 1], %error, "a host did not measure to others");
            Vec::new()
        })
    }

    fn add(&mut self, from: u32, targets: &[u32], answers: impl Iterator<Item = Option<Measured>>) {
        let sane = |m: &Measured| m.rtt_us.is_finite() && m.rtt_us >= 0.0;
        for (to, measured) in targets.iter().zip(answers).filter_map(|(to, answer)| Some((*to, answer.filter(sane)?))) {
            let new = Edge { from, to, rtt_us: measured.rtt_us, rate_bytes_s: measured.rate_bytes_s };
            match self.places.entry((from.min(to), from.max(to))) {
                Occupied(place) => {
                    // Rates fill queues. The round trip from before is that of the path.
                    let edge = &mut self.edges[*place.get()];
                    edge.rtt_us = edge.rtt_us.min(new.rtt_us);
                    edge.rate_bytes_s = new.rate_bytes_s.or(edge.rate_bytes_s);
                }
                Vacant(place) => {
                    place.insert(self.edges.len());
                    self.edges.push(new);
                }
            }
        }
    }

    fn names(&self, hosts: &[u32]) -> Vec<String> {
        hosts.iter().map(|host| self.hosts[*host as usize - 1].clone()).collect()
    }

    fn is_unreachable(&self, host: u32) -> bool {
        self.unreachable.iter().any(|(h, _)| *h == host)
    }
}

/// The server's half: measures from this host for a client at `client`.
pub(crate) async fn serve_measure(
    session: &mut Session,
    request: MeasureRequest,
    config: &Config,
    client: IpAddr,
    bounds: &Bounds,
) -> Result<()> {
    if request.hosts.len() > MAX_TARGETS {
        return Err(Error::Protocol(format!("a request for measurements to {} hosts", request.hosts.len())));
    }
    let _permit = bounds.begin().await;
    let told = measure(&request.hosts, request.rate, config, Some((client, bounds))).await;
    let answers: Answers = told.into_iter().map(Result::ok).collect();
    request::send(session, &answers).await
}

/// The round trips to `hosts`, in microseconds; `None` where a host does not answer.
///
/// The kernels of both hosts make each round trip; [`probe::round_trip`] says how.
pub(crate) async fn round_trips(hosts: &[String]) -> Vec<Option<u32>> {
    let probes = hosts.iter().map(|host| async move {
        let address = tokio::net::lookup_host(host).await.ok()?.next()?;
        let rtt = probe::round_trip(address).await.ok()?;
        Some(rtt.as_micros().min(u32::MAX.into()) as u32)
    });
    futures_util::future::join_all(probes).await
}

/// Measures to each of `hosts`: round trips to several at once, rates one after the other, so that
/// they do not share links. `asked` has the client that wants it, and this server's limits.
async fn measure(
    hosts: &[String],
    rate: bool,
    config: &Config,
    asked: Option<(IpAddr, &Bounds)>,
) -> Vec<Result<Measured>> {
    let probes = hosts.iter().map(|host| async move {
        if let Some((_, bounds)) = asked {
            bounds.dial().await;
        }
        let client = asked.map(|(client, _)| client);
        match tokio::time::timeout(PROBE_TIMEOUT, probe(host, rate, config, client)).await {
            Ok(told) => told,
            Err(_) => Err(Error::Unreachable { host: host.clone(), cause: std::io::ErrorKind::TimedOut.into() }),
        }
    });
    // Collected, since the compiler cannot tell that an iterator over borrowed hosts is `Send`.
    let probes: Vec<_> = probes.collect();
    // All begin in order and none is lost: the answers have the order of the hosts.
    futures_util::stream::iter(probes).buffered(if rate { 1 } else { AT_ONCE }).collect().await
}

async fn probe(host: &str, rate: bool, config: &Config, client: Option<IpAddr>) -> Result<Measured> {
    let unreachable = |cause| Error::Unreachable { host: host.to_owned(), cause };
    let address = tokio::net::lookup_host(host).await.map_err(unreachable)?.next();
    let address = address.ok_or_else(|| unreachable(std::io::ErrorKind::NotFound.into()))?;
    if client.is_some_and(|client| !may_dial(client, address.ip())) {
        return Err(unreachable(std::io::ErrorKind::PermissionDenied.into()));
    }
    let stream = probe::connect(None, address, config).await?;
    let stream = TcpStream::from_std(stream).and_then(|s| s.set_nodelay(true).map(|()| s));
    let mut stream = stream.map_err(Error::io("setting up a plain connection"))?;
    let rtt = echo(&mut stream, 1).await.map_err(unreachable)?;
    // Busy programs add to the round trips that they see. The kernel has also seen those of the handshake.
    let rtt = probe::min_round_trip(&stream).map_or(rtt, |least| least.min(rtt));
    let mut measured = Measured { rtt_us: rtt.as_secs_f64() * 1e6, rate_bytes_s: None };
    if rate {
        let mut message_bytes = SHORT_PROBE_BYTES;
        let mut took = echo(&mut stream, message_bytes).await.map_err(unreachable)?;
        if took < LONG_PROBE {
            message_bytes = LONG_PROBE_BYTES;
            took = echo(&mut stream, message_bytes).await.map_err(unreachable)?;
        }
        // There and back, one after the other.
        let moving_s = took.saturating_sub(rtt).as_secs_f64().max(1e-6);
        measured.rate_bytes_s = Some(2.0 * message_bytes as f64 / moving_s);
    }
    Ok(measured)
}

/// The round trip of a message on a plain connection; the peer answers as [`probe`] says.
async fn echo(stream: &mut TcpStream, message_bytes: u64) -> std::io::Result<Duration> {
    let mut buffer = vec![0; message_bytes as usize];
    stream.write_all(&[message_bytes.to_le_bytes(), 1u64.to_le_bytes()].concat()).await?;
    let start = Instant::now();
    stream.write_all(&buffer).await?;
    stream.read_exact(&mut buffer).await?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::MulticastHandler;
    use multirail_net::Token;
    use multirail_net::probe::{PROBE, ProbeHandler};
    use multirail_net::router::Router;
    use multirail_net::session::{ListenConfig, Listener};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// A server with a token on loopback, for as long as the test's runtime lives.
    async fn server(config: &Config) -> String {
        let listen = ListenConfig::new(([127, 0, 0, 1], 0), config.clone());
        let handler = MulticastHandler::new(&std::env::temp_dir(), config.clone(), None);
        let router =
            Router::new().register(PROBE, Arc::new(ProbeHandler::default())).register(MULTICAST, Arc::new(handler));
        let listener = Listener::bind(listen).await.unwrap();
        let address = listener.address().to_string();
        tokio::spawn(router.serve(listener));
        address
    }

    async fn measured(hosts: usize) -> (Discovered, BTreeSet<(u32, u32)>) {
        let config = Config::new().token(Token::new(b"a token of the test"));
        let mut addresses = Vec::new();
        for _ in 0..hosts {
            addresses.push(server(&config).await);
        }
        // The listener is dropped, so its port is closed.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        addresses.push(gone.to_string());
        let found = discover(&addresses, &config).await;
        let pairs: Vec<_> = found.edges.iter().map(|e| (e.from.min(e.to), e.from.max(e.to))).collect();
        let distinct: BTreeSet<_> = pairs.iter().copied().collect();
        assert_eq!(distinct.len(), pairs.len(), "no pair is measured twice");
        assert_eq!(found.unreachable.iter().map(|(h, _)| *h).collect::<Vec<_>>(), [hosts as u32 + 1]);
        assert!(found.unreachable[0].1.contains("cannot reach"), "{:?}", found.unreachable);
        assert!(found.edges.iter().all(|e| e.rtt_us > 0.0));
        let rated = hosts == 0 || found.edges.iter().any(|e| e.rate_bytes_s.is_some_and(|r| r > 0.0));
        assert!(rated || found.decided == Decided::RoundTrips);
        assert_eq!(found.clusters.len(), hosts + 2);
        assert!((0..=hosts).all(|h| found.clusters[h] != found.clusters[hosts + 1]), "an absent host is alone");
        (found, distinct)
    }

    #[tokio::test]
    async fn all_pairs_are_measured_once() {
        for hosts in [0, 1, 2, 4, 5] {
            let (_, pairs) = measured(hosts).await;
            let expected: BTreeSet<_> =
                (0..=hosts as u32).flat_map(|a| (a + 1..=hosts as u32).map(move |b| (a, b))).collect();
            assert_eq!(pairs, expected, "{hosts} hosts");
        }
    }

    #[tokio::test]
    async fn many_hosts_are_measured_from_landmarks() {
        let hosts = MAX_ALL_PAIRS;
        let (found, pairs) = measured(hosts).await;
        let measuring: BTreeSet<_> = found.edges.iter().map(|e| e.from).collect();
        assert!(measuring.len() >= 3, "{measuring:?}");
        assert!((1..=hosts as u32).all(|h| pairs.contains(&(0, h))), "the root measures to all");
    }

    #[tokio::test]
    async fn a_request_for_too_many_hosts_is_refused() {
        let config = Config::new().token(Token::new(b"a token of the test"));
        let address = server(&config).await;
        for (count, accepted) in [(MAX_TARGETS, true), (MAX_TARGETS + 1, false)] {
            let mut session = Session::connect(&address, config.clone()).await.unwrap();
            let request = MeasureRequest { hosts: vec![String::new(); count], rate: false };
            request::send_request(&mut session, MULTICAST, &MulticastRequest::Measure(request)).await.unwrap();
            let answers: Result<Answers> = request::receive(&mut session).await;
            assert_eq!(answers.is_ok_and(|a| a.len() == count && a.iter().all(Option::is_none)), accepted, "{count}");
        }
    }
}
