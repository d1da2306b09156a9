//! Prints the throughput of WANs of a lab, the CPU cost of the relay, and the error of its delays.
//!
//! ```text
//! cargo run --release -p multirail-lab --example wan
//! ```
//!
//! It takes half a minute. Where the kernel has netem, there is no relay, and its CPU cost is not
//! shown.

use multirail_lab::{Lab, Topology};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BULK_TIME: Duration = Duration::from_secs(4);
/// The time that TCP needs to find the rate.
const WARM_UP: Duration = Duration::from_secs(1);
const PROBES: usize = 400;
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// The ticks per second of CPU times in /proc/PID/stat.
const TICKS_S: f64 = 100.0;

fn main() -> Result<()> {
    let control = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?;
    let cores = std::thread::available_parallelism()?;
    println!("congestion control {}, {cores} cores", control.trim());

    for (title, rail, connections) in [
        ("1gbit, delay 10ms", "rate='1gbit'\ndelay='10ms'", 1),
        ("no rate, delay 10ms", "delay='10ms'", 1),
        // One connection is limited by the largest send buffer of the machine.
        ("no rate, delay 10ms, 8 connections", "delay='10ms'", 8),
        ("no rate, delay 0ms", "delay='0ms'", 1),
    ] {
        let lab = lab(rail)?;
        let before_ticks = relay_ticks(&lab)?;
        let start = Instant::now();
        let rates = std::thread::scope(|scope| {
            let one = || bulk(&lab, 0, None).map_err(|e| e.to_string());
            let all: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().expect("the load does not panic")).collect::<Vec<_>>()
        });
        let rate_mbit_s: f64 = rates.into_iter().sum::<std::result::Result<f64, String>>()?;
        print!("{title}: TCP {rate_mbit_s:.0} Mbit/s");
        if let (Some(before), Some(after)) = (before_ticks, relay_ticks(&lab)?) {
            let share = (after - before) / TICKS_S / start.elapsed().as_secs_f64() * 100.0;
            let dropped: u64 = lab.wan_counters()?.iter().map(|counters| counters.dropped_packets).sum();
            print!(", relay {share:.0} % of a core, {dropped} packets dropped");
        }
        println!();
    }

    let rails = "rate='100mbit'\ndelay='10ms'\n[[rail]]\nrate='100mbit'\ndelay='10ms'\n[[rail]]\nrate='100mbit'";
    let lab = lab(rails)?;
    report("no delay, no relay", &round_trips_us(&lab, 2, 0.0)?);
    report("less 20 ms, delay 10ms, idle", &round_trips_us(&lab, 0, 20_000.0)?);
    for (title, loaded) in [
        ("less 20 ms, delay 10ms, TCP on another rail", 1),
        ("less 20 ms, delay 10ms, TCP on the same rail, so with its queue", 0),
    ] {
        let stop = AtomicBool::new(false);
        let found = std::thread::scope(|scope| -> Result<Vec<f64>> {
            let load = scope.spawn(|| bulk(&lab, loaded, Some(&stop)).map_err(|e| e.to_string()));
            std::thread::sleep(WARM_UP);
            let found = round_trips_us(&lab, 0, 20_000.0);
            stop.store(true, Ordering::Relaxed);
            load.join().expect("the load does not panic")?;
            found
        })?;
        report(title, &found);
    }
    Ok(())
}

fn lab(rail: &str) -> Result<Lab> {
    let text = format!("[[host]]\nname='a'\n[[host]]\nname='b'\n[[rail]]\n{rail}\n");
    Ok(Lab::temporary(&Topology::from_toml(&text)?)?)
}

/// The user and system time of the relay. `None` without a relay.
fn relay_ticks(lab: &Lab) -> Result<Option<f64>> {
    let Some(pid) = lab.relay_pid()? else { return Ok(None) };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    Ok(Some(fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()))
}

/// The rate of TCP from a to b in Mbit/s after the warm-up, until `stop` is set or for
/// [`BULK_TIME`].
fn bulk(lab: &Lab, rail: usize, stop: Option<&AtomicBool>) -> Result<f64> {
    let at = (lab.address("b", rail)?, 0);
    let listener = lab.run_in("b", || TcpListener::bind(at))??;
    let address = listener.local_addr()?;
    let mut sender = lab.run_in("a", || TcpStream::connect(address))??;
    let (mut receiver, _) = listener.accept()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let buffer = vec![0; 256 << 10];
            // It ends when the receiver has closed the connection.
            while sender.write_all(&buffer).is_ok() {}
        });
        let mut buffer = vec![0; 256 << 10];
        let start = Instant::now();
        let (mut bytes, mut counted_from) = (0, None);
        while stop.map_or(start.elapsed() < BULK_TIME, |stop| !stop.load(Ordering::Relaxed)) {
            let read = receiver.read(&mut buffer)?;
            match counted_from {
                None if start.elapsed() > WARM_UP => counted_from = Some(Instant::now()),
                None => {}
                Some(_) => bytes += read,
            }
        }
        drop(receiver);
        Ok(bytes as f64 * 8.0 / 1e6 / counted_from.map_or(f64::INFINITY, |from| from.elapsed().as_secs_f64()))
    })
}

/// UDP round trips in excess of the nominal one, 100 per second.
fn round_trips_us(lab: &Lab, rail: usize, nominal_us: f64) -> Result<Vec<f64>> {
    let (at_a, at_b) = ((lab.address("a", rail)?, 0), (lab.address("b", rail)?, 0));
    let a = lab.run_in("a", || UdpSocket::bind(at_a))??;
    let b = lab.run_in("b", || UdpSocket::bind(at_b))??;
    a.connect(b.local_addr()?)?;
    b.connect(a.local_addr()?)?;
    let timeout = Some(Duration::from_secs(1));
    a.set_read_timeout(timeout)?;
    b.set_read_timeout(timeout)?;
    let mut found = std::thread::scope(|scope| -> std::io::Result<Vec<f64>> {
        let echo = scope
            .spawn(|| (0..=PROBES).try_for_each(|_| b.recv(&mut [0; 8]).and_then(|_| b.send(&[0; 8])).map(|_| ())));
        let mut found = Vec::new();
        for n in 0..=PROBES {
            let start = Instant::now();
            a.send(&[0; 8])?;
            a.recv(&mut [0; 8])?;
            // The first round trip waits for address resolution.
            if n > 0 {
                found.push(start.elapsed().as_secs_f64() * 1e6 - nominal_us);
            }
            std::thread::sleep(PROBE_EVERY.saturating_sub(start.elapsed()));
        }
        echo.join().expect("the echo does not panic")?;
        Ok(found)
    })?;
    found.sort_by(f64::total_cmp);
    Ok(found)
}

fn report(title: &str, sorted_us: &[f64]) {
    let at = |share: f64| sorted_us[((sorted_us.len() - 1) as f64 * share) as usize];
    println!("round trip on 100mbit, {title}: p50 {:.0} us, p99 {:.0} us, most {:.0} us", at(0.5), at(0.99), at(1.0));
}
