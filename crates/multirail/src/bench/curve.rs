//! What an edge can do over message sizes: the time a message takes one way, and the bytes that pass in a second.
//!
//! Measured the same way for a [`Connection`] and for a plain TCP connection, so that the two can be compared.

use super::MAX_MESSAGE_BYTES;
use crate::error::{Error, Result};
use crate::transport::connect::{Arrival, Dial, connect};
use crate::transport::{Bell, Connection, DEFAULT_LIMIT_BYTES, HEAD_BYTES, Message, Pool, Transport, next, wait};
use crate::{Config, Token, service, session};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sizes that show a curve's shape, in steps of four.
pub const SIZES: [u64; 13] =
    [1, 4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// How long one point takes, more or less; longer where a single message does.
pub const EFFORT: Duration = Duration::from_millis(100);
/// Round trips that do not count.
const WARM_UP_ROUNDS: u32 = 3;
const MAX_ROUNDS: u32 = 5000;
/// The most messages of one stream.
const MAX_STREAM: u64 = 1 << 20;
/// A plain connection's number of rounds with this bit: do not send back, say one byte after the last.
pub(super) const TAKE: u64 = 1 << 63;

/// In a message's head: what the peer shall do with it.
const SEND_BACK: u8 = 0;
const KEEP: u8 = 1;
const ANSWER: u8 = 2;

/// What was measured with messages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Length of the messages.
    pub message_bytes: u64,
    /// Half a round trip of one, the median.
    pub one_way_us: f64,
    /// Payload, when messages go one way, one behind the other, until the receiver's word that it has the last.
    pub bandwidth_bytes_s: f64,
}

/// What can be measured.
pub trait Line {
    /// Sends messages there and back, one after the other; each round trip in microseconds.
    fn turns(&mut self, message_bytes: u64, rounds: u32) -> Result<Vec<f64>>;
    /// Sends messages one way, and returns when the receiver has them all.
    fn stream(&mut self, message_bytes: u64, count: u64) -> Result<()>;
}

/// A connection to a server, for measuring what carries it.
#[derive(Debug)]
pub struct EdgeLine {
    connection: Box<dyn Connection>,
    bell: Arc<Bell>,
    pool: Arc<Pool>,
}

/// One plain TCP connection, blocking calls, nothing of ours on the path.
#[derive(Debug)]
pub struct PlainLine {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// One point.
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
    // Ever longer streams, until one is long enough.
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
    /// To a server.
    pub fn dial(host: &str, config: &Config, transport: Option<Transport>) -> Result<Self> {
        let bell = Bell::new().map_err(Error::io("making a bell"))?;
        let edge = service::Edge::Measure.encode();
        let dial = Dial { host, config, edge: &edge, transport, bell: &bell, limit_bytes: DEFAULT_LIMIT_BYTES };
        let connection = connect(dial)?;
        Ok(Self { connection, bell, pool: Arc::default() })
    }

    /// What carries it.
    pub fn transport(&self) -> Transport {
        self.connection.transport()
    }

    fn send(&mut self, message_bytes: u64, what: u8) -> Result<()> {
        let mut head = [0; HEAD_BYTES];
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
            let back = pull(&mut self.connection, &self.bell)?;
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
            all_sent(&mut self.connection, &self.bell)?;
        }
        pull(&mut self.connection, &self.bell).map(drop)
    }
}

impl PlainLine {
    /// To a server.
    pub fn dial(host: &str, token: Option<&Token>) -> Result<Self> {
        let unreachable = |source| Error::Unreachable { host: host.to_owned(), source };
        let mut addresses = host.to_socket_addrs().map_err(unreachable)?;
        let address = addresses.next().ok_or_else(|| unreachable(std::io::ErrorKind::NotFound.into()))?;
        let stream = service::block_on(async { session::connect_plain(None, address, token).await })?;
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
    let bell = Bell::new().map_err(Error::io("making a bell"))?;
    let mut connection = arrival.accept(&bell, DEFAULT_LIMIT_BYTES)?;
    loop {
        let mut message = pull(&mut connection, &bell)?;
        match message.head[0] {
            KEEP => continue,
            ANSWER => message.body.clear(),
            _ => {}
        }
        connection.push(message);
        connection.flush()?;
    }
}

fn pull(connection: &mut Box<dyn Connection>, bell: &Arc<Bell>) -> Result<Message> {
    next(bell, connection, None)?.ok_or(Error::Closed)
}

fn all_sent(connection: &mut Box<dyn Connection>, bell: &Arc<Bell>) -> Result<()> {
    loop {
        let seen = bell.seen();
        if connection.flush()? {
            return Ok(());
        }
        wait(bell, seen, std::iter::once(&mut *connection), None)?;
    }
}

fn check(message_bytes: u64, limit_bytes: u64) -> Result<()> {
    if message_bytes > limit_bytes {
        return Err(Error::MessageTooLarge { message_bytes, buffer_bytes: limit_bytes });
    }
    Ok(())
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod tests;
