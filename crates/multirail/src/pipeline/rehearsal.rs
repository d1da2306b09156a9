//! A chain of filters that compute nothing, on the hosts of a real one, to see what chunks of each size cost.
//!
//! A client here asks the copies of a source on the first host for chunks, which go through a filter on each further host to a sink here.

use super::coordinator::Running;
use super::copy::Make;
use super::filter::{Failure, Filter, Place, StreamOptions};
use super::group::Group;
use super::io::Io;
use super::registry::Filters;
use super::{PipelineError, chunk};
use crate::Config;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kinds that every host can make.
const SOURCE: &str = "rehearse-source";
const PASS: &str = "rehearse-pass";
/// Chunks that are sent alone, at least and at most.
const ALONE: std::ops::RangeInclusive<usize> = 10..=200;
/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(60);
/// No chunk that a host is asked for is larger, and not so many at once.
const MAX_CHUNK_BYTES: u64 = 64 << 20;
const MAX_CHUNKS: u64 = 1 << 24;

/// So many chunks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Request {
    chunks: u64,
    chunk_bytes: u64,
}

/// A chain at work.
#[derive(Debug)]
pub struct Rehearsal {
    running: Running,
    unit: u32,
    copies: u64,
    hops: u32,
    ask: Option<Sender<Request>>,
    expect: Sender<u64>,
    answered: Receiver<Instant>,
}

impl Rehearsal {
    /// Starts a chain of `copies` on each of `hosts` (name, address), joined by streams of these options.
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
            // A host may stand in the chain more than once.
            if !hosts[..i].iter().any(|(n, _)| n == name) {
                group.host(name, address);
            }
            let kind = if i == 0 { SOURCE } else { PASS };
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

    /// Edges from the source to the sink.
    pub fn hops(&self) -> u32 {
        self.hops
    }

    /// How long it takes until so many chunks have come.
    pub fn query(&mut self, chunks: u64, chunk_bytes: u64) -> Result<Duration, Failure> {
        let parts = chunks.clamp(1, self.copies);
        self.expect.send(chunks)?;
        let since = Instant::now();
        for part in 0..parts {
            let chunks = chunks * (part + 1) / parts - chunks * part / parts;
            self.ask.as_ref().ok_or("it has ended")?.send(Request { chunks, chunk_bytes })?;
        }
        let end = self.answered.recv_timeout(PATIENCE).map_err(|_| self.why())?;
        Ok(end - since)
    }

    /// Why nothing comes any more.
    fn why(&mut self) -> Failure {
        match self.running.wait_for(self.unit, Duration::ZERO) {
            Some(Err(error)) => error.into(),
            _ => format!("a rehearsal's chunks have not come within {} s", PATIENCE.as_secs()).into(),
        }
    }

    /// What chunks of these sizes do; each is measured for about so long.
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
        // Ever more, until they take long enough.
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
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(request) = asked.recv() {
            io.write(0, 0, postcard::to_allocvec(&request)?)?;
        }
        Ok(())
    }
}

fn sink(ends: Arc<Mutex<(Receiver<u64>, Sender<Instant>)>>) -> impl Filter {
    move |io: &mut Io<'_>| -> Result<(), Failure> {
        let ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The kinds that every host can make.
pub(super) fn make(kind: &str) -> Option<Make> {
    match kind {
        SOURCE => Some(Arc::new(|_: &Place| -> Result<Box<dyn Filter>, Failure> { Ok(Box::new(source)) })),
        PASS => Some(Arc::new(|_: &Place| -> Result<Box<dyn Filter>, Failure> { Ok(Box::new(pass)) })),
        _ => None,
    }
}

fn source(io: &mut Io<'_>) -> Result<(), Failure> {
    while let Some(received) = io.read()? {
        let Request { chunks, chunk_bytes } = postcard::from_bytes(&received.body)?;
        if chunk_bytes > MAX_CHUNK_BYTES || chunks > MAX_CHUNKS {
            return Err(format!("a rehearsal of {chunks} chunks of {chunk_bytes} bytes is too large").into());
        }
        for chunk in 0..chunks {
            let body = io.buffer_of(chunk_bytes as usize);
            io.write(0, chunk, body)?;
        }
    }
    Ok(())
}

fn pass(io: &mut Io<'_>) -> Result<(), Failure> {
    while let Some(received) = io.read()? {
        io.write(0, received.tag, received.body)?;
    }
    Ok(())
}
