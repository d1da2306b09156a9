//! Max-min fairness by its definition, and time.

use super::*;
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;

const FREE: f64 = f64::INFINITY;

fn network(rates_bytes_us: &[f64]) -> Network {
    let mut network = Network::default();
    for &rate_bytes_us in rates_bytes_us {
        network.add_link(Link { rate_bytes_us, ..Link::new(0.0, 0.0) });
    }
    network
}

fn flow(network: &mut Network, path: &[LinkId]) -> FlowId {
    let flow = network.open(path, FREE);
    network.send(flow, 1000);
    flow
}

#[test]
fn one_flow_takes_as_long_as_its_bytes() {
    let mut n = network(&[10.0]);
    let f = flow(&mut n, &[0]);
    assert_eq!(n.advance(60.0), None);
    assert_eq!((n.now_us(), n.sent_bytes(f)), (60.0, 600.0));
    assert_eq!(n.advance(1e9), Some(f));
    assert_eq!((n.now_us(), n.sent_bytes(f)), (100.0, 1000.0));
    assert_eq!(n.advance(200.0), None);
}

#[test]
fn the_textbook_example() {
    // Two links of 10; one long flow over both, one more on the first, three more on the second.
    let mut n = network(&[10.0, 10.0]);
    let long = flow(&mut n, &[0, 1]);
    let first = flow(&mut n, &[0]);
    let second: Vec<FlowId> = (0..3).map(|_| flow(&mut n, &[1])).collect();
    assert_eq!(n.rate_bytes_us(long), 2.5);
    assert_eq!(n.rate_bytes_us(first), 7.5);
    assert!(second.iter().all(|&f| n.rate_bytes_us(f) == 2.5));
}

#[test]
fn a_link_that_changes_changes_rates_midway() {
    let mut n = network(&[10.0]);
    let f = flow(&mut n, &[0]);
    n.advance(50.0);
    n.set_link(0, Link::new(0.0, 0.0));
    assert_eq!(n.next_event_us(), None);
    n.advance(70.0);
    n.set_link(0, Link { rate_bytes_us: 1.0, ..n.link(0) });
    assert_eq!(n.advance(1e9), Some(f));
    assert_eq!(n.now_us(), 570.0);
}

#[test]
fn unused_bandwidth_goes_to_other_flows() {
    let mut n = network(&[10.0]);
    let (a, b) = (flow(&mut n, &[0]), flow(&mut n, &[0]));
    n.send(b, 1000);
    assert_eq!((n.advance(1e9), n.now_us()), (Some(a), 200.0));
    assert_eq!((n.advance(1e9), n.now_us()), (Some(b), 300.0));
    n.send(a, 100);
    n.cancel(a);
    assert_eq!(n.advance(1e9), None);
}

#[test]
fn windows_and_loss_limit_one_flow() {
    let mut n = Network::default();
    let link = n.add_link(Link { loss: 0.015, ..Link::new(1000.0, 500.0) });
    let (lossy, small) = (n.open(&[link], FREE), n.open(&[link], 1000.0));
    n.send(lossy, 1 << 20);
    n.send(small, 1 << 20);
    assert!((n.rate_bytes_us(lossy) - 14.48).abs() < 1e-9);
    assert_eq!(n.rate_bytes_us(small), 1.0);
}

#[test]
fn shares_are_max_min_fair_in_random_networks() {
    for_seeds(200, |seed| {
        let mut rng = Rng::new(seed);
        let rates: Vec<f64> = (0..1 + rng.below(8)).map(|_| 1.0 + rng.below(20) as f64).collect();
        let mut n = network(&rates);
        let mut paths: Vec<Vec<LinkId>> = Vec::new();
        for _ in 0..1 + rng.below(30) {
            let mut path: Vec<LinkId> =
                (0..1 + rng.below(3)).map(|_| rng.below(rates.len() as u64) as LinkId).collect();
            path.sort_unstable();
            path.dedup();
            flow(&mut n, &path);
            paths.push(path);
            // Dividing bit by bit must come to the same as at once.
            n.next_event_us();
        }
        let gone = rng.below(paths.len() as u64) as FlowId;
        n.cancel(gone);
        let got: Vec<f64> = (0..paths.len()).map(|f| n.rate_bytes_us(f)).collect();
        assert_eq!(got[gone], 0.0);
        let used = |l: LinkId| (0..paths.len()).filter(|&f| paths[f].contains(&l)).map(|f| got[f]).sum::<f64>();
        for (l, rate) in rates.iter().enumerate() {
            assert!(used(l) <= rate + 1e-9, "link {l} carries {} of {rate}", used(l));
        }
        for f in (0..paths.len()).filter(|&f| f != gone) {
            // Definition: every flow crosses a full link on which no flow has more.
            let bottleneck = paths[f].iter().any(|&l| {
                let most = (0..paths.len()).filter(|&o| paths[o].contains(&l)).map(|o| got[o]).fold(0.0, f64::max);
                used(l) >= rates[l] - 1e-9 && got[f] >= most - 1e-9
            });
            assert!(bottleneck, "flow {f} could have more than {}", got[f]);
        }
    });
}

#[test]
fn a_thousand_hosts_finish() {
    // Every host sends to its neighbour and to the host half around the ring; 2000 flows over 2000
    // ports.
    const HOSTS: usize = 1000;
    let mut n = network(&[12.5; 2 * HOSTS]);
    for host in 0..HOSTS {
        for to in [(host + 1) % HOSTS, (host + HOSTS / 2) % HOSTS] {
            let f = n.open(&[host, HOSTS + to], FREE);
            n.send(f, 100_000 + host as u64);
        }
    }
    let finished = std::iter::from_fn(|| n.advance(1e12)).count();
    assert_eq!(finished, 2 * HOSTS);
}
