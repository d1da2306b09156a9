//! What each strategy comes to in the simulator: correctness asserted, distance from the ideal printed
//! (`cargo test -p multirail-proto --test sim_message -- --nocapture`).

use multirail_proto::sim::message::{Outcome, Setup, run};
use multirail_proto::sim::schedule::{At, Change, Rail, random_load};
use multirail_proto::striping::Strategy;

struct Case {
    name: &'static str,
    rails: Vec<Rail>,
    schedule: Vec<At>,
    /// Nothing changes, so there is no excuse.
    fixed: bool,
}

fn rails(rates_mbit_s: &[f64]) -> Vec<Rail> {
    rates_mbit_s.iter().map(|&r| Rail::new(r, 50.0)).collect()
}

fn cases(message_bytes: u64) -> Vec<Case> {
    // Half of what two rails of 100 Mbit/s need.
    let midway_us = message_bytes as f64 / 25.0 / 2.0;
    let fixed = |name, rails| Case { name, rails, schedule: Vec::new(), fixed: true };
    let changing = |name, change: Change| Case {
        name,
        rails: rails(&[100.0, 100.0]),
        schedule: vec![At::new(midway_us, 1, change)],
        fixed: false,
    };
    vec![
        fixed("100", rails(&[100.0])),
        fixed("100+100", rails(&[100.0; 2])),
        fixed("100+25", rails(&[100.0, 25.0])),
        fixed("100+10", rails(&[100.0, 10.0])),
        fixed("4x100", rails(&[100.0; 4])),
        fixed("3 unequal", rails(&[100.0, 60.0, 20.0])),
        fixed("5 unequal", rails(&[100.0, 80.0, 60.0, 40.0, 20.0])),
        fixed("7 unequal", rails(&[1000.0, 300.0, 100.0, 100.0, 50.0, 20.0, 10.0])),
        fixed("10 and 60 ms", vec![Rail::new(100.0, 10_000.0), Rail::new(100.0, 60_000.0)]),
        changing("to a tenth", Change::Rate { mbit_s: 10.0 }),
        changing("down", Change::Down),
        changing("stall", Change::Rate { mbit_s: 0.0 }),
    ]
}

fn check(outcome: &Outcome, setup: &Setup) {
    let delivered: u64 = outcome.channel_bytes.iter().sum();
    assert_eq!(delivered, setup.message_bytes + outcome.duplicate_bytes);
    assert!(outcome.finish_us >= outcome.ideal_us - 1e-6, "faster than possible: {outcome:?}");
}

#[test]
fn distance_from_the_ideal() {
    for known_rates in [true, false] {
        for message_bytes in [64 << 10, 512 << 10, 1 << 20, 8 << 20] {
            let title = format!("{} KiB, rates {}", message_bytes >> 10, if known_rates { "known" } else { "unknown" });
            println!("\n{title:30}{}", Strategy::ALL.map(|s| format!("{:>20}", s.name())).concat());
            for case in cases(message_bytes) {
                let mut line = format!("{:30}", case.name);
                for strategy in Strategy::ALL {
                    let mut setup = Setup::new(strategy, message_bytes, case.rails.clone());
                    setup.schedule = case.schedule.clone();
                    setup.known_rates = known_rates;
                    match run(&setup) {
                        Ok(outcome) => {
                            check(&outcome, &setup);
                            line += &format!("{:>+19.1}%", 100.0 * outcome.excess());
                            if strategy == Strategy::Adaptive {
                                let messages = outcome.headers + outcome.starts + outcome.continues;
                                line += &format!("{messages:>6} headers {:>3} again", outcome.rescues);
                                if case.fixed && known_rates && message_bytes >= 1 << 20 {
                                    assert!(outcome.excess() < 0.25, "{}: {outcome:?}", case.name);
                                }
                            }
                        }
                        Err(stalled) => {
                            // Only a rail that stalls in silence can hold a message up, and only where nobody re-sends.
                            assert!(case.name == "stall" && strategy != Strategy::Adaptive, "{}: {stalled}", case.name);
                            line += &format!("{:>20}", "never");
                        }
                    }
                }
                println!("{line}");
            }
        }
    }
}

/// Section 5.2: 2 MiB in fragments of 2 KiB over four channels. The paper measured 4 to 5 *Start*s without load and 7.0 to
/// 8.1 with random load; equation (10) gives 12.
#[test]
fn two_ended_start_messages() {
    let setup = Setup::new(Strategy::TwoEnded, 2 << 20, rails(&[100.0; 4]));
    let fragments = setup.message_bytes / setup.fragment_bytes;
    let equal = run(&setup).unwrap();
    check(&equal, &setup);
    println!("no load: {} starts", equal.starts);
    assert_eq!(equal.starts + equal.continues, fragments);
    assert!((4..=5).contains(&equal.starts), "{}", equal.starts);

    for (max_flows, mean_us) in [(1, 20_000.0), (3, 20_000.0), (3, 5_000.0), (8, 20_000.0)] {
        let mut counts: Vec<u64> = (0..50)
            .map(|seed| {
                let schedule = random_load(seed, 4, max_flows, mean_us, 1e6);
                let loaded = Setup { schedule, known_rates: false, ..setup.clone() };
                let outcome = run(&loaded).unwrap();
                check(&outcome, &loaded);
                assert_eq!(outcome.starts + outcome.continues, fragments, "seed {seed}");
                assert!((4..=fragments / 4).contains(&outcome.starts), "seed {seed}: {}", outcome.starts);
                outcome.starts
            })
            .collect();
        counts.sort_unstable();
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        println!(
            "0 to {max_flows} load flows, changing every {} ms: {mean:.1} starts on average, {} to {}",
            mean_us / 1e3,
            counts[0],
            counts[counts.len() - 1]
        );
    }
}
