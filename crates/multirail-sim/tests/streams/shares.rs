//! How streams that always have data share the rails.

use crate::one_way::OneWay;
use multirail_proto::streams::{MAX_WINDOW_BYTES, StreamId};
use multirail_sim::schedule::Rail;
use multirail_sim::streams::Setup;

/// How far apart equal shares can be at any two moments: a turn of 16 KiB, and at either of them what the
/// far rail has under way. It may be of one stream, and what came over the other rail waits for it.
const TOLERANCE_BYTES: u64 = (16 << 10) + 2 * (25.0 / 8.0 * 30_000.0) as u64;
/// Long enough that shares which differ by 4 % would be further apart.
const EVERY_US: f64 = 5e6;

fn setup() -> Setup {
    Setup::new(vec![Rail::new(100.0, 10_000.0), Rail::new(25.0, 30_000.0)])
}

/// Opens streams one after another, and lets their windows grow.
fn start(flows: &mut OneWay, count: usize) -> Vec<StreamId> {
    let open = |_| {
        flows.run_until(flows.session.now_us() + 50_000.0);
        flows.open_endless()
    };
    let streams = (0..count).map(open).collect();
    flows.run_until(flows.session.now_us() + 1e6);
    streams
}

/// What is read of each stream in [`EVERY_US`].
fn shares(flows: &mut OneWay, streams: &[StreamId]) -> Vec<u64> {
    let before: Vec<u64> = streams.iter().map(|stream| flows.read_of(*stream)).collect();
    flows.run_until(flows.session.now_us() + EVERY_US);
    streams.iter().zip(before).map(|(stream, before)| flows.read_of(*stream) - before).collect()
}

fn spread(shares: &[u64]) -> u64 {
    let (least, most) = (shares.iter().min().expect("some"), shares.iter().max().expect("some"));
    println!("shares from {least} to {most}");
    most - least
}

#[test]
fn streams_that_always_have_data_get_equal_shares() {
    for count in [2, 5, 20] {
        let mut flows = OneWay::new(&setup());
        let streams = start(&mut flows, count);
        let shares = shares(&mut flows, &streams);
        assert!(spread(&shares) <= TOLERANCE_BYTES, "{shares:?}");
    }
}

#[test]
fn a_stream_whose_reader_stops_does_not_slow_the_others() {
    let mut flows = OneWay::new(&setup());
    let streams = start(&mut flows, 5);
    let before: u64 = shares(&mut flows, &streams).iter().sum();
    let (stopped, others) = (streams[2], &[streams[0], streams[1], streams[3], streams[4]]);
    flows.stopped.push(stopped);
    let read = flows.read_of(stopped);
    // Until its window is full.
    flows.run_until(flows.session.now_us() + 2e6);
    let after = shares(&mut flows, others);
    assert!(spread(&after) <= TOLERANCE_BYTES, "{after:?}");
    assert!(after.iter().sum::<u64>() > before - TOLERANCE_BYTES, "the rails are idle: {after:?}, {before} before");
    assert_eq!(flows.read_of(stopped), read, "its reader has stopped");
    flows.stopped.clear();
    flows.read(stopped);
    let held = flows.read_of(stopped) - read;
    assert!(held > 0 && held <= MAX_WINDOW_BYTES, "{held} bytes were kept for the reader");
    flows.run_until(flows.session.now_us() + 2e6);
    let again = shares(&mut flows, &streams);
    assert!(spread(&again) <= TOLERANCE_BYTES, "it takes part again: {again:?}");
}
