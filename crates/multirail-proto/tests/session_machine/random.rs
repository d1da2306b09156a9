//! Random sequences of events: every byte arrives once and in its place, and nothing waits for
//! ever.

use super::pair::Pair;
use multirail_proto::rng::Rng;
use multirail_proto::session::COPY_LIMIT_BYTES;
use multirail_proto::striping::Strategy;
use multirail_testing::for_seeds;
use std::time::Duration;

/// Lengths around the limits of the machine: empty, one packet, the copy limit, and more.
const LENGTHS: [u64; 8] = [0, 1, 100, 5_000, 65_535, 65_536, 65_537, 300_000];

/// What can go wrong in a run.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    cuts: bool,
    stalls: bool,
    late_reports: bool,
}

fn run(rng: &mut Rng, strategy: Strategy, trouble: Trouble) {
    println!("{strategy:?}, {trouble:?}");
    let fragment_bytes = [1000, 2048, 65_536][rng.below(3) as usize];
    let channels = 1 + rng.below(4) as u32;
    let mut pair = Pair::new(strategy, fragment_bytes, channels);
    for _ in 0..400 {
        let side = rng.below(2) as usize;
        match rng.below(20) {
            0..3 => {
                let length = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
                let copied = length <= COPY_LIMIT_BYTES || rng.below(2) == 0;
                pair.send(side, length, copied, 1 + rng.below(2) * 4095);
            }
            3..8 => pair.transmit(side, rng),
            8..11 => pair.deliver(rng),
            11..15 => pair.receive(side, rng),
            15 if trouble.late_reports => pair.exchange_control(side, rng.below(40) as usize),
            15 | 16 => pair.exchange_control(side, usize::MAX),
            17 => {
                let most_ms = [5, 50, 500][rng.below(3) as usize];
                pair.advance(Duration::from_millis(rng.below(most_ms)));
            }
            18 => pair.dial(rng.below(3) > 0),
            _ => {
                let wire = rng.below(pair.wires.len() as u64) as usize;
                match rng.below(8) {
                    0 | 1 if trouble.cuts => pair.cut(wire),
                    2 if trouble.cuts => pair.cut_control(),
                    3..6 if trouble.stalls => pair.wires[wire].stalled ^= true,
                    _ => {}
                }
            }
        }
    }
    pair.drain(rng);
}

#[test]
fn every_byte_arrives_once_and_in_its_place() {
    for_seeds(60, |seed| {
        let mut rng = Rng::new(seed);
        let strategy = Strategy::ALL[rng.below(Strategy::ALL.len() as u64) as usize];
        let mut maybe = || rng.below(2) == 0;
        let trouble = Trouble { cuts: maybe(), stalls: maybe(), late_reports: maybe() };
        run(&mut rng, strategy, trouble);
    });
}
