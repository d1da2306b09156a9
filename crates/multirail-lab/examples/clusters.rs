//! Prints the throughput of four clusters over all their links at once, and its CPU cost.
//!
//! ```text
//! cargo run --release -p multirail-lab --example clusters
//! ```
//!
//! It takes half a minute. CPU times are those of the whole machine, so nothing else should run.
//! `idle` shows whether it does.

use multirail_lab::{Clusters, Lab};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The links. Their rates in one direction add up to 36 MB/s.
const LINKS: [&str; 6] = ["a-b=80mbit", "a-c=32mbit", "a-d=24mbit", "b-c=48mbit", "b-d=64mbit", "c-d=40mbit"];
const LOAD_TIME: Duration = Duration::from_secs(8);
/// The time that TCP needs to find the rates.
const WARM_UP: Duration = Duration::from_secs(2);
/// The ticks per second of CPU times in /proc.
const TICKS_S: f64 = 100.0;

fn main() -> Result<()> {
    for delay in ["", ",delay=10ms"] {
        let clusters = Clusters::new(&[("a", 16), ("b", 16), ("c", 16), ("d", 16)]);
        let start = Instant::now();
        let links = LINKS.iter().try_fold(clusters, |all, link| {
            Ok::<_, multirail_lab::Error>(all.link(format!("{link}{delay}").parse()?))
        })?;
        let lab = Lab::temporary(&links.topology()?)?;
        println!("64 hosts{delay}: up in {:.2} s", start.elapsed().as_secs_f64());

        let before = Times::now(&lab)?;
        std::thread::sleep(Duration::from_secs(3));
        println!("  idle: {}", Times::now(&lab)?.since(&before));

        let streams = [("a0", "b0"), ("a1", "c0"), ("a2", "d0"), ("b1", "c1"), ("b2", "d1"), ("c2", "d2")];
        let (sent, times) = load(&lab, &streams)?;
        println!("  all links: {:.1} MB/s of frames, {times}", sent / 1e6);
        let before = Instant::now();
        let (_, times) = load(&lab, &[("a0", "a1")])?;
        println!("  inside a cluster: {times} ({:.0} s)", before.elapsed().as_secs_f64());
        drop(lab);
    }
    Ok(())
}

/// Runs TCP on all streams at once. Returns the bytes of frames per second that left on all links
/// after the warm-up, and a text with CPU times.
fn load(lab: &Lab, streams: &[(&str, &str)]) -> Result<(f64, String)> {
    let bytes = || -> Result<u64> { Ok(lab.link_directions()?.iter().map(|direction| direction.bytes).sum()) };
    std::thread::scope(|scope| {
        let running: Vec<_> = streams.iter().map(|(from, to)| scope.spawn(move || stream(lab, from, to))).collect();
        std::thread::sleep(WARM_UP);
        let (first, start, times) = (bytes()?, Instant::now(), Times::now(lab)?);
        std::thread::sleep(LOAD_TIME - 2 * WARM_UP);
        let rate = (bytes()? - first) as f64 / start.elapsed().as_secs_f64();
        let mut text = Times::now(lab)?.since(&times);
        let mut gbit_s = 0.0;
        for one in running {
            gbit_s += one.join().expect("the load does not panic")? * 8.0 / 1e9;
        }
        text += &format!(", TCP {gbit_s:.3} Gbit/s");
        Ok((rate, text))
    })
}

/// Runs one TCP connection and returns its payload bytes per second.
fn stream(lab: &Lab, from: &str, to: &str) -> Result<f64> {
    let listener = lab.run_in(to, || {
        TcpListener::bind((lab.cluster_address(to)?, 0)).map_err(Box::<dyn std::error::Error + Send + Sync>::from)
    })??;
    let address = listener.local_addr()?;
    let mut sender = lab.run_in(from, || TcpStream::connect(address))??;
    let (mut receiver, _) = listener.accept()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            let block = vec![0; 1 << 17];
            while start.elapsed() < LOAD_TIME && sender.write_all(&block).is_ok() {}
        });
        let (start, mut received, mut buffer) = (Instant::now(), 0, vec![0; 1 << 17]);
        loop {
            match receiver.read(&mut buffer)? {
                0 => return Ok(received as f64 / start.elapsed().as_secs_f64()),
                bytes => received += bytes,
            }
        }
    })
}

/// The CPU times of the machine and of the relay, in ticks.
struct Times {
    at: Instant,
    user: f64,
    system: f64,
    softirq: f64,
    relay: f64,
}

impl Times {
    fn now(lab: &Lab) -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let field =
            |index: usize| stat.split_whitespace().nth(index).and_then(|field| field.parse().ok()).unwrap_or(0.0);
        let relay = match lab.relay_pid()? {
            Some(pid) => {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
                let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(11).take(2);
                fields.filter_map(|field| field.parse::<f64>().ok()).sum()
            }
            None => 0.0,
        };
        Ok(Self { at: Instant::now(), user: field(1) + field(2), system: field(3), softirq: field(7), relay })
    }

    fn since(&self, before: &Self) -> String {
        let seconds = (self.at - before.at).as_secs_f64();
        let share = |now: f64, before: f64| (now - before) / TICKS_S / seconds;
        format!(
            "cores: user {:.2}, system {:.2} (relay {:.2}), packets {:.2}",
            share(self.user, before.user),
            share(self.system, before.system),
            share(self.relay, before.relay),
            share(self.softirq, before.softirq),
        )
    }
}
