//! The visualization server: a client sends requests to a repository, whose chunks go through two
//! stages to the viewer. Repository and stages have three copies each and a host of their own;
//! client and viewer are in this process.

use crate::filters::{Compute, Node, Request};
use crate::{Job, config, emit};
use multirail::pipeline::chunk::{Guarantee, Shape};
use multirail::pipeline::{Failure, Group, Io, Rehearsal, RunningGroup, StreamOptions};
use serde_json::json;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COPIES: usize = 3;
/// Edges from the repository to the viewer.
const HOPS: u32 = 3;
/// Partial updates of one measurement.
const PARTIAL_UPDATES: usize = 100;
/// Complete updates that are not counted.
const WARM_UP: usize = 1;
const ZOOM_CHUNKS: u64 = 4;
/// Duration of the measurement of one point of a curve.
const EFFORT: Duration = Duration::from_millis(100);

/// A running group.
struct Server {
    running: RunningGroup,
    unit: u32,
    ask: Option<Sender<Vec<Request>>>,
    answered: Receiver<Instant>,
    expect: Sender<u64>,
    next: u64,
}

impl Server {
    fn start(job: &Job) -> Result<Self, Failure> {
        let mut group = Group::new(config());
        let names = ["h1", "h2", "h3"];
        for (name, address) in names.iter().zip(&job.hosts) {
            group.host(name, address);
        }
        let (ask, asked) = channel::<Vec<Request>>();
        let (tell, answered) = channel();
        let (expect, expected) = channel();
        let asked = Arc::new(Mutex::new(asked));
        group.filter("client", move |_| {
            let asked = asked.clone();
            move |io: &mut Io<'_>| -> Result<(), Failure> {
                let asked = asked.lock().map_err(|e| e.to_string())?;
                while let Ok(requests) = asked.recv() {
                    for request in requests {
                        io.write(0, request.query, serde_json::to_vec(&request)?)?;
                    }
                }
                Ok(())
            }
        });
        let known = crate::filters::all();
        let compute = json!({ "ns_per_byte": job.compute_ns_per_byte, "naps": false });
        group.filter_of_kind("repository", "repository", json!(null), &known).copies(COPIES).on(&names[..1]);
        group.filter_of_kind("clip", "stage", compute.clone(), &known).copies(COPIES).on(&names[1..2]);
        group.filter_of_kind("subsample", "stage", compute, &known).copies(COPIES).on(&names[2..3]);
        let ns_per_byte = job.compute_ns_per_byte;
        let expected = Arc::new(Mutex::new(expected));
        group.filter("view", move |_| {
            let (tell, expected) = (tell.clone(), expected.clone());
            let compute = Compute { ns_per_byte, naps: false, factor: 1.0, probability: 0.0, seed: 0 };
            let mut node = Node::new(&compute, 0);
            move |io: &mut Io<'_>| -> Result<(), Failure> {
                let expected = expected.lock().map_err(|e| e.to_string())?;
                let mut left = 0;
                while let Some(received) = io.read()? {
                    node.compute(&received.body);
                    if left == 0 {
                        left = expected.recv()?;
                    }
                    left -= 1;
                    if left == 0 {
                        tell.send(Instant::now())?;
                    }
                }
                Ok(())
            }
        });
        let options = StreamOptions::default().transport(Some(job.transport));
        for (from, to) in
            [("client", "repository"), ("repository", "clip"), ("clip", "subsample"), ("subsample", "view")]
        {
            group.stream_with(from, to, options);
        }
        let mut running = group.start()?;
        let unit = running.begin(b"");
        Ok(Self { running, unit, ask: Some(ask), answered, expect, next: 0 })
    }

    /// Requests chunks, one part for each copy of the repository, and waits for them.
    fn query(&mut self, chunks: u64, chunk_bytes: u64) -> Result<Duration, Failure> {
        self.next += 1;
        let query = self.next;
        let parts = chunks.min(COPIES as u64);
        let bounds = |part: u64| chunks * part / parts;
        let requests = (0..parts).map(|part| {
            let (first, end) = (bounds(part), bounds(part + 1));
            Request { query, first, chunks: end - first, chunk_bytes }
        });
        self.expect.send(chunks)?;
        let since = Instant::now();
        self.ask.as_ref().ok_or("ended")?.send(requests.collect())?;
        let answered = self.answered.recv_timeout(Duration::from_secs(60))?;
        Ok(answered - since)
    }

    fn end(mut self) -> Result<(), Failure> {
        drop(self.ask.take());
        let ended = self.running.wait_for(self.unit, Duration::from_secs(30));
        ended.ok_or("the pipeline does not end")??;
        Ok(())
    }
}

pub fn updates(job: &Job, image_bytes: u64, chunks: &[u64], seconds: f64) -> Result<(), Failure> {
    let hosts: Vec<_> = job.hosts.iter().enumerate().map(|(i, a)| (format!("h{}", i + 1), a.clone())).collect();
    let options = StreamOptions::default().transport(Some(job.transport));
    // Every second size; what is between them is what the planner has to guess.
    let rehearsed: Vec<u64> = chunks.iter().copied().step_by(2).collect();
    let curve = Rehearsal::start(&config(), &hosts, COPIES, options)?.curve(&rehearsed, EFFORT)?;
    let processors = std::thread::available_parallelism()?.get() as u32;
    let shape = Shape {
        update_bytes: image_bytes,
        hops: HOPS,
        copies: COPIES as u32,
        compute_ns_per_byte: job.compute_ns_per_byte,
        processors,
    };
    let mut server = Server::start(job)?;
    for &chunk_bytes in chunks {
        let count = image_bytes.div_ceil(chunk_bytes);
        for _ in 0..WARM_UP {
            server.query(count, chunk_bytes)?;
        }
        let mut latencies = Vec::new();
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while latencies.len() < PARTIAL_UPDATES && (latencies.len() < 10 || Instant::now() < until) {
            latencies.push(server.query(1, chunk_bytes)?.as_secs_f64() * 1e6);
        }
        latencies.sort_by(f64::total_cmp);
        let (since, mut complete) = (Instant::now(), 0);
        while complete < 2 || since.elapsed().as_secs_f64() < seconds {
            server.query(count, chunk_bytes)?;
            complete += 1;
        }
        let updates_per_s = f64::from(complete) / since.elapsed().as_secs_f64();
        let planned = shape.predict(&curve, chunk_bytes);
        emit(&json!({
            "measured": "updates", "chunk_bytes": chunk_bytes, "updates_per_s": updates_per_s,
            "latency_us": latencies[latencies.len() / 2], "latency_us_p99": latencies[latencies.len() * 99 / 100],
            "one_way_us": curve.one_way_us(chunk_bytes), "busy_us": curve.busy_us(chunk_bytes),
            "planned_updates_per_s": planned.updates_per_s, "planned_latency_us": planned.latency_us,
        }));
    }
    let perfect = shape.plan(&curve, Guarantee::PerfectPipeline);
    emit(&json!({ "measured": "perfect", "chunk_bytes": perfect.ok().map(|p| p.chunk_bytes) }));
    server.end()
}

pub fn mixture(
    job: &Job,
    image_bytes: u64,
    chunk_bytes: u64,
    complete_shares: &[f64],
    queries: u32,
    seed: u64,
) -> Result<(), Failure> {
    let mut server = Server::start(job)?;
    let all = image_bytes.div_ceil(chunk_bytes);
    server.query(all, chunk_bytes)?;
    for share in complete_shares {
        // As many of each as the share says, in an order drawn by the seed.
        let complete = (f64::from(queries) * share).round() as usize;
        let mut kinds: Vec<bool> = (0..queries as usize).map(|q| q < complete).collect();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for i in (1..kinds.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            kinds.swap(i, (random >> 33) as usize % (i + 1));
        }
        let mut total = Duration::ZERO;
        for is_complete in kinds {
            total += server.query(if is_complete { all } else { ZOOM_CHUNKS.min(all) }, chunk_bytes)?;
        }
        let mean_ms = total.as_secs_f64() * 1e3 / f64::from(queries);
        emit(&json!({ "measured": "mixture", "complete_share": share, "response_ms": mean_ms }));
    }
    server.end()
}
