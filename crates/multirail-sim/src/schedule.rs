//! The rails between two hosts, their changes, and the time of an ideal schedule.

use super::network::Link;
use multirail_proto::rng::Rng;

/// A path between the two hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Rail {
    /// Rate, delay, loss and queue at the beginning.
    pub link: Link,
    /// The number of channels on the rail.
    pub channels: usize,
    /// The number of foreign flows at the beginning. Each takes as much as a channel.
    pub load_flows: usize,
    /// The most by which a packet is later than the link's delay. Packets of a connection stay in
    /// order, and their delays are the same in each run.
    pub jitter_us: f64,
}

impl Rail {
    /// A rail with one channel and no foreign flows.
    pub fn new(rate_mbit_s: f64, delay_us: f64) -> Self {
        Self { link: Link::new(rate_mbit_s, delay_us), channels: 1, load_flows: 0, jitter_us: 0.0 }
    }
}

/// A change of a rail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The rail has this rate from now on, while it is up.
    Rate {
        /// Mbit/s; 0 is a stall that no host is told of.
        mbit_s: f64,
    },
    /// The rail carries this many foreign flows from now on.
    Load {
        /// The number of flows.
        flows: usize,
    },
    /// The rail carries nothing until it is up. Its channels are lost if that takes longer than
    /// hosts wait.
    Down,
    /// The rail is up again, as before.
    Up,
}

/// A change at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct At {
    /// The time since the message, or the session of streams, began.
    pub at_us: f64,
    /// The rail.
    pub rail: usize,
    /// The change.
    pub change: Change,
}

impl At {
    /// Makes a change.
    pub fn new(at_us: f64, rail: usize, change: Change) -> Self {
        Self { at_us, rail, change }
    }
}

/// Foreign flows on every rail, up to `max_flows` at a time, whose number changes every `mean_us`
/// on average.
pub fn random_load(seed: u64, rails: usize, max_flows: u64, mean_us: f64, until_us: f64) -> Vec<At> {
    let mut rng = Rng::new(seed);
    let mut schedule = Vec::new();
    for rail in 0..rails {
        let mut at_us = 0.0;
        while at_us < until_us {
            schedule.push(At::new(at_us, rail, Change::Load { flows: rng.below(max_flows + 1) as usize }));
            at_us += rng.exponential(mean_us);
        }
    }
    schedule
}

/// The earliest time at which `bytes` could have arrived, had the changes been known: at that time
/// T, every rail has delivered all that it could carry until T less its delay. A rail with foreign
/// flows counts with the share of its channels. Infinite if the rails never carry that much.
pub fn ideal_finish_us(rails: &[Rail], schedule: &[At], bytes: u64) -> f64 {
    // The rate at the far end changes when a rail's change has travelled there, and with the first
    // byte.
    let mut now: Vec<(Rail, bool)> = rails.iter().map(|r| (r.clone(), true)).collect();
    let mut arriving = vec![0.0; rails.len()];
    let mut edges: Vec<(f64, usize, Option<Change>)> =
        (0..rails.len()).map(|r| (rails[r].link.delay_us, r, None)).collect();
    edges.extend(schedule.iter().map(|a| (a.at_us + rails[a.rail].link.delay_us, a.rail, Some(a.change))));
    edges.sort_by(|a, b| a.0.total_cmp(&b.0));

    let (mut at_us, mut left) = (0.0, bytes as f64);
    let first = edges.first().map_or(0.0, |e| e.0);
    for (edge_us, rail, change) in edges {
        let rate: f64 = arriving.iter().sum();
        if left - rate * (edge_us - at_us) <= 0.0 && edge_us > first {
            break;
        }
        left -= rate * (edge_us - at_us);
        at_us = edge_us;
        let (state, up) = &mut now[rail];
        match change {
            None => {}
            Some(Change::Rate { mbit_s }) => state.link.rate_bytes_us = mbit_s / 8.0,
            Some(Change::Load { flows }) => state.load_flows = flows,
            Some(Change::Down) => *up = false,
            Some(Change::Up) => *up = true,
        }
        arriving[rail] = if *up { available_bytes_us(state) } else { 0.0 };
    }
    let rate: f64 = arriving.iter().sum();
    if left <= 0.0 { at_us } else { at_us + left / rate }
}

/// The rate of all channels of a rail together.
pub(super) fn available_bytes_us(rail: &Rail) -> f64 {
    rail.link.rate_bytes_us * rail.channels as f64 / (rail.channels + rail.load_flows).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ideal_of_steady_rails_is_bytes_over_rates() {
        // 12.5 + 12.5 bytes/us.
        let rails = [Rail::new(100.0, 50.0), Rail::new(100.0, 50.0)];
        assert_eq!(ideal_finish_us(&rails, &[], 25_000), 1_050.0);
        assert_eq!(ideal_finish_us(&rails, &[], 0), 50.0);
    }

    #[test]
    fn a_far_rail_helps_from_its_delay_on() {
        let rails = [Rail::new(100.0, 0.0), Rail::new(100.0, 1_000.0)];
        assert_eq!(ideal_finish_us(&rails, &[], 12_500), 1_000.0);
        assert_eq!(ideal_finish_us(&rails, &[], 37_500), 2_000.0);
    }

    #[test]
    fn changes_count_from_when_they_happen() {
        let rails = [Rail::new(80.0, 0.0)];
        let drop = [At::new(100.0, 0, Change::Rate { mbit_s: 8.0 })];
        assert_eq!(ideal_finish_us(&rails, &drop, 1_100), 200.0);
        let outage = [At::new(100.0, 0, Change::Down), At::new(500.0, 0, Change::Up)];
        assert_eq!(ideal_finish_us(&rails, &outage, 1_100), 510.0);
        assert_eq!(ideal_finish_us(&rails, &outage[..1], 1_100), f64::INFINITY);
        let load = [At::new(0.0, 0, Change::Load { flows: 3 })];
        assert_eq!(ideal_finish_us(&rails, &load, 1_000), 400.0);
    }

    #[test]
    fn load_is_the_same_for_the_same_seed() {
        let load = |seed| random_load(seed, 2, 3, 1_000.0, 10_000.0);
        assert_eq!(load(1), load(1));
        assert_ne!(load(1), load(2));
    }
}
