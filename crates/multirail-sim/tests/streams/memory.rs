//! What a host keeps for readers that have stopped.

use crate::one_way::OneWay;
use multirail_proto::streams::{INITIAL_WINDOW_BYTES, MAX_GROWTH_BYTES, MAX_WINDOW_BYTES};
use multirail_sim::schedule::Rail;
use multirail_sim::streams::Setup;

/// Twice as many streams as can have the largest window.
const STREAMS: u64 = 2 * MAX_GROWTH_BYTES / MAX_WINDOW_BYTES;

#[test]
fn what_is_kept_for_all_readers_together_is_limited() {
    let mut setup = Setup::new(vec![Rail::new(500.0, 10_000.0)]);
    // Nothing here depends on single packets.
    setup.packet_bytes = 64 << 10;
    let mut flows = OneWay::new(&setup);
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        // Each one has the rail for itself, until its window has grown and its reader stops.
        let stream = flows.open_endless();
        flows.run_until(flows.session.now_us() + 250_000.0);
        flows.stopped.push(stream);
        flows.run_until(flows.session.now_us() + 150_000.0);
        streams.push(stream);
    }
    let mut kept = Vec::new();
    for stream in streams {
        let before = flows.read_of(stream);
        flows.read(stream);
        kept.push(flows.read_of(stream) - before);
    }
    assert!(kept.iter().all(|kept| *kept <= MAX_WINDOW_BYTES), "{kept:?}");
    // Streams that begin last find room to grow as well.
    assert!(kept.iter().all(|kept| *kept > INITIAL_WINDOW_BYTES), "{kept:?}");
    let most = STREAMS * INITIAL_WINDOW_BYTES + MAX_GROWTH_BYTES;
    let all: u64 = kept.iter().sum();
    assert!(all <= most, "{all} bytes are kept, and {most} is the limit");
    assert!(all > most / 2, "windows have not grown: {all} bytes");
}
