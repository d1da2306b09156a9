//! The kinds of filters of the experiments.

use multirail::pipeline::{CopyInfo, Failure, Filters, Io};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A client's request to the repository.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Request {
    pub query: u64,
    pub first: u64,
    pub chunks: u64,
    pub chunk_bytes: u64,
}

/// How a node computes.
#[derive(Debug, Clone, Deserialize)]
pub struct Compute {
    pub ns_per_byte: f64,
    /// The node sleeps instead of using a processor, so that three nodes fit on two processors.
    pub naps: bool,
    /// How many times as long the second copy takes.
    #[serde(default = "one")]
    pub factor: f64,
    /// For which share of the buffers it does, from 0 to 1.
    #[serde(default)]
    pub probability: f64,
    #[serde(default)]
    pub seed: u64,
}

fn one() -> f64 {
    1.0
}

pub fn all() -> Filters {
    Filters::none()
        .with("repository", |_, _: &CopyInfo| Ok(repository()))
        .with("stage", |parameters, copy: &CopyInfo| {
            let compute = Compute::deserialize(parameters)?;
            let mut node = Node::new(&compute, copy.copy);
            Ok(move |io: &mut Io<'_>| -> Result<(), Failure> {
                while let Some(received) = io.read()? {
                    node.compute(&received.body);
                    io.write(0, received.tag, received.body)?;
                }
                Ok(())
            })
        })
        .with("worker", |parameters, copy: &CopyInfo| {
            let compute = Compute::deserialize(parameters)?;
            let (mut node, copy) = (Node::new(&compute, copy.copy), copy.copy as u64);
            Ok(move |io: &mut Io<'_>| -> Result<(), Failure> {
                while let Some(received) = io.read()? {
                    let was_slow = node.compute(&received.body);
                    io.write(0, copy << 1 | u64::from(was_slow), Vec::new())?;
                }
                Ok(())
            })
        })
}

/// Writes chunks of an image in memory, since reading a file is not what is measured.
fn repository() -> impl FnMut(&mut Io<'_>) -> Result<(), Failure> {
    let image: Vec<u8> = (0..16 << 20).map(|i: u32| (i ^ (i >> 9)) as u8).collect();
    move |io| {
        while let Some(received) = io.read()? {
            let request: Request = serde_json::from_slice(&received.body)?;
            let bytes = request.chunk_bytes as usize;
            for chunk in request.first..request.first + request.chunks {
                let mut body = io.buffer(bytes);
                let start = (chunk as usize * bytes) % (image.len() - bytes.min(image.len()) + 1);
                body.extend_from_slice(&image[start..(start + bytes).min(image.len())]);
                io.write(0, request.query, body)?;
            }
        }
        Ok(())
    }
}

/// A simulated node with one processor.
pub struct Node {
    compute: Compute,
    is_slow: bool,
    random: u64,
    /// Until when the node is busy, if it sleeps instead of computing.
    busy_until: Instant,
    /// How much too long the last sleep was.
    overslept: Duration,
    made: Instant,
    sum: u64,
}

/// Shortest sleep. Shorter ones are added up.
const SHORTEST_NAP: Duration = Duration::from_micros(60);

impl Node {
    pub fn new(compute: &Compute, copy: usize) -> Self {
        // SAFETY: sets how late timers of this thread may be, in nanoseconds.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let made = Instant::now();
        let random = compute.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            compute: compute.clone(),
            is_slow: copy == 1,
            random,
            busy_until: made,
            overslept: Duration::ZERO,
            made,
            sum: 0,
        }
    }

    /// Computes on a buffer. Returns whether the node was slow.
    pub fn compute(&mut self, body: &[u8]) -> bool {
        if self.compute.ns_per_byte == 0.0 {
            return false;
        }
        let slow = self.is_slow && self.draw() < self.compute.probability;
        let factor = if slow { self.compute.factor } else { 1.0 };
        let time = Duration::from_nanos((body.len() as f64 * self.compute.ns_per_byte * factor) as u64);
        let now = Instant::now();
        if self.compute.naps {
            self.busy_until = self.busy_until.max(now - self.overslept.min(now - self.made)) + time;
            self.overslept = Duration::ZERO;
            if self.busy_until > now + SHORTEST_NAP {
                std::thread::sleep(self.busy_until - now);
                self.overslept = Instant::now() - self.busy_until;
            }
        } else {
            // Work on the bytes until this thread has used the processor for long enough.
            let until = processor_time() + time;
            let mut parts = body.chunks(4096).cycle();
            while processor_time() < until {
                let part = parts.next().unwrap_or(&[]);
                self.sum = part.iter().fold(self.sum, |sum, b| sum.rotate_left(5) ^ u64::from(*b));
                std::hint::black_box(self.sum);
            }
        }
        slow
    }

    /// A pseudo-random number from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
