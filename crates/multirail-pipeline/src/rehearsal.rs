//! A chain of filters that compute nothing, on the hosts of a real pipeline: it measures what
//! chunks of each size cost there.
//!
//! A client in this process asks the copies of a source on the first host for chunks. The chunks go
//! through a filter on each further host to a sink in this process.

use crate::coordinator::RunningGroup;
use crate::error::PipelineError;
use crate::filters::{Filters, MAX_CHUNKS, PASS_KIND, Request, SOURCE_KIND};
use crate::graph::{Group, StreamOptions};
use crate::runtime::{Failure, Filter, Io};
use multirail_net::Config;
use multirail_net::sync::lock;
use multirail_proto::pipeline::chunk;
use serde_json::Value;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Fewest and most chunks that are sent alone to measure a latency.
const ALONE: std::ops::RangeInclusive<usize> = 10..=200;
/// Longest time until the chunks of a request have arrived.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running rehearsal chain. Dropping it ends the chain.
#[derive(Debug)]
pub struct Rehearsal {
    running: RunningGroup,
    unit: u32,
    copies: u64,
    hops: u32,
    ask: Option<Sender<Request>>,
    expect: Sender<u64>,
    answered: Receiver<Instant>,
}

impl Rehearsal {
    /// Starts a chain with `copies` copies on each of `hosts` (name and address), joined by streams
    /// with these options. It blocks as [`Group::start`] does.
    ///
    /// # Errors
    ///
    /// As for [`Group::start`].
    pub fn start(
        config: &Config,
        hosts: &[(String, String)],
        copies: usize,
        options: StreamOptions,
    ) -> Result<Self, PipelineError> {
        let mut group = Group::new(config.clone());
        let (ask, asked) = channel::<Request>();
        let (expect, expected) = channel::<u64>();
        let (tell, answered) = channel();
        let asked = Arc::new(Mutex::new(asked));
        group.filter("client", move |_| client(asked.clone()));
        let mut before = "client".to_owned();
        for (i, (name, address)) in hosts.iter().enumerate() {
            let filter = format!("{} {i}", if i == 0 { "source" } else { "pass" });
            // A host can be in the chain more than once.
            if !hosts[..i].iter().any(|(n, _)| n == name) {
                group.host(name, address);
            }
            let kind = if i == 0 { SOURCE_KIND } else { PASS_KIND };
            group.filter_of_kind(&filter, kind, Value::Null, &Filters::none()).copies(copies).on(&[name]);
            group.stream_with(&before, &filter, options);
            before = filter;
        }
        let ends = Arc::new(Mutex::new((expected, tell)));
        group.filter("sink", move |_| sink(ends.clone()));
        group.stream_with(&before, "sink", options);
        let mut running = group.start()?;
        let unit = running.begin(b"");
        Ok(Self { running, unit, copies: copies as u64, hops: hosts.len() as u32, ask: Some(ask), expect, answered })
    }

    /// The number of edges from the source to the sink.
    pub fn hops(&self) -> u32 {
        self.hops
    }

    /// The time from a request for `chunks` chunks until all of them have arrived.
    ///
    /// # Errors
    ///
    /// If the chain has failed, or the chunks do not arrive within 60 s.
    pub fn query(&mut self, chunks: u64, chunk_bytes: u64) -> Result<Duration, Failure> {
        let parts = chunks.clamp(1, self.copies);
        self.expect.send(chunks)?;
        let since = Instant::now();
        for part in 0..parts {
            let chunks = chunks * (part + 1) / parts - chunks * part / parts;
            self.ask.as_ref().ok_or("the rehearsal has ended")?.send(Request { chunks, chunk_bytes })?;
        }
        let end = self.answered.recv_timeout(ANSWER_TIMEOUT).map_err(|_| self.failure())?;
        Ok(end - since)
    }

    /// Why no chunks arrive.
    fn failure(&mut self) -> Failure {
        match self.running.wait_for(self.unit, Duration::ZERO) {
            Some(Err(error)) => error.into(),
            _ => format!("the chunks of a rehearsal have not arrived within {} s", ANSWER_TIMEOUT.as_secs()).into(),
        }
    }

    /// Measures the latency and bandwidth of chunks of these sizes, for about `effort` each.
    ///
    /// # Errors
    ///
    /// As for [`Rehearsal::query`].
    pub fn curve(&mut self, sizes: &[u64], effort: Duration) -> Result<chunk::Curve, Failure> {
        let points = sizes.iter().map(|bytes| self.point(*bytes, effort)).collect::<Result<Vec<_>, _>>()?;
        Ok(chunk::Curve::new(points)?)
    }

    fn point(&mut self, bytes: u64, effort: Duration) -> Result<chunk::Point, Failure> {
        self.query(self.copies, bytes)?;
        let (since, mut alone) = (Instant::now(), Vec::new());
        while alone.len() < *ALONE.start() || alone.len() < *ALONE.end() && since.elapsed() < effort {
            alone.push(self.query(1, bytes)?.as_secs_f64() * 1e6);
        }
        alone.sort_by(f64::total_cmp);
        let latency_us = alone[alone.len() / 2];
        // More chunks each time, until they take long enough.
        let mut chunks = self.copies * 4;
        loop {
            let took = self.query(chunks, bytes)?;
            if took >= effort || chunks >= MAX_CHUNKS {
                let bandwidth_bytes_s = (chunks * bytes) as f64 / took.as_secs_f64();
                return Ok(chunk::Point { bytes, one_way_us: latency_us / f64::from(self.hops), bandwidth_bytes_s });
            }
            let enough = chunks as f64 * 1.2 * effort.as_secs_f64() / took.as_secs_f64().max(1e-6);
            chunks = (enough as u64).clamp(chunks + 1, chunks * 16).min(MAX_CHUNKS);
        }
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        drop(self.ask.take());
        let _ = self.running.wait_for(self.unit, Duration::from_secs(5));
    }
}

fn client(asked: Arc<Mutex<Receiver<Request>>>) -> impl Filter {
    move |io: &mut Io<'_>| -> Result<(), Failure> {
        let asked = lock(&asked);
        while let Ok(request) = asked.recv() {
            io.write(0, 0, postcard::to_allocvec(&request)?)?;
        }
        Ok(())
    }
}

fn sink(ends: Arc<Mutex<(Receiver<u64>, Sender<Instant>)>>) -> impl Filter {
    move |io: &mut Io<'_>| -> Result<(), Failure> {
        let ends = lock(&ends);
        let mut left = 0;
        while io.read()?.is_some() {
            if left == 0 {
                left = ends.0.recv()?;
            }
            left -= 1;
            if left == 0 {
                ends.1.send(Instant::now())?;
            }
        }
        Ok(())
    }
}
