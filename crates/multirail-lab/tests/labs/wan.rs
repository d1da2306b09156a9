//! Tests of rails with delay, jitter, loss and a bounded queue.
//!
//! No packet may be faster than the delay, and some packet must be nearly as fast. Other load on
//! the machine makes packets later, but not all of them.

use crate::common::{
    RECEIVE_TIMEOUT, assert_rate_mbit_s, assert_time_ms, lab, reaches, reaches_again, socket, supported, wan,
};
use multirail_lab::{Error, Lab, Wan, WanCounters};
use multirail_testing::{Requirement, skip};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// What the machine may add to the fastest round trips.
const LATE_MS: f64 = 6.0;
/// How much shorter a round trip may be, because packets that are due within some microseconds
/// leave together.
const EARLY_MS: f64 = 0.1;

#[track_caller]
fn assert_round_trip_ms(nominal_ms: f64, measure_ms: impl FnMut() -> f64) {
    assert_time_ms("round trip", nominal_ms - EARLY_MS, nominal_ms + LATE_MS, measure_ms);
}

/// Asserts the delay of UDP round trips.
#[track_caller]
fn assert_udp_round_trip_ms(lab: &Lab, from: (&str, IpAddr), to: (&str, IpAddr), nominal_ms: f64) {
    let (a, b) = (socket(lab, from.0, (from.1, 0)), socket(lab, to.0, (to.1, 0)));
    assert!(reaches_again(&a, &b), "addresses are resolved");
    assert_round_trip_ms(nominal_ms, || {
        let start = Instant::now();
        assert!(reaches(&a, &b) && reaches(&b, &a));
        start.elapsed().as_secs_f64() * 1e3
    });
}

/// The counters of the direction from a host. `None` where the kernel emulates the WAN.
fn counters(lab: &Lab, host: &str) -> Option<WanCounters> {
    lab.wan_counters().unwrap().into_iter().find(|counters| counters.host == host && !counters.to_host)
}

#[test]
fn a_delay_is_one_way_and_the_same_for_both_families_and_with_a_switch() {
    if !supported() {
        return;
    }
    for hosts in [&["a", "b"][..], &["a", "b", "c"]] {
        for rate in ["", "rate='100mbit'\n"] {
            let lab = wan(hosts, &format!("{rate}delay='10ms'"));
            let last = hosts[hosts.len() - 1];
            let v4 = |host| (host, IpAddr::from(lab.address(host, 0).unwrap()));
            let v6 = |host| (host, IpAddr::from(lab.address_v6(host, 0).unwrap().unwrap()));
            assert_udp_round_trip_ms(&lab, v4("a"), v4(last), 20.0);
            assert_udp_round_trip_ms(&lab, v6(last), v6("a"), 20.0);
        }
    }
}

#[test]
fn rates_are_within_bands_behind_a_delay_and_a_switch() {
    if !supported() {
        return;
    }
    for hosts in [&["a", "b"][..], &["a", "b", "c"]] {
        let lab = wan(hosts, "rate='100mbit'\ndelay='5ms'\nrates={b='20mbit'}");
        let near = |from: &str, to: &str, rate_mbit_s: f64| {
            let bytes = (rate_mbit_s * 1e6 / 8.0 * 1.1) as usize;
            let to = (to, lab.address(to, 0).unwrap());
            assert_rate_mbit_s(&lab, from, to, bytes, 0.6 * rate_mbit_s, 1.05 * rate_mbit_s);
        };
        near("b", "a", 20.0);
        // The port of a switch has the rate of its host.
        near("a", "b", if hosts.len() == 2 { 100.0 } else { 20.0 });
        if hosts.len() > 2 {
            near("a", "c", 100.0);
        }
        lab.set_rate(0, Some("50mbit".parse().unwrap())).unwrap();
        near("b", "a", 50.0);
    }
}

#[test]
fn the_lost_share_is_the_configured_one() {
    if !supported() {
        return;
    }
    const COUNT: usize = 10_000;
    // Bands of five standard deviations, and room for the few packets that hosts send on their own.
    for (percent, least, most) in [("1%", 50, 150), ("10%", 850, 1150), ("0%", 0, 0), ("100%", COUNT, COUNT)] {
        let lab = wan(&["a", "b"], "loss='0%'");
        let a = socket(&lab, "a", (lab.address("a", 0).unwrap(), 0));
        let b = socket(&lab, "b", (lab.address("b", 0).unwrap(), 0));
        assert!(reaches_again(&a, &b), "addresses are resolved");
        lab.set_wan(0, Wan::default().with_loss(percent.parse().unwrap())).unwrap();
        let before = counters(&lab, "a");
        let mut received = 0;
        for n in 1..=COUNT {
            a.send_to(&[0; 64], b.local_addr().unwrap()).unwrap();
            // At most as many packets at once as the buffer of a socket holds.
            if n % 50 == 0 {
                received += drain(&lab, &b, before.as_ref(), n);
            }
        }
        let lost = COUNT - received;
        assert!((least..=most).contains(&lost), "{percent}: {lost} of {COUNT} lost");
        if let (Some(before), Some(after)) = (before, counters(&lab, "a")) {
            let (arrived, gone) =
                (after.arrived_packets - before.arrived_packets, after.lost_packets - before.lost_packets);
            assert!((COUNT as u64..COUNT as u64 + 50).contains(&arrived), "{arrived} packets came");
            assert!((lost as u64..lost as u64 + 50).contains(&gone), "{gone} counted of {lost} lost");
            assert_eq!(arrived - gone, after.carried_packets - before.carried_packets);
            assert_eq!(after.dropped_packets, 0);
        }
    }
}

/// Receives the datagrams that are in flight from a, and returns their number.
///
/// If the direction has counters, waits until it has carried or lost all `sent` datagrams. Then
/// receives until none has arrived for a while.
fn drain(lab: &Lab, socket: &UdpSocket, before: Option<&WanCounters>, sent: usize) -> usize {
    let start = Instant::now();
    let done = |counters: &WanCounters| counters.carried_packets + counters.lost_packets;
    while let (Some(before), Some(now)) = (before, counters(lab, "a")) {
        if done(&now) - done(before) >= sent as u64 {
            break;
        }
        assert!(start.elapsed() < RECEIVE_TIMEOUT, "{now:?} after {sent} packets");
        std::thread::yield_now();
    }
    socket.set_nonblocking(true).unwrap();
    let mut received = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(3) {
        if socket.recv(&mut [0; 2048]).is_ok() {
            received += 1;
            last = Instant::now();
        }
    }
    received
}

#[test]
fn of_a_burst_the_packets_in_the_queue_arrive_and_few_others() {
    if !supported() {
        return;
    }
    // At 2 Mbit/s a packet takes 6 ms, so only a few leave while the burst is sent.
    for wan_too in ["", "delay='1ms'\n"] {
        for (queue, packets) in [("20p", 20), ("30280b", 20), ("5p", 5)] {
            let lab = wan(&["a", "b"], &format!("rate='2mbit'\n{wan_too}queue='{queue}'"));
            let a = socket(&lab, "a", (lab.address("a", 0).unwrap(), 0));
            let b = socket(&lab, "b", (lab.address("b", 0).unwrap(), 0));
            assert!(reaches_again(&a, &b), "addresses are resolved");
            let start = Instant::now();
            for _ in 0..100 {
                a.send_to(&[0; 1472], b.local_addr().unwrap()).unwrap();
            }
            // What leaves while the burst is sent has room after it.
            let left = (start.elapsed().as_secs_f64() * 1e3 / 6.0) as usize;
            b.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let received = (0..100).take_while(|_| b.recv(&mut [0; 2048]).is_ok()).count();
            let most = packets + 12 + left;
            assert!(
                (packets..=most).contains(&received),
                "queue {queue}: {received} of 100 received, {left} left early"
            );
            if let Some(counters) = counters(&lab, "a") {
                assert_eq!(counters.queue_peak_packets, packets as u64);
                assert!(counters.dropped_packets >= 100 - received as u64);
            }
        }
    }
}

#[test]
fn set_changes_the_delay_of_an_open_connection() {
    if !supported() {
        return;
    }
    let lab = wan(&["a", "b"], "rate='100mbit'\ndelay='5ms'");
    let listener = lab.run_in("b", || TcpListener::bind((lab.address("b", 0).unwrap(), 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let mut a = lab.run_in("a", || TcpStream::connect(address)).unwrap().unwrap();
    let (mut b, _) = listener.accept().unwrap();
    a.set_nodelay(true).unwrap();
    b.set_nodelay(true).unwrap();
    let mut round_trip_ms = || {
        let start = Instant::now();
        a.write_all(b"x").unwrap();
        b.read_exact(&mut [0]).unwrap();
        b.write_all(b"y").unwrap();
        a.read_exact(&mut [0]).unwrap();
        start.elapsed().as_secs_f64() * 1e3
    };
    for delay_ms in [5.0, 30.0, 0.0, 10.0] {
        let wan =
            Wan::default().with_delay(format!("{delay_ms}ms").parse().unwrap()).with_queue("100p".parse().unwrap());
        lab.set_wan(0, wan).unwrap();
        assert_round_trip_ms(2.0 * delay_ms, &mut round_trip_ms);
    }
    // Without a delay the rail remains a WAN with a delay of zero.
    lab.set_wan(0, Wan::default()).unwrap();
    lab.set_rate(0, None).unwrap();
    assert_round_trip_ms(0.0, &mut round_trip_ms);
    let rail = lab.summary().unwrap().topology.unwrap().rails[0].clone();
    assert_eq!((rail.rate, rail.delay.unwrap().ns()), (None, 0));
}

#[test]
fn jitter_moves_packets_and_never_reorders_them() {
    if !supported() {
        return;
    }
    let lab = wan(&["a", "b"], "delay='6ms'\njitter='5ms'");
    if lab.relay_pid().unwrap().is_none() {
        skip(Requirement::NoNetem, "netem reorders packets by jitter");
        return;
    }
    let a = socket(&lab, "a", (lab.address("a", 0).unwrap(), 0));
    let b = socket(&lab, "b", (lab.address("b", 0).unwrap(), 0));
    assert!(reaches_again(&a, &b), "addresses are resolved");
    let start = Instant::now();
    let mut ways_ms = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..300_u32 {
                let sent_ns = start.elapsed().as_nanos() as u64;
                let datagram = [&n.to_ne_bytes()[..], &sent_ns.to_ne_bytes()].concat();
                a.send_to(&datagram, b.local_addr().unwrap()).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        for n in 0..300_u32 {
            let mut datagram = [0; 12];
            assert_eq!(b.recv(&mut datagram).unwrap(), 12);
            assert_eq!(datagram[..4], n.to_ne_bytes());
            let sent_ns = u64::from_ne_bytes(datagram[4..].try_into().unwrap());
            ways_ms.push((start.elapsed().as_nanos() as u64 - sent_ns) as f64 / 1e6);
        }
    });
    ways_ms.sort_by(f64::total_cmp);
    assert!(ways_ms[0] > 1.0 - EARLY_MS, "the shortest way took {} ms", ways_ms[0]);
    assert!(ways_ms[15] < ways_ms[284] - 3.0, "nearly all took {} to {} ms", ways_ms[15], ways_ms[284]);
}

#[test]
fn tcp_arrives_whole_through_loss_and_short_queues() {
    if !supported() {
        return;
    }
    // Losses and full queues remove segments from the middle of GSO packets. The remaining segments
    // must still form the stream.
    for hosts in [&["a", "b"][..], &["a", "b", "c"]] {
        for (rail, bytes) in [
            ("loss='1%'\ndelay='1ms'", 8 << 20),
            ("loss='0.5%'\nrate='200mbit'\nqueue='20p'\ndelay='1ms'\njitter='500us'", 4 << 20),
            ("rate='20mbit'\nqueue='10p'\ndelay='2ms'\nmtu=9000", 1 << 20),
        ] {
            let lab = wan(hosts, rail);
            let to: [IpAddr; 2] =
                [lab.address("b", 0).unwrap().into(), lab.address_v6("b", 0).unwrap().unwrap().into()];
            for to in to {
                assert_arrives_whole(&lab, to, bytes);
            }
            if let Some(counters) = counters(&lab, "a") {
                assert!(counters.lost_packets + counters.dropped_packets > 0, "{rail}: no packet was lost");
                // The counters count segments of GSO packets.
                assert!(counters.arrived_bytes > 2 * bytes as u64);
            }
        }
    }
}

fn assert_arrives_whole(lab: &Lab, to: IpAddr, bytes: usize) {
    let listener = lab.run_in("b", || TcpListener::bind((to, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let mut sender = lab.run_in("a", || TcpStream::connect(address)).unwrap().unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let mut state = 1_u64;
    let sent: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(bytes)
    .collect();
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&sent).unwrap();
            sender.shutdown(std::net::Shutdown::Write).unwrap();
        });
        receiver.read_to_end(&mut received).unwrap();
    });
    assert!(received == sent, "{} of {bytes} bytes arrived, or different ones", received.len());
}

#[test]
fn a_switch_forwards_packets_to_one_host_only() {
    if !supported() {
        return;
    }
    let lab = wan(&["a", "b", "c"], "delay='1ms'");
    let at = |host| socket(&lab, host, (lab.address(host, 0).unwrap(), 0));
    let (a, b, c) = (at("a"), at("b"), at("c"));
    for (from, to) in [(&a, &b), (&b, &a), (&a, &c), (&c, &b)] {
        assert!(reaches_again(from, to));
    }
    let to_c = || lab.wan_counters().unwrap().into_iter().find(|counters| counters.host == "c" && counters.to_host);
    let before = to_c();
    for _ in 0..100 {
        assert!(reaches(&a, &b));
    }
    if let (Some(before), Some(after)) = (before, to_c()) {
        let strays = after.arrived_packets - before.arrived_packets;
        assert!(strays < 50, "{strays} packets from a to b went to c");
    }
}

#[test]
fn only_a_wan_can_get_a_delay_later() {
    if !supported() {
        return;
    }
    let lab = lab(&["a", "b"], &["100mbit"]);
    let delay = Wan::default().with_delay("1ms".parse().unwrap());
    assert!(matches!(lab.set_wan(0, delay), Err(Error::NotWan { rail: 0, .. })));
    assert!(matches!(lab.set_wan(1, delay), Err(Error::NoRail { rail: 1, .. })));
    // It can get a queue.
    lab.set_wan(0, Wan::default().with_queue("50p".parse().unwrap())).unwrap();
    let show = lab.command("a", "tc").unwrap().args(["qdisc", "show", "dev", "rail0"]).output().unwrap();
    assert!(String::from_utf8_lossy(&show.stdout).contains("pfifo 11: parent 1:1 limit 50p"));
    assert_eq!(lab.wan_counters().unwrap(), []);
    assert_eq!(lab.relay_pid().unwrap(), None);
}
