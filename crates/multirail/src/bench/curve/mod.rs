//! The performance of an edge over message sizes: the one-way time of a message, and the bandwidth.
//!
//! A [`Connection`] and a plain TCP connection are measured in the same way, for comparison.

use super::request::BENCH_EDGE;
use multirail_net::error::{Error, Result};
use multirail_net::probe::{self, MAX_MESSAGE_BYTES, TAKE};
use multirail_net::{Config, runtime};
use multirail_pipeline::edge::connect::{Arrival, Dial, connect};
use multirail_pipeline::edge::{
    Connection, DEFAULT_LIMIT_BYTES, HEADER_BYTES, Message, Notifier, Pool, Transport, next, wait,
};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sizes that show a curve's shape, in steps of four.
pub const SIZES: [u64; 13] =
    [1, 4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Approximate duration of the measurement of one point. It is longer if a single message is.
pub const EFFORT: Duration = Duration::from_millis(100);
/// Round trips that are not counted.
const WARM_UP_ROUNDS: u32 = 3;
const MAX_ROUNDS: u32 = 5000;
/// Most messages of one stream.
const MAX_STREAM: u64 = 1 << 20;

/// The first byte of a header: what the peer does with the message.
const SEND_BACK: u8 = 0;
const KEEP: u8 = 1;
const ANSWER: u8 = 2;

/// A measurement with messages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size of the messages.
    pub message_bytes: u64,
    /// Half of the median round trip in microseconds.
    pub one_way_us: f64,
    /// The payload bandwidth of messages in one direction, up to the receiver's confirmation of the
    /// last.
    pub bandwidth_bytes_s: f64,
}

/// A connection that can be measured.
pub trait Line {
    /// Sends messages there and back, one after the other. Returns each round trip in microseconds.
    fn turns(&mut self, message_bytes: u64, rounds: u32) -> Result<Vec<f64>>;
    /// Sends messages in one direction. Returns when the receiver has all of them.
    fn stream(&mut self, message_bytes: u64, count: u64) -> Result<()>;
}

/// An edge to a server.
#[derive(Debug)]
pub struct EdgeLine {
    connection: Box<dyn Connection>,
    notifier: Arc<Notifier>,
    pool: Arc<Pool>,
}

/// A plain TCP connection with blocking calls, without code of multirail on the path.
#[derive(Debug)]
pub struct PlainLine {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Measures one point.
pub fn point(line: &mut dyn Line, message_bytes: u64, effort: Duration) -> Result<Point> {
    let warm_up = line.turns(message_bytes, 1)?[0];
    let effort_us = effort.as_secs_f64() * 1e6 / 2.0;
    let mut round_trips_us = vec![warm_up];
    if warm_up < effort_us {
        let last = line.turns(message_bytes, WARM_UP_ROUNDS)?.pop().unwrap_or(warm_up);
        let rounds = (effort_us / last.max(1.0)) as u32;
        round_trips_us = line.turns(message_bytes, rounds.clamp(1, MAX_ROUNDS))?;
    }
    round_trips_us.sort_by(f64::total_cmp);
    let one_way_us = round_trips_us[round_trips_us.len() / 2] / 2.0;
    // Longer streams each time, until one is long enough.
    let mut count = ((effort_us / 8.0 / one_way_us) as u64).clamp(1, MAX_STREAM);
    loop {
        let start = Instant::now();
        line.stream(message_bytes, count)?;
        let took_s = start.elapsed().as_secs_f64();
        if took_s * 1e6 >= effort_us || count >= MAX_STREAM {
            let bandwidth_bytes_s = (message_bytes * count) as f64 / took_s;
            return Ok(Point { message_bytes, one_way_us, bandwidth_bytes_s });
        }
        let enough = count as f64 * 1.2 * effort_us / (took_s * 1e6).max(1.0);
        count = (enough as u64).clamp(count + 1, count * 16).min(MAX_STREAM);
    }
}

impl EdgeLine {
    /// Dials a server.
    pub fn dial(host: &str, config: &Config, transport: Option<Transport>) -> Result<Self> {
        let notifier = Notifier::new().map_err(Error::io("making a notifier"))?;
        let dial = Dial {
            host,
            config,
            protocol: BENCH_EDGE,
            edge: &[],
            transport,
            notifier: &notifier,
            limit_bytes: DEFAULT_LIMIT_BYTES,
        };
        let connection = connect(dial)?;
        Ok(Self { connection, notifier, pool: Arc::default() })
    }

    /// What carries the edge.
    pub fn transport(&self) -> Transport {
        self.connection.transport()
    }

    fn send(&mut self, message_bytes: u64, what: u8) -> Result<()> {
        let mut head = [0; HEADER_BYTES];
        head[0] = what;
        self.connection.push(Message { head, body: self.pool.sized(message_bytes as usize) });
        self.connection.flush().map(drop)
    }
}

impl Line for EdgeLine {
    fn turns(&mut self, message_bytes: u64, rounds: u32) -> Result<Vec<f64>> {
        check(message_bytes, DEFAULT_LIMIT_BYTES)?;
        let mut times = Vec::with_capacity(rounds as usize);
        for _ in 0..rounds {
            let start = Instant::now();
            self.send(message_bytes, SEND_BACK)?;
            let back = pull(&mut self.connection, &self.notifier)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
            if back.body.len() as u64 != message_bytes {
                return Err(Error::Protocol(format!("{} bytes came back of {message_bytes}", back.body.len())));
            }
        }
        Ok(times)
    }

    fn stream(&mut self, message_bytes: u64, count: u64) -> Result<()> {
        check(message_bytes, DEFAULT_LIMIT_BYTES)?;
        for sent in 1..=count {
            self.send(message_bytes, if sent == count { ANSWER } else { KEEP })?;
            all_sent(&mut self.connection, &self.notifier)?;
        }
        pull(&mut self.connection, &self.notifier).map(drop)
    }
}

impl PlainLine {
    /// Dials a server.
    pub fn dial(host: &str, config: &Config) -> Result<Self> {
        let unreachable = |cause| Error::Unreachable { host: host.to_owned(), cause };
        let mut addresses = host.to_socket_addrs().map_err(unreachable)?;
        let address = addresses.next().ok_or_else(|| unreachable(std::io::ErrorKind::NotFound.into()))?;
        let stream = runtime::block_on(async { probe::connect(None, address, config).await })?;
        let set_up = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        set_up.map_err(Error::io("setting up a plain connection"))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    fn begin(&mut self, message_bytes: u64, rounds: u64) -> Result<()> {
        check(message_bytes, MAX_MESSAGE_BYTES)?;
        self.buffer.resize(message_bytes as usize, 0);
        let mut hello = message_bytes.to_le_bytes().to_vec();
        hello.extend(rounds.to_le_bytes());
        self.stream.write_all(&hello).map_err(Error::io("a plain connection"))
    }
}

impl Line for PlainLine {
    fn turns(&mut self, message_bytes: u64, rounds: u32) -> Result<Vec<f64>> {
        self.begin(message_bytes, rounds.into())?;
        let turn = |_| {
            let start = Instant::now();
            self.stream.write_all(&self.buffer)?;
            self.stream.read_exact(&mut self.buffer)?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        };
        (0..rounds).map(turn).collect::<std::io::Result<_>>().map_err(Error::io("a plain connection"))
    }

    fn stream(&mut self, message_bytes: u64, count: u64) -> Result<()> {
        self.begin(message_bytes, count | TAKE)?;
        let sent = (0..count).try_for_each(|_| self.stream.write_all(&self.buffer));
        sent.and_then(|()| self.stream.read_exact(&mut [0])).map_err(Error::io("a plain connection"))
    }
}

/// The server's half.
pub(crate) fn measure_edge(arrival: Arrival) -> Result<()> {
    let notifier = Notifier::new().map_err(Error::io("making a notifier"))?;
    let mut connection = arrival.accept(&notifier, DEFAULT_LIMIT_BYTES, Config::new().give_up_after)?;
    loop {
        let mut message = pull(&mut connection, &notifier)?;
        match message.head[0] {
            KEEP => continue,
            ANSWER => message.body.clear(),
            _ => {}
        }
        connection.push(message);
        connection.flush()?;
    }
}

fn pull(connection: &mut Box<dyn Connection>, notifier: &Arc<Notifier>) -> Result<Message> {
    next(notifier, connection, None)?.ok_or(Error::Closed)
}

fn all_sent(connection: &mut Box<dyn Connection>, notifier: &Arc<Notifier>) -> Result<()> {
    loop {
        let seen = notifier.seen();
        if connection.flush()? {
            return Ok(());
        }
        wait(notifier, seen, std::iter::once(&mut *connection), None)?;
    }
}

fn check(message_bytes: u64, limit_bytes: u64) -> Result<()> {
    if message_bytes > limit_bytes {
        return Err(Error::MessageTooLarge { message_bytes, buffer_bytes: limit_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
