use super::*;
use crate::rng::Rng;
use multirail_testing::for_seeds;

const PORTS: usize = 4;

fn ports(host: u8, count: usize) -> Vec<HelloPort> {
    let port = |number| HelloPort {
        mac: Mac([2, 0, 0, 0, host, number as u8]),
        usable: true,
        speed_mbit_s: 100 + number as u32,
    };
    (0..count).map(port).collect()
}

/// Hosts on separate switches, one for each port number. A path (sender, receiver, port) can be
/// cut.
struct Switches {
    hosts: Vec<Exchange>,
    cut: Vec<(usize, usize, usize)>,
    now_us: u64,
    recorded: Vec<(usize, Mac, Hello)>,
}

impl Switches {
    fn new(hosts: u8) -> Self {
        let host = |h| Exchange::new(ports(h, PORTS), 1000 + u64::from(h));
        Self { hosts: (0..hosts).map(host).collect(), cut: Vec::new(), now_us: 5, recorded: Vec::new() }
    }

    fn round(&mut self) {
        for sender in 0..self.hosts.len() {
            for port in 0..PORTS {
                let hello = self.hosts[sender].hello(port, self.now_us);
                let hello = Hello::decode(&hello.encode()).unwrap();
                let source = hello.ports[port].mac;
                self.recorded.push((port, source, hello.clone()));
                for receiver in (0..self.hosts.len()).filter(|&receiver| receiver != sender) {
                    if !self.cut.contains(&(sender, receiver, port)) {
                        self.hosts[receiver].handle_hello(port, source, &hello, self.now_us);
                    }
                }
            }
        }
        self.now_us += INTERVAL_US;
    }

    fn usable(&self, host: usize) -> Vec<u16> {
        self.hosts[host].peers(self.now_us - INTERVAL_US).iter().map(|peer| peer.usable).collect()
    }
}

#[test]
fn hosts_find_each_other_in_two_rounds() {
    let mut net = Switches::new(3);
    net.round();
    assert_eq!(net.usable(2), [] as [u16; 0], "no host has reported the last one yet");
    net.round();
    for host in 0..3 {
        assert_eq!(net.usable(host), [0b1111, 0b1111]);
    }
    let peers = net.hosts[1].peers(net.now_us);
    let expected =
        ports(0, PORTS).iter().map(|p| HostPort { mac: p.mac, speed_mbit_s: p.speed_mbit_s }).collect::<Vec<_>>();
    assert_eq!(peers[0].ports, expected);
    assert_eq!(net.hosts[0].counts(), Counts { accepted: 2 * 2 * PORTS as u64, ..Counts::default() });
}

#[test]
fn a_port_that_is_silent_one_way_is_left_out_by_both_and_taken_back() {
    let mut net = Switches::new(2);
    (0..3).for_each(|_| net.round());
    net.cut = vec![(0, 1, 2)];
    let rounds_of_silence = SILENCE_US / INTERVAL_US;
    (0..rounds_of_silence - 1).for_each(|_| net.round());
    assert_eq!((net.usable(0), net.usable(1)), (vec![0b1111], vec![0b1111]), "just inside");
    (0..2).for_each(|_| net.round());
    assert_eq!(
        (net.usable(0), net.usable(1)),
        (vec![0b1011], vec![0b1011]),
        "one more round passes before it is reported"
    );
    net.cut.clear();
    (0..2).for_each(|_| net.round());
    assert_eq!((net.usable(0), net.usable(1)), (vec![0b1111], vec![0b1111]));
}

#[test]
fn a_port_that_its_host_cannot_use_is_left_out_at_once() {
    let mut net = Switches::new(2);
    (0..2).for_each(|_| net.round());
    net.hosts[0].set_port(3, false);
    net.round();
    assert_eq!((net.usable(0), net.usable(1)), (vec![0b0111], vec![0b0111]));
    net.hosts[0].set_port(3, true);
    net.round();
    assert_eq!((net.usable(0), net.usable(1)), (vec![0b1111], vec![0b1111]));
}

#[test]
fn a_silent_host_is_no_peer_and_a_restarted_one_is() {
    let mut net = Switches::new(2);
    (0..2).for_each(|_| net.round());
    assert_eq!(net.hosts[0].peers(net.now_us + SILENCE_US), []);
    net.hosts[1] = Exchange::new(ports(1, PORTS), 2000);
    net.round();
    assert_eq!(net.usable(1), [] as [u16; 0], "the report concerns its earlier instance");
    net.round();
    assert_eq!((net.usable(0), net.usable(1)), (vec![0b1111], vec![0b1111]));
}

#[test]
fn replayed_hellos_change_nothing() {
    let mut net = Switches::new(2);
    (0..3).for_each(|_| net.round());
    let recorded = std::mem::take(&mut net.recorded);
    // The recorded hellos are of an earlier instance of host 0.
    net.hosts[0] = Exchange::new(ports(0, PORTS), 3000);
    (0..3).for_each(|_| net.round());
    let before = net.hosts[1].counts();
    let later_us = net.now_us + SILENCE_US;
    for (port, source, hello) in recorded.iter().chain(&net.recorded).filter(|(_, source, _)| source.0[4] == 0) {
        net.hosts[1].handle_hello(*port, *source, hello, later_us);
    }
    let after = net.hosts[1].counts();
    assert_eq!(after.accepted, before.accepted);
    assert_eq!(after.replayed, before.replayed + 6 * PORTS as u64);
    assert_eq!(net.hosts[1].peers(later_us), []);
    // A host without a record of host 0 accepts them, but they cannot name its instance.
    let mut fresh = Exchange::new(ports(1, PORTS), 9000);
    for (port, source, hello) in recorded.iter().filter(|(_, source, _)| source.0[4] == 0) {
        fresh.handle_hello(*port, *source, hello, 1);
    }
    assert_eq!((fresh.peers(1), fresh.counts().accepted), (vec![], 3 * PORTS as u64));
}

#[test]
fn joined_switches_swapped_cables_and_false_addresses_are_counted() {
    let mut host = Exchange::new(ports(1, PORTS), 7);
    let mut other = Exchange::new(ports(2, PORTS), 7);
    let hello = other.hello(1, 0);
    host.handle_hello(0, hello.ports[1].mac, &hello, 0);
    assert_eq!(host.counts().other_port, 1);
    host.handle_hello(1, hello.ports[0].mac, &hello, 0);
    let ours = Exchange::new(ports(1, PORTS), 9).hello(1, 0);
    host.handle_hello(1, ours.ports[1].mac, &ours, 0);
    assert_eq!(host.counts().contradictory, 2);
    host.handle_hello(1, hello.ports[1].mac, &hello, 0);
    let mut thief = other.hello(1, 0);
    thief.ports[0].mac = Mac([2, 9, 9, 9, 9, 9]);
    host.handle_hello(1, thief.ports[1].mac, &thief, 0);
    assert_eq!(host.counts(), Counts { accepted: 1, other_port: 1, contradictory: 3, ..Counts::default() });
}

#[test]
fn as_many_hosts_as_allowed_hear_of_each_other_and_no_more_are_taken() {
    let mac = |h: usize, p: u8| Mac([2, 1, 0, (h >> 8) as u8, h as u8, p]);
    let two =
        |h: usize| (0..2).map(|p| HelloPort { mac: mac(h, p), usable: true, speed_mbit_s: 0 }).collect::<Vec<_>>();
    let mut host = Exchange::new(ports(1, 2), 7);
    for h in 0..=MAX_PEERS {
        for port in 0..2 {
            let hello = Exchange::new(two(h), 7).hello(port, 0);
            host.handle_hello(port, mac(h, port as u8), &hello, 0);
        }
    }
    assert_eq!(host.counts(), Counts { accepted: 2 * MAX_PEERS as u64, too_many: 2, ..Counts::default() });
    // One round of hellos reports every host.
    let mut reported = std::collections::BTreeSet::new();
    for _ in 0..MAX_PEERS.div_ceil(MAX_HEARD) {
        reported.extend(host.hello(0, 0).heard.iter().map(|heard| heard.host));
    }
    assert_eq!(reported.len(), MAX_PEERS);
    // A host that was forgotten makes room.
    let late = Exchange::new(two(MAX_PEERS), 7).hello(0, 0);
    host.handle_hello(0, mac(MAX_PEERS, 0), &late, FORGET_US);
    assert_eq!(host.counts().accepted, 2 * MAX_PEERS as u64 + 1);
}

#[test]
fn hosts_with_unlike_numbers_of_ports_use_those_that_both_have() {
    let (mut two, mut four) = (Exchange::new(ports(1, 2), 1), Exchange::new(ports(2, 4), 1));
    for now_us in [0, 1] {
        for port in 0..2 {
            let hello = two.hello(port, now_us);
            four.handle_hello(port, hello.ports[port].mac, &hello, now_us);
            let hello = four.hello(port, now_us);
            two.handle_hello(port, hello.ports[port].mac, &hello, now_us);
        }
    }
    assert_eq!((two.peers(1)[0].usable, four.peers(1)[0].usable), (0b11, 0b11));
}

/// A port that is not heard in both directions is never in the table, whatever happens to hellos.
#[test]
fn by_seed_lost_late_and_repeated_hellos_do_no_harm() {
    for_seeds(50, |seed| {
        let mut rng = Rng::new(seed);
        let mut net = Switches::new(2);
        let mut late: Vec<(usize, usize, Mac, Hello)> = Vec::new();
        for _ in 0..200 {
            net.now_us += INTERVAL_US;
            for sender in 0..2 {
                for port in 0..PORTS {
                    let hello = net.hosts[sender].hello(port, net.now_us);
                    let source = hello.ports[port].mac;
                    match rng.below(4) {
                        0 => {}
                        1 => late.push((1 - sender, port, source, hello)),
                        _ => net.hosts[1 - sender].handle_hello(port, source, &hello, net.now_us),
                    }
                }
            }
            if !late.is_empty() && rng.below(2) == 0 {
                let (receiver, port, source, hello) = late[rng.below(late.len() as u64) as usize].clone();
                net.hosts[receiver].handle_hello(port, source, &hello, net.now_us);
            }
        }
        for host in 0..2 {
            assert!(net.hosts[host].peers(net.now_us).iter().all(|peer| peer.usable & !0b1111 == 0));
            assert_eq!(net.hosts[host].peers(net.now_us + SILENCE_US), []);
        }
        (0..3).for_each(|_| net.round());
        assert_eq!((net.usable(0), net.usable(1)), (vec![0b1111], vec![0b1111]));
    });
}
