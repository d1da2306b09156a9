//! How large chunks should be, from what a substrate does with messages of each size (paper, sections 3.2 and 5.2: the "data
//! repartitioning" that its authors did by hand).
//!
//! The curve is measured in a rehearsal: a chain of filters like the real ones that compute nothing. The model adds computing to it. A full
//! update is over when all its chunks have passed the busiest place; where many copies share few processors, moving and
//! computing take turns there, else they overlap. A partial update is one chunk that finds everything idle.

use serde::{Deserialize, Serialize};

/// Chunks are looked for from this size on,
pub const SMALLEST_BYTES: u64 = 256;
/// up to this one,
pub const LARGEST_BYTES: u64 = 16 << 20;
/// so many in each doubling.
const STEPS_A_DOUBLING: u32 = 2;

/// What a chain of filters does with chunks of one size, if the filters compute nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The chunk.
    pub bytes: u64,
    /// How long it takes through the chain, by the number of hops, with nothing else on the way.
    pub one_way_us: f64,
    /// Of a stream of such chunks through the chain, over all copies.
    pub bandwidth_bytes_s: f64,
}

/// A chain's latency and bandwidth over chunk sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    points: Vec<Point>,
}

/// What is sent through.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes of a full update.
    pub update_bytes: u64,
    /// Edges from the source to the last filter.
    pub hops: u32,
    /// Transparent copies of each filter.
    pub copies: u32,
    /// What a filter computes on a byte.
    pub compute_ns_per_byte: f64,
    /// Processors, where all filters share them, also when rehearsing; 0: each copy has one of its own.
    pub processors: u32,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Guarantee {
    /// At least so many full updates a second; of those chunks, the one with the lowest latency of a partial update.
    UpdatesPerSecond(f64),
    /// A partial update within so many microseconds; of those chunks, the one with the most full updates a second.
    LatencyUs(f64),
    /// Moving a chunk takes as long as computing on it: the smallest chunk of which that is true.
    PerfectPipeline,
}

/// A chunk, and what it should do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The chunk.
    pub chunk_bytes: u64,
    /// Full updates a second.
    pub updates_per_s: f64,
    /// Of a partial update.
    pub latency_us: f64,
}

/// Why there is no chunk.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing was measured, or nonsense.
    #[error("the curve has no usable point")]
    NoCurve,
    /// No chunk is fast enough.
    #[error("{wanted} full updates a second cannot be had: at best {best:.2}, with chunks of {chunk_bytes} bytes")]
    TooManyUpdates {
        /// As asked.
        wanted: f64,
        /// What can be had.
        best: f64,
        /// With which chunk.
        chunk_bytes: u64,
    },
    /// No chunk is there soon enough.
    #[error(
        "a partial update within {wanted_us} us cannot be had: at best {best_us:.1} us, with chunks of {chunk_bytes} bytes"
    )]
    TooSoon {
        /// As asked.
        wanted_us: f64,
        /// What can be had.
        best_us: f64,
        /// With which chunk.
        chunk_bytes: u64,
    },
    /// Moving a chunk always takes longer than computing on it.
    #[error("computing {compute_ns_per_byte} ns on a byte is less than moving it takes, whatever the chunk")]
    AlwaysWaiting {
        /// As given.
        compute_ns_per_byte: f64,
    },
}

impl Curve {
    /// From measured points, in any order; those that cannot be are left out.
    pub fn new(mut points: Vec<Point>) -> Result<Self, PlanError> {
        let usable = |v: f64| v.is_finite() && v > 0.0;
        points.retain(|p| p.bytes > 0 && usable(p.one_way_us) && usable(p.bandwidth_bytes_s));
        points.sort_by_key(|p| p.bytes);
        points.dedup_by_key(|p| p.bytes);
        if points.is_empty() { Err(PlanError::NoCurve) } else { Ok(Self { points }) }
    }

    /// What was measured, by size.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Latency of a hop, between the points as a straight line over bytes, beyond them by the nearest bandwidth.
    pub fn one_way_us(&self, bytes: u64) -> f64 {
        self.at(bytes, |p| p.one_way_us)
    }

    /// How long a chunk keeps the chain busy.
    pub fn busy_us(&self, bytes: u64) -> f64 {
        self.at(bytes, |p| p.bytes as f64 * 1e6 / p.bandwidth_bytes_s)
    }

    fn at(&self, bytes: u64, time_us: impl Fn(&Point) -> f64) -> f64 {
        let after = self.points.partition_point(|p| p.bytes < bytes);
        match (after.checked_sub(1).map(|b| &self.points[b]), self.points.get(after)) {
            (Some(a), Some(b)) => {
                let part = (bytes - a.bytes) as f64 / (b.bytes - a.bytes) as f64;
                time_us(a) + part * (time_us(b) - time_us(a))
            }
            (None, Some(first)) => time_us(first),
            (Some(last), None) => time_us(last) * bytes as f64 / last.bytes as f64,
            (None, None) => f64::INFINITY,
        }
    }
}

impl Shape {
    /// What chunks of this size should do.
    pub fn predict(&self, curve: &Curve, chunk_bytes: u64) -> Plan {
        let compute_us = chunk_bytes as f64 * self.compute_ns_per_byte / 1e3;
        let (hops, busy_us) = (f64::from(self.hops.max(1)), curve.busy_us(chunk_bytes));
        let by_copies_us = compute_us / f64::from(self.copies.max(1));
        let period_us = match self.processors {
            0 => busy_us.max(by_copies_us),
            shared => busy_us + (compute_us * hops / f64::from(shared)).max(by_copies_us),
        };
        let latency_us = hops * (curve.one_way_us(chunk_bytes) + compute_us);
        let chunks = self.update_bytes.max(1).div_ceil(chunk_bytes.max(1)) as f64;
        let update_us = (chunks - 1.0) * period_us + latency_us;
        Plan { chunk_bytes, updates_per_s: 1e6 / update_us, latency_us }
    }

    /// The chunk for a guarantee.
    pub fn plan(&self, curve: &Curve, guarantee: Guarantee) -> Result<Plan, PlanError> {
        let all = self.sizes().map(|chunk| self.predict(curve, chunk));
        let fastest = |a: &Plan, b: &Plan| a.updates_per_s.total_cmp(&b.updates_per_s);
        let soonest = |a: &Plan, b: &Plan| a.latency_us.total_cmp(&b.latency_us);
        match guarantee {
            Guarantee::UpdatesPerSecond(wanted) => {
                let found = all.clone().filter(|p| p.updates_per_s >= wanted).min_by(soonest);
                let best = all.max_by(fastest).ok_or(PlanError::NoCurve)?;
                let (chunk_bytes, best) = (best.chunk_bytes, best.updates_per_s);
                found.ok_or(PlanError::TooManyUpdates { wanted, best, chunk_bytes })
            }
            Guarantee::LatencyUs(wanted_us) => {
                let found = all.clone().filter(|p| p.latency_us <= wanted_us).max_by(fastest);
                let best = all.min_by(soonest).ok_or(PlanError::NoCurve)?;
                let (chunk_bytes, best_us) = (best.chunk_bytes, best.latency_us);
                found.ok_or(PlanError::TooSoon { wanted_us, best_us, chunk_bytes })
            }
            Guarantee::PerfectPipeline => {
                let compute_us = |p: &Plan| p.chunk_bytes as f64 * self.compute_ns_per_byte / 1e3;
                let found = all.clone().find(|p| curve.one_way_us(p.chunk_bytes) <= compute_us(p));
                found.ok_or(PlanError::AlwaysWaiting { compute_ns_per_byte: self.compute_ns_per_byte })
            }
        }
    }

    /// The sizes that are tried, small to large.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + Clone {
        let largest = self.update_bytes.clamp(SMALLEST_BYTES, LARGEST_BYTES);
        let doublings = (LARGEST_BYTES / SMALLEST_BYTES).ilog2();
        (0..=doublings * STEPS_A_DOUBLING)
            .map(|step| {
                let doubled = SMALLEST_BYTES << (step / STEPS_A_DOUBLING);
                doubled + doubled * u64::from(step % STEPS_A_DOUBLING) / u64::from(STEPS_A_DOUBLING)
            })
            .take_while(move |size| *size <= largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A substrate that needs `each_us` for a message and `ns` for a byte.
    fn curve(each_us: f64, ns: f64) -> Curve {
        let sizes = [64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
        let point = |bytes: u64| {
            let time_us = each_us + bytes as f64 * ns / 1e3;
            Point { bytes, one_way_us: time_us, bandwidth_bytes_s: bytes as f64 * 1e6 / time_us }
        };
        Curve::new(sizes.map(point).to_vec()).unwrap()
    }

    /// The paper's: 16 MB images through three hops with three copies.
    fn image(compute_ns_per_byte: f64) -> Shape {
        Shape { update_bytes: 16_000_000, hops: 3, copies: 3, compute_ns_per_byte, processors: 0 }
    }

    #[test]
    fn a_faster_substrate_gets_smaller_chunks_and_answers_sooner() {
        // As the paper measured: TCP 47.5 us and 510 Mbit/s, SocketVIA 9.5 us and 763 Mbit/s.
        let (tcp, via) = (curve(47.5, 15.7), curve(9.5, 10.5));
        // The most that its authors' TCP could hold.
        let wanted = Guarantee::UpdatesPerSecond(3.25);
        let (slow, fast) = (image(0.0).plan(&tcp, wanted).unwrap(), image(0.0).plan(&via, wanted).unwrap());
        assert!(slow.updates_per_s >= 3.25 && fast.updates_per_s >= 3.25);
        let same_chunk = image(0.0).predict(&via, slow.chunk_bytes);
        assert!(fast.chunk_bytes < slow.chunk_bytes);
        assert!(fast.latency_us < same_chunk.latency_us && same_chunk.latency_us < slow.latency_us);
    }

    #[test]
    fn the_plan_is_the_best_of_all_sizes() {
        let (shape, curve) = (image(18.0), curve(20.0, 4.0));
        let all: Vec<Plan> = shape.sizes().map(|s| shape.predict(&curve, s)).collect();
        let plan = shape.plan(&curve, Guarantee::LatencyUs(500.0)).unwrap();
        assert!(plan.latency_us <= 500.0);
        assert!(all.iter().all(|p| p.latency_us > 500.0 || p.updates_per_s <= plan.updates_per_s));
        let perfect = shape.plan(&curve, Guarantee::PerfectPipeline).unwrap();
        assert!(curve.one_way_us(perfect.chunk_bytes) <= perfect.chunk_bytes as f64 * 0.018);
        let before = all.iter().rfind(|p| p.chunk_bytes < perfect.chunk_bytes).unwrap();
        assert!(curve.one_way_us(before.chunk_bytes) > before.chunk_bytes as f64 * 0.018);
    }

    #[test]
    fn what_cannot_be_had_is_told_with_what_can() {
        let (shape, curve) = (image(0.0), curve(50.0, 16.0));
        let Err(PlanError::TooManyUpdates { best, chunk_bytes, .. }) =
            shape.plan(&curve, Guarantee::UpdatesPerSecond(1e6))
        else {
            panic!("a million images a second")
        };
        assert_eq!(shape.predict(&curve, chunk_bytes).updates_per_s, best);
        assert!(shape.plan(&curve, Guarantee::UpdatesPerSecond(best)).is_ok());
        assert!(matches!(shape.plan(&curve, Guarantee::LatencyUs(100.0)), Err(PlanError::TooSoon { .. })));
        assert!(matches!(shape.plan(&curve, Guarantee::PerfectPipeline), Err(PlanError::AlwaysWaiting { .. })));
        assert_eq!(Curve::new(vec![]), Err(PlanError::NoCurve));
    }

    #[test]
    fn between_and_beyond_the_points() {
        let curve = curve(10.0, 1.0);
        for (bytes, us) in [(64, 10.064), (544, 10.544), (32 << 20, 2.0 * (10.0 + 16_777.216))] {
            assert!((curve.one_way_us(bytes) - us).abs() < 1e-6, "{bytes}: {}", curve.one_way_us(bytes));
        }
        assert_eq!(curve.one_way_us(1), curve.one_way_us(64));
    }
}
