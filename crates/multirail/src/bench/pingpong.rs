//! The client's side of the ping-pong: sessions, plain TCP and the ideal fixed split.

use super::echo::cpu_seconds;
use super::request::{BENCH, BenchRequest};
use multirail_net::Config;
use multirail_net::error::{Error, Result};
use multirail_net::probe::LocalEnd;
use multirail_net::request;
use multirail_net::session::RailStatus;
use multirail_net::{Session, Strategy, probe};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Round trips before the counted ones: they open the congestion windows and measure the rails.
const WARM_UP_ROUNDS: u32 = 3;
/// ... unless they take this long: then it is so much data that the windows are open.
const WARM_UP_TIME: Duration = Duration::from_secs(1);
/// One measurement takes about this long, within the bounds of rounds.
const MEASURE_TIME: Duration = Duration::from_millis(250);
const MIN_ROUNDS: u32 = 3;
/// A round trip that takes longer than this is measured once.
const LONG_ROUND: Duration = Duration::from_secs(1);
const MAX_ROUNDS: u32 = 2000;
/// A plain connection that was not used for this long is opened again, since a server closes idle
/// ones.
const REOPEN_AFTER: Duration = Duration::from_secs(20);

/// Round trips of one measurement.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Each round trip, in microseconds.
    pub round_trips_us: Vec<f64>,
    /// Control messages that this side sent a message.
    pub control_messages: f64,
    /// CPU seconds of both processes.
    pub cpu_s: f64,
    /// Payload bytes in both directions.
    pub moved_bytes: u64,
}

impl Measured {
    /// Their mean.
    pub fn mean_us(&self) -> f64 {
        self.round_trips_us.iter().sum::<f64>() / self.round_trips_us.len() as f64
    }
}

/// One client of the benchmark: a session, and plain connections on its rails.
#[derive(Debug)]
pub struct Bench {
    pub(super) session: Session,
    /// One a rail, in the order of the rails.
    plain: Vec<Plain>,
    config: Config,
    pub(super) buffer: Vec<u8>,
}

/// A plain connection on one rail.
#[derive(Debug)]
struct Plain {
    local: LocalEnd,
    remote: SocketAddr,
    /// Blocking.
    stream: TcpStream,
    used_at: Instant,
}

impl Plain {
    async fn open(local: LocalEnd, remote: SocketAddr, config: &Config) -> Result<Self> {
        let stream = probe::connect(Some(&local), remote, config).await?;
        let blocking = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        blocking.map_err(Error::io("setting up a plain connection"))?;
        Ok(Self { local, remote, stream, used_at: Instant::now() })
    }
}

impl Bench {
    /// Opens a plain connection beside each rail of `session`.
    ///
    /// # Errors
    ///
    /// Those of [`probe::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the session.
    pub async fn new(session: Session, config: &Config) -> Result<Self> {
        let mut plain = Vec::new();
        for rail in session.rails() {
            let Some((local, remote)) = rail.addresses else { continue };
            plain.push(Plain::open(LocalEnd { address: local.ip(), interface: None }, remote, config).await?);
        }
        let mut bench = Self { session, plain, config: config.clone(), buffer: Vec::new() };
        // A server ends sessions that make no request, and the plain connections may be measured for
        // longer than it waits.
        bench.both_cpu_s().await?;
        Ok(bench)
    }

    /// The session's rails.
    pub fn rails(&self) -> Vec<RailStatus> {
        self.session.rails()
    }

    /// Closes the session.
    ///
    /// # Errors
    ///
    /// Those of [`Session::close`].
    ///
    /// # Cancel safety
    ///
    /// That of [`Session::close`].
    pub async fn close(self) -> Result<()> {
        self.session.close().await
    }

    /// Round trips of a message over the session with `strategy`.
    ///
    /// # Errors
    ///
    /// Those of the session.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: end the benchmark after dropping the future.
    pub async fn session(&mut self, message_bytes: u64, strategy: Strategy, fragment_bytes: u32) -> Result<Measured> {
        self.session.set_strategy(strategy, fragment_bytes);
        let mut warm_up = WarmUp::default();
        while warm_up.goes_on() {
            warm_up.add(&self.session_rounds(message_bytes, 1, strategy, fragment_bytes).await?);
        }
        let rounds = rounds_for(warm_up.last_us);
        let (cpu, control) = (self.both_cpu_s().await?, self.session.stats().control_messages);
        let round_trips_us = self.session_rounds(message_bytes, rounds, strategy, fragment_bytes).await?;
        let control = self.session.stats().control_messages - control;
        let cpu_s = self.both_cpu_s().await? - cpu;
        Ok(Measured {
            round_trips_us,
            // The request is a message too, with one header.
            control_messages: (control.saturating_sub(1)) as f64 / f64::from(rounds),
            cpu_s,
            moved_bytes: 2 * message_bytes * u64::from(rounds),
        })
    }

    async fn session_rounds(
        &mut self,
        message_bytes: u64,
        rounds: u32,
        strategy: Strategy,
        fragment_bytes: u32,
    ) -> Result<Vec<f64>> {
        let request =
            BenchRequest::Echo { message_bytes, rounds, strategy: strategy.name().to_owned(), fragment_bytes };
        request::send_request(&mut self.session, BENCH, &request).await?;
        self.buffer.resize(message_bytes as usize, 0);
        let mut times = Vec::with_capacity(rounds as usize);
        for _ in 0..rounds {
            let start = Instant::now();
            self.session.send(&self.buffer).await?;
            self.session.recv(&mut self.buffer).await?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    }

    /// Round trips over one plain TCP connection on rail `rail`, with blocking calls and nothing of
    /// ours on the path.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a plain connection fails.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: end the benchmark after dropping the future.
    pub async fn tcp(&mut self, message_bytes: u64, rail: usize) -> Result<Measured> {
        let split: Vec<u64> = (0..self.plain.len()).map(|r| if r == rail { message_bytes } else { 0 }).collect();
        self.fixed(&split).await
    }

    /// Round trips with the message split in fixed parts by known `rates`, a plain connection a
    /// rail: the ideal.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a plain connection fails.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: end the benchmark after dropping the future.
    pub async fn oracle(&mut self, message_bytes: u64, rates: &[f64]) -> Result<Measured> {
        let sum: f64 = rates.iter().sum();
        let mut split: Vec<u64> = rates.iter().map(|r| (message_bytes as f64 * r / sum) as u64).collect();
        let rest = message_bytes - split.iter().sum::<u64>();
        if let Some(first) = split.first_mut() {
            *first += rest;
        }
        self.fixed(&split).await
    }

    async fn fixed(&mut self, split: &[u64]) -> Result<Measured> {
        let failed = Error::io("a plain connection");
        for (plain, _) in self.plain.iter_mut().zip(split).filter(|(_, bytes)| **bytes > 0) {
            if plain.used_at.elapsed() > REOPEN_AFTER {
                *plain = Plain::open(plain.local.clone(), plain.remote, &self.config).await?;
            }
        }
        let mut warm_up = WarmUp::default();
        while warm_up.goes_on() {
            warm_up.add(&self.fixed_rounds(split, 1).map_err(&failed)?);
        }
        let rounds = rounds_for(warm_up.last_us);
        let cpu = self.both_cpu_s().await?;
        let round_trips_us = self.fixed_rounds(split, rounds).map_err(&failed)?;
        let used = self.plain.iter_mut().zip(split).filter(|(_, bytes)| **bytes > 0);
        used.for_each(|(plain, _)| plain.used_at = Instant::now());
        let cpu_s = self.both_cpu_s().await? - cpu;
        let moved_bytes = 2 * split.iter().sum::<u64>() * u64::from(rounds);
        Ok(Measured { round_trips_us, control_messages: 0.0, cpu_s, moved_bytes })
    }

    /// All parts at once, each on a thread of its own if there are several.
    fn fixed_rounds(&mut self, split: &[u64], rounds: u32) -> std::io::Result<Vec<f64>> {
        let mut parts: Vec<(&TcpStream, Vec<u8>)> = Vec::new();
        for (plain, bytes) in self.plain.iter().zip(split).filter(|(_, b)| **b > 0) {
            let mut stream = &plain.stream;
            let mut hello = bytes.to_le_bytes().to_vec();
            hello.extend(u64::from(rounds).to_le_bytes());
            stream.write_all(&hello)?;
            parts.push((stream, vec![0; *bytes as usize]));
        }
        let turn = |stream: &mut &TcpStream, buffer: &mut Vec<u8>| {
            stream.write_all(buffer).and_then(|()| stream.read_exact(buffer))
        };
        let mut times = Vec::with_capacity(rounds as usize);
        if let [(stream, buffer)] = &mut parts[..] {
            for _ in 0..rounds {
                let start = Instant::now();
                turn(stream, buffer)?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            return Ok(times);
        }
        // Every part makes its round trips independently. Since the split is fixed, the slowest
        // part's time is the message's, and no part waits for the others between rounds.
        std::thread::scope(|scope| {
            let running: Vec<_> = parts
                .iter_mut()
                .map(|(stream, buffer)| {
                    scope.spawn(move || {
                        (0..rounds)
                            .map(|_| {
                                let start = Instant::now();
                                turn(stream, buffer)?;
                                Ok(start.elapsed().as_secs_f64() * 1e6)
                            })
                            .collect::<std::io::Result<Vec<f64>>>()
                    })
                })
                .collect();
            for thread in running {
                let part = thread.join().map_err(|_| std::io::Error::other("a thread of the benchmark failed"))??;
                times.resize(part.len(), 0.0);
                for (time, own) in times.iter_mut().zip(part) {
                    *time = f64::max(*time, own);
                }
            }
            Ok(times)
        })
    }

    pub(super) async fn both_cpu_s(&mut self) -> Result<f64> {
        request::send_request(&mut self.session, BENCH, &BenchRequest::CpuTime).await?;
        let mut theirs = [0; 8];
        self.session.recv(&mut theirs).await?;
        Ok(f64::from_le_bytes(theirs) + cpu_seconds())
    }
}

/// Sends enough over every rail in both directions to measure its rate.
///
/// # Errors
///
/// Those of the session.
///
/// # Cancel safety
///
/// Not cancel-safe: close the session after dropping the future.
pub async fn measure_rails(session: &mut Session) -> Result<()> {
    const MESSAGE_BYTES: u64 = 256 << 10;
    const ROUNDS: u32 = 4;
    // Equal parts, so that a slow rail is measured like a fast one; a few, so that a very slow one
    // does not take minutes.
    let strategy = Strategy::EqualPartition;
    let fragment_bytes = 1 << 10;
    session.set_strategy(strategy, fragment_bytes);
    let request = BenchRequest::Echo {
        message_bytes: MESSAGE_BYTES,
        rounds: ROUNDS,
        strategy: strategy.name().to_owned(),
        fragment_bytes,
    };
    request::send_request(session, BENCH, &request).await?;
    let mut buffer = vec![0; MESSAGE_BYTES as usize];
    for _ in 0..ROUNDS {
        session.send(&buffer).await?;
        session.recv(&mut buffer).await?;
    }
    Ok(())
}

/// Round trips that are not counted.
#[derive(Default)]
struct WarmUp {
    rounds: u32,
    total_us: f64,
    last_us: f64,
}

impl WarmUp {
    fn goes_on(&self) -> bool {
        self.rounds < WARM_UP_ROUNDS && self.total_us < WARM_UP_TIME.as_secs_f64() * 1e6
    }

    fn add(&mut self, round_trips_us: &[f64]) {
        self.rounds += round_trips_us.len() as u32;
        self.total_us += round_trips_us.iter().sum::<f64>();
        self.last_us = round_trips_us.last().copied().unwrap_or(0.0);
    }
}

fn rounds_for(round_trip_us: f64) -> u32 {
    let rounds = MEASURE_TIME.as_secs_f64() * 1e6 / round_trip_us.max(1.0);
    let min = if round_trip_us > LONG_ROUND.as_secs_f64() * 1e6 { 1 } else { MIN_ROUNDS };
    (rounds as u32).clamp(min, MAX_ROUNDS)
}
