//! Connections that yield, on a link with a queue, beside each other and beside a loss-based one.

use multirail_proto::background::{Background, OBSERVE_EVERY, TARGET};
use multirail_proto::session::PathInfo;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

/// The step of the simulation.
const STEP_US: u64 = 1000;
const STEP_S: f64 = STEP_US as f64 / 1e6;
const PACKET_BYTES: f64 = 1448.0;

/// A link with a queue that drops what finds it full.
#[derive(Debug, Clone, Copy)]
struct Link {
    bytes_s: f64,
    base_us: f64,
    buffer_us: f64,
}

enum Control {
    Background(Background),
    /// Grows by a packet each round trip, and shrinks to 0.7 of its window by a loss. It ignores delays.
    Losses {
        window: f64,
        last_loss_us: f64,
    },
}

struct Flow {
    control: Control,
    /// When it sends, in seconds.
    active: std::ops::Range<f64>,
    rate_bytes_s: f64,
    smoothed_us: f64,
    min_us: f64,
    resent: u64,
    queued_bytes: f64,
    /// What was delivered in each second.
    delivered: Vec<f64>,
}

impl Flow {
    fn new(control: Control, active: std::ops::Range<f64>) -> Self {
        let delivered = vec![0.0; 200];
        let (smoothed_us, min_us) = (0.0, f64::INFINITY);
        Self { control, active, rate_bytes_s: 0.0, smoothed_us, min_us, resent: 0, queued_bytes: 0.0, delivered }
    }

    fn background(active: std::ops::Range<f64>) -> Self {
        Self::new(Control::Background(Background::default()), active)
    }

    fn losses(active: std::ops::Range<f64>) -> Self {
        Self::new(Control::Losses { window: 10.0, last_loss_us: 0.0 }, active)
    }

    fn share(&self, link: Link, seconds: std::ops::Range<usize>) -> f64 {
        let length = seconds.len() as f64;
        self.delivered[seconds].iter().sum::<f64>() / link.bytes_s / length
    }
}

/// When it is over, its length, and of each flow the rate and whether packets were lost.
type RoundTrip = (u64, f64, Vec<(f64, bool)>);

/// Runs the flows over the link; returns the queue of each step.
fn run(link: Link, flows: &mut [Flow], seconds: u64) -> Vec<f64> {
    let mut queues_us = Vec::new();
    // Round trips arrive when they are over.
    let mut in_flight: VecDeque<RoundTrip> = VecDeque::new();
    for now_us in (0..seconds * 1_000_000).step_by(STEP_US as usize) {
        let now_s = now_us as f64 / 1e6;
        for flow in flows.iter_mut() {
            let sends = flow.active.contains(&now_s);
            flow.queued_bytes += if sends { flow.rate_bytes_s * STEP_S } else { 0.0 };
        }
        let room = link.buffer_us / 1e6 * link.bytes_s;
        let queued: f64 = flows.iter().map(|flow| flow.queued_bytes).sum();
        let kept = if queued > room { room / queued } else { 1.0 };
        let out = (link.bytes_s * STEP_S / (queued * kept).max(1.0)).min(1.0);
        let mut results = Vec::new();
        for flow in flows.iter_mut() {
            let sent = flow.queued_bytes * kept * out;
            let lost = kept < 1.0 && flow.active.contains(&now_s);
            flow.queued_bytes = flow.queued_bytes * kept - sent;
            flow.delivered[now_s as usize] += sent;
            results.push((sent / STEP_S, lost));
        }
        let queue_us = flows.iter().map(|flow| flow.queued_bytes).sum::<f64>() / link.bytes_s * 1e6;
        queues_us.push(queue_us);
        in_flight.push_back((now_us + (link.base_us + queue_us) as u64, link.base_us + queue_us, results));
        for flow in flows.iter_mut().filter(|flow| flow.smoothed_us == 0.0 && flow.active.contains(&now_s)) {
            let rtt_us = link.base_us + queue_us;
            (flow.smoothed_us, flow.min_us) = (rtt_us, rtt_us);
        }
        while in_flight.front().is_some_and(|(at, ..)| *at <= now_us) {
            let (_, rtt_us, results) = in_flight.pop_front().unwrap();
            for (flow, (rate, lost)) in flows.iter_mut().zip(results) {
                if flow.active.contains(&now_s) {
                    acknowledge(flow, now_us, rtt_us, rate, lost);
                }
            }
        }
        for flow in flows.iter_mut().filter(|flow| flow.active.contains(&now_s)) {
            steer(flow, now_us);
        }
    }
    queues_us
}

fn acknowledge(flow: &mut Flow, now_us: u64, rtt_us: f64, rate: f64, lost: bool) {
    // As many packets as arrive in a step, each of which counts an eighth.
    let weight = 1.0 - 0.875f64.powf(rate * STEP_S / PACKET_BYTES);
    flow.smoothed_us += weight * (rtt_us - flow.smoothed_us);
    if rate > 0.0 {
        flow.min_us = flow.min_us.min(rtt_us);
    }
    flow.resent += u64::from(lost);
    if let Control::Losses { window, last_loss_us } = &mut flow.control {
        if !lost {
            *window += STEP_US as f64 / flow.smoothed_us;
        } else if now_us as f64 - *last_loss_us > rtt_us {
            *last_loss_us = now_us as f64;
            *window *= 0.7;
        }
    }
}

fn steer(flow: &mut Flow, now_us: u64) {
    let rtt_us = flow.smoothed_us;
    match &mut flow.control {
        Control::Losses { window, .. } => flow.rate_bytes_s = *window * PACKET_BYTES * 1e6 / rtt_us,
        Control::Background(background) => {
            if now_us.is_multiple_of(OBSERVE_EVERY.as_micros() as u64) {
                let path = PathInfo {
                    rtt_us: rtt_us as u32,
                    min_rtt_us: flow.min_us as u32,
                    resent_segments: flow.resent,
                    delivery_bytes_s: flow.rate_bytes_s,
                    ..PathInfo::default()
                };
                flow.rate_bytes_s = background.observe(Duration::from_micros(now_us), &path) as f64;
            }
        }
    }
}

const LINKS: [Link; 3] = [
    Link { bytes_s: 12.5e6, base_us: 20e3, buffer_us: 100e3 },
    Link { bytes_s: 12.5e6, base_us: 2e3, buffer_us: 100e3 },
    Link { bytes_s: 1.25e6, base_us: 50e3, buffer_us: 150e3 },
];

#[test]
fn alone_it_fills_the_link_with_a_short_queue() {
    for link in LINKS {
        let mut flows = [Flow::background(0.0..30.0)];
        let queues = run(link, &mut flows, 30);
        let share = flows[0].share(link, 2..30);
        assert!(share >= 0.9, "{link:?}: {share}");
        let late = &queues[2000..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        let most = TARGET.as_micros() as f64;
        assert!(mean <= most, "{link:?}: a queue of {mean} us");
    }
}

#[test]
fn it_yields_to_losses_and_comes_back() {
    for link in LINKS {
        let mut flows = [Flow::background(0.0..60.0), Flow::losses(5.0..40.0)];
        run(link, &mut flows, 60);
        let (share, other) = (flows[0].share(link, 20..40), flows[1].share(link, 20..40));
        assert!(share <= 0.1 && other >= 0.85, "{link:?}: {share} beside {other}");
        let back = flows[0].share(link, 45..60);
        assert!(back >= 0.9, "{link:?}: {back} after it");
    }
}

#[test]
fn two_share_the_link() {
    for link in LINKS {
        let mut flows = [Flow::background(0.0..120.0), Flow::background(15.3..120.0)];
        run(link, &mut flows, 120);
        let shares = [flows[0].share(link, 60..120), flows[1].share(link, 60..120)];
        assert!(shares.iter().all(|share| (0.3..=0.7).contains(share)), "{link:?}: {shares:?}");
    }
}

proptest! {
    /// Whatever is measured, the rate is at least two packets a round trip, and finite.
    #[test]
    fn never_below_the_floor(
        seen in prop::collection::vec((0u64..200_000_000, any::<u32>(), any::<u32>(), any::<f64>(), any::<u64>()), 1..200),
    ) {
        let mut background = Background::default();
        for (now_us, rtt_us, min_rtt_us, delivery_bytes_s, resent_segments) in seen {
            let path = PathInfo { rtt_us, min_rtt_us, delivery_bytes_s, resent_segments, ..PathInfo::default() };
            let bytes_s = background.observe(Duration::from_micros(now_us), &path);
            let rtt_s = f64::from(rtt_us).clamp(10.0, 60e6) / 1e6;
            prop_assert!(bytes_s + 1 >= (2.0 * PACKET_BYTES / rtt_s) as u64, "{bytes_s} with {rtt_us} us");
            prop_assert!(bytes_s < 1 << 60);
        }
    }
}
