//! A short transfer beside long ones: how much longer it takes than alone.

use crate::one_way::OneWay;
use multirail_sim::schedule::Rail;
use multirail_sim::streams::Setup;

const RATES_MBIT_S: [f64; 2] = [100.0, 25.0];
/// What both rails carry together.
const RATE_BYTES_US: f64 = 125.0 / 8.0;
const DELAY_US: f64 = 10_000.0;
const RTT_US: f64 = 2.0 * DELAY_US;
const SHORT_BYTES: usize = 1024;
const SHORT_COUNT: usize = 30;
/// An odd time, so that short transfers begin at any moment of the turns of long ones.
const EVERY_US: f64 = 37_310.0;

fn setup(queue_bytes: u64) -> Setup {
    let mut rails = RATES_MBIT_S.map(|rate_mbit_s| Rail::new(rate_mbit_s, DELAY_US));
    rails.iter_mut().for_each(|rail| rail.link.queue_bytes = queue_bytes);
    Setup::new(rails.to_vec())
}

/// How long short transfers take, one after another from `from_us` on, while streams that always
/// have data fill the rails.
fn short_transfers_us(setup: &Setup, endless: usize, from_us: f64) -> Vec<f64> {
    let mut flows = OneWay::new(setup);
    for _ in 0..endless {
        flows.open_endless();
    }
    flows.run_until(from_us);
    let mut took_us = Vec::new();
    let mut filled_from = (flows.read_bytes(), flows.session.now_us());
    for number in 0..SHORT_COUNT {
        let begun_us = flows.session.now_us();
        let short = flows.send(SHORT_BYTES);
        while flows.read_of(short) < SHORT_BYTES as u64 {
            flows.step(f64::INFINITY);
        }
        took_us.push(flows.session.now_us() - begun_us);
        flows.run_until(begun_us + EVERY_US);
        // The long ones need some round trips until they fill the rails.
        if number == 6 {
            filled_from = (flows.read_bytes(), flows.session.now_us());
        }
    }
    let (read, passed_us) = (flows.read_bytes() - filled_from.0, flows.session.now_us() - filled_from.1);
    let least = 0.97 * RATE_BYTES_US * passed_us;
    assert!(endless == 0 || read as f64 > least, "the rails are idle: {read} bytes of {least}");
    took_us
}

/// The most round trips by which short transfers beside endless ones take longer than alone.
fn most_more_rtts(queue_bytes: u64, endless: usize, from_us: f64) -> f64 {
    let setup = setup(queue_bytes);
    let alone = short_transfers_us(&setup, 0, from_us);
    let beside = short_transfers_us(&setup, endless, from_us);
    let more_rtts = beside.iter().zip(&alone).map(|(beside, alone)| (beside - alone) / RTT_US).fold(0.0, f64::max);
    println!(
        "queues of {queue_bytes} bytes, {endless} long streams, from {from_us} us: {more_rtts:.2} round trips more"
    );
    more_rtts
}

#[test]
fn a_short_transfer_beside_long_ones_takes_at_most_two_round_trips_more() {
    // The bandwidth-delay product of the faster rail: what a router should be able to queue.
    let full_queue_bytes = (RATES_MBIT_S[0] / 8.0 * RTT_US) as u64;
    // The rates are unknown at first. Later, a turn of each of 64 streams would take more than three
    // round trips; at first, they are as new as the short one.
    for (endless, from_us) in [(1, 0.0), (1, 1e6), (64, 1e6)] {
        assert!(most_more_rtts(0, endless, from_us) < 1.0, "nothing but the turns of streams delays it");
        assert!(most_more_rtts(full_queue_bytes, endless, from_us) <= 2.0, "a full queue delays it by a round trip");
    }
}
