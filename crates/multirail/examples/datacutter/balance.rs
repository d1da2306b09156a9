//! The load balancer: it sends blocks to three nodes, of which the second is slower, always or now
//! and then.

use crate::{Job, config, emit};
use multirail::pipeline::{Failure, Group, Io, Schedule, StreamOptions};
use serde::Deserialize;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NODES: usize = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    total_bytes: u64,
    chunk_bytes: u64,
    schedule: Schedule,
    window: u32,
    factor: f64,
    probability: f64,
    seed: u64,
}

/// The arrival of answers, by node, and how many blocks were slow.
#[derive(Default)]
struct Answers {
    of_slow: Vec<Instant>,
    blocks: [u64; NODES],
    slow_blocks: u64,
}

pub fn run(job: &Job, work: &Work) -> Result<(), Failure> {
    let mut group = Group::new(config());
    let names = ["h1", "h2", "h3"];
    for (name, address) in names.iter().zip(&job.hosts) {
        group.host(name, address);
    }
    let blocks = work.total_bytes.div_ceil(work.chunk_bytes);
    let bytes = work.chunk_bytes as usize;
    group.filter("balancer", move |_| {
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            for block in 0..blocks {
                let body = io.buffer_of(bytes);
                io.write(0, block, body)?;
            }
            Ok(())
        }
    });
    let compute = json!({
        "ns_per_byte": job.compute_ns_per_byte, "naps": true, "factor": work.factor, "probability": work.probability,
        "seed": work.seed,
    });
    group.filter_of_kind("worker", "worker", compute, &crate::filters::all()).copies(NODES).on(&names);
    let answers = Arc::new(Mutex::new(Answers::default()));
    let collected = answers.clone();
    group.filter("answers", move |_| {
        let answers = collected.clone();
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            while let Some(received) = io.read()? {
                let (copy, was_slow) = ((received.tag >> 1) as usize, received.tag & 1 == 1);
                let mut answers = answers.lock().map_err(|e| e.to_string())?;
                answers.blocks[copy.min(NODES - 1)] += 1;
                answers.slow_blocks += u64::from(was_slow);
                if was_slow {
                    answers.of_slow.push(Instant::now());
                }
            }
            Ok(())
        }
    });
    let options = StreamOptions::default().schedule(work.schedule).window(work.window).transport(Some(job.transport));
    group.stream_with("balancer", "worker", options).stream_with("worker", "answers", options);
    let mut running = group.start()?;
    let since = Instant::now();
    let unit = running.begin(b"");
    running.wait_for(unit, Duration::from_secs(60)).ok_or("it does not end")??;
    let took = since.elapsed();
    let answers = answers.lock().map_err(|e| e.to_string())?;
    // The balancer notices a slow node when the node has ended a block.
    let mut gaps: Vec<f64> = answers.of_slow.windows(2).map(|w| (w[1] - w[0]).as_secs_f64() * 1e6).collect();
    gaps.sort_by(f64::total_cmp);
    let all_ns = work.total_bytes as f64 * job.compute_ns_per_byte;
    let slowness = 1.0 + work.probability * (work.factor - 1.0);
    emit(&json!({
        "measured": "balance", "took_ms": took.as_secs_f64() * 1e3, "blocks": answers.blocks, "slow_blocks": answers.slow_blocks,
        "reaction_us": gaps.get(gaps.len() / 2),
        // In the ideal case, every node works all the time.
        "ideal_ms": all_ns / 1e6 / (NODES as f64 - 1.0 + 1.0 / slowness),
    }));
    Ok(())
}
