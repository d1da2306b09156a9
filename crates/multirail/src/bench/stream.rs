//! Messages one way, one behind the other, for some time: what PSockets measures (paper, section
//! 4), and what a bulk transfer sees.

use super::pingpong::Bench;
use super::request::{BENCH, BenchRequest};
use multirail_net::Strategy;
use multirail_net::error::{Error, Result};
use multirail_net::payload::VecSink;
use multirail_net::probe::MAX_MESSAGE_BYTES;
use multirail_net::{Session, request};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The transfer is cut into intervals of this length.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// No transfer lasts longer: the receiver keeps a number for each interval, and tells them in one
/// message.
pub const MAX_STREAM: Duration = Duration::from_secs(600);

/// One transfer.
#[derive(Debug, Clone)]
pub struct Streamed {
    /// Payload bytes that the receiver's application got.
    pub bytes: u64,
    /// From the first byte sent to the receiver's word that it has the last.
    pub elapsed_s: f64,
    /// Bytes that the receiver's application got in each [`INTERVAL`] since its first message. The
    /// last is cut short.
    pub interval_bytes: Vec<u64>,
    /// Connections that were up at the end of each [`INTERVAL`], on all rails.
    pub interval_channels: Vec<u32>,
    /// CPU seconds of both processes.
    pub cpu_s: f64,
}

impl Streamed {
    /// The rate in 10⁶ bit/s.
    pub fn rate_mbit_s(&self) -> f64 {
        8.0 * self.bytes as f64 / 1e6 / self.elapsed_s
    }
}

/// The receiver's word.
#[derive(Debug, Serialize, Deserialize)]
struct Received {
    bytes: u64,
    interval_bytes: Vec<u64>,
}

/// The server's half: receives messages until an empty one.
pub(crate) async fn absorb(session: &mut Session, message_bytes: u64) -> Result<()> {
    if !(1..=MAX_MESSAGE_BYTES).contains(&message_bytes) {
        return Err(Error::Protocol(format!("it streams messages of {message_bytes} bytes")));
    }
    let mut sink = VecSink::new(message_bytes);
    let mut received = Received { bytes: 0, interval_bytes: Vec::new() };
    let mut started = None;
    loop {
        let n = session.recv_into(&mut sink).await?;
        if n == 0 {
            break;
        }
        let since = started.get_or_insert_with(Instant::now).elapsed();
        let interval = (since.as_micros() / INTERVAL.as_micros()) as usize;
        if since > 2 * MAX_STREAM {
            return Err(Error::Protocol("it streams without end".to_owned()));
        }
        received.interval_bytes.resize(received.interval_bytes.len().max(interval + 1), 0);
        received.interval_bytes[interval] += n;
        received.bytes += n;
    }
    request::send(session, &received).await
}

impl Bench {
    /// Sends messages of `message_bytes` one behind the other for `time`.
    ///
    /// # Errors
    ///
    /// Those of the session.
    ///
    /// # Cancel safety
    ///
    /// Not cancel-safe: end the benchmark after dropping the future.
    pub async fn stream(
        &mut self,
        message_bytes: u64,
        time: Duration,
        strategy: Strategy,
        fragment_bytes: u32,
    ) -> Result<Streamed> {
        self.session.set_strategy(strategy, fragment_bytes);
        let cpu = self.both_cpu_s().await?;
        self.buffer.resize(message_bytes as usize, 0);
        request::send_request(&mut self.session, BENCH, &BenchRequest::Absorb { message_bytes }).await?;
        let started = Instant::now();
        let mut interval_channels = Vec::new();
        while started.elapsed() < time.min(MAX_STREAM) {
            self.session.send(&self.buffer).await?;
            while started.elapsed() >= INTERVAL * (interval_channels.len() as u32 + 1) {
                interval_channels.push(self.session.rails().iter().map(|r| r.channels).sum());
            }
        }
        self.session.send(&[]).await?;
        let received: Received = request::receive(&mut self.session).await?;
        let elapsed_s = started.elapsed().as_secs_f64();
        let cpu_s = self.both_cpu_s().await? - cpu;
        let Received { bytes, interval_bytes } = received;
        Ok(Streamed { bytes, elapsed_s, interval_bytes, interval_channels, cpu_s })
    }
}
