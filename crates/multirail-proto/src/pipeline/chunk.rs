//! How large chunks should be, from what the transports do with messages of each size.
//!
//! "Impact of High Performance Sockets on Data Intensive Applications" calls this data
//! repartitioning (sections 3.2 and 5.2); its authors did it manually.
//!
//! The curve is measured in a rehearsal: a chain of filters on the real hosts that compute nothing.
//! The model adds computing to it. A full update is complete when all of its chunks have passed the
//! busiest filter. Moving and computing alternate there if the copies share processors, and overlap
//! otherwise. A partial update is a single chunk that finds all filters idle.

use serde::{Deserialize, Serialize};

/// Smallest chunk that is considered.
pub(crate) const SMALLEST_BYTES: u64 = 256;
/// Largest chunk that is considered.
pub(crate) const LARGEST_BYTES: u64 = 16 << 20;
/// Sizes that are considered in each doubling.
const STEPS_A_DOUBLING: u32 = 2;

/// A measurement of a chain of filters that compute nothing, with chunks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size of the chunks.
    pub bytes: u64,
    /// The time of a single chunk through the idle chain, divided by the number of hops.
    pub one_way_us: f64,
    /// The bandwidth of a stream of such chunks through the chain, over all copies.
    pub bandwidth_bytes_s: f64,
}

/// The latency and bandwidth of a chain over chunk sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    points: Vec<Point>,
}

/// The pipeline that the chunks go through.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes of a full update.
    pub update_bytes: u64,
    /// Edges from the source to the last filter.
    pub hops: u32,
    /// Transparent copies of each filter.
    pub copies: u32,
    /// Computing time of a filter in nanoseconds per byte.
    pub compute_ns_per_byte: f64,
    /// The number of processors that all filters share, also in the rehearsal; 0 if each copy has
    /// one of its own.
    pub processors: u32,
}

/// What the chunk must achieve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Guarantee {
    /// At least this many full updates per second. Of the suitable chunks, the one with the lowest
    /// latency of a partial update is chosen.
    UpdatesPerSecond(f64),
    /// A partial update within this many microseconds. Of the suitable chunks, the one with the
    /// most full updates per second is chosen.
    LatencyUs(f64),
    /// Moving a chunk takes no longer than computing on it (section 5.2.3). The smallest such chunk
    /// is chosen.
    PerfectPipeline,
}

/// A chunk and its predicted performance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The size of the chunk.
    pub chunk_bytes: u64,
    /// Full updates per second.
    pub updates_per_s: f64,
    /// Latency of a partial update in microseconds.
    pub latency_us: f64,
}

/// Why no chunk meets a guarantee.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// No measured point is usable.
    #[error("the curve has no usable point")]
    NoCurve,
    /// No chunk gives enough updates.
    #[error("{wanted} full updates per second are not possible; at most {best:.2}, with chunks of {chunk_bytes} bytes")]
    TooManyUpdates {
        /// The required value.
        wanted: f64,
        /// The best possible value.
        best: f64,
        /// The chunk with the best value.
        chunk_bytes: u64,
    },
    /// No chunk arrives soon enough.
    #[error(
        "a partial update within {wanted_us} us is not possible; at best {best_us:.1} us, with chunks of {chunk_bytes} bytes"
    )]
    TooSoon {
        /// The required value.
        wanted_us: f64,
        /// The best possible value.
        best_us: f64,
        /// The chunk with the best value.
        chunk_bytes: u64,
    },
    /// Moving a chunk takes longer than computing on it, for every size.
    #[error("computing for {compute_ns_per_byte} ns per byte takes less time than moving the byte, for every chunk")]
    AlwaysWaiting {
        /// The computing time that was given.
        compute_ns_per_byte: f64,
    },
}

impl Curve {
    /// A curve from measured points, in any order. Points without positive finite values are
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoCurve`] if no point is left.
    pub fn new(mut points: Vec<Point>) -> Result<Self, PlanError> {
        let usable = |v: f64| v.is_finite() && v > 0.0;
        points.retain(|p| p.bytes > 0 && usable(p.one_way_us) && usable(p.bandwidth_bytes_s));
        points.sort_by_key(|p| p.bytes);
        points.dedup_by_key(|p| p.bytes);
        if points.is_empty() { Err(PlanError::NoCurve) } else { Ok(Self { points }) }
    }

    /// The measured points, by size.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The latency of a hop in microseconds: interpolated linearly between the points, and
    /// extrapolated with the nearest bandwidth.
    pub fn one_way_us(&self, bytes: u64) -> f64 {
        self.at(bytes, |p| p.one_way_us)
    }

    /// How long a chunk keeps the chain busy, in microseconds.
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
    /// The predicted performance of chunks of this size.
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
    ///
    /// # Errors
    ///
    /// If no chunk meets the guarantee. The error has the best possible value.
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

    /// The sizes that are considered, in ascending order.
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

    /// A transport that needs `each_us` for a message and `ns` for a byte.
    fn curve(each_us: f64, ns: f64) -> Curve {
        let sizes = [64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
        let point = |bytes: u64| {
            let time_us = each_us + bytes as f64 * ns / 1e3;
            Point { bytes, one_way_us: time_us, bandwidth_bytes_s: bytes as f64 * 1e6 / time_us }
        };
        Curve::new(sizes.map(point).to_vec()).unwrap()
    }

    /// The pipeline of the paper: 16 MB images through three hops with three copies.
    fn image(compute_ns_per_byte: f64) -> Shape {
        Shape { update_bytes: 16_000_000, hops: 3, copies: 3, compute_ns_per_byte, processors: 0 }
    }

    #[test]
    fn a_faster_transport_gets_smaller_chunks_and_answers_sooner() {
        // As in the paper: TCP 47.5 us and 510 Mbit/s, SocketVIA 9.5 us and 763 Mbit/s.
        let (tcp, via) = (curve(47.5, 15.7), curve(9.5, 10.5));
        // The most that TCP achieves in the paper.
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
    fn an_impossible_guarantee_is_reported_with_the_best_possible() {
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
