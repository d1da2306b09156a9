//! Prints when the packets of a burst arrive on an idle rail, and when a wire of that rate would
//! deliver them.
//!
//! ```text
//! cargo run -p multirail-lab --example burst -- 1mbit 25mbit 100mbit
//! ```
//!
//! `ideal` is the time at which packet n has left the wire. `median` is over all bursts.

use multirail_lab::{Lab, Topology};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const PACKETS: usize = 8;
const BURSTS: usize = 25;
/// The payload of a frame of 1514 bytes with Ethernet, IP and UDP headers.
const PAYLOAD_BYTES: usize = 1472;
const FRAME_BYTES: usize = 1514;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rates: Vec<String> = std::env::args().skip(1).collect();
    if rates.is_empty() {
        rates = vec!["1mbit".into(), "25mbit".into(), "100mbit".into()];
    }
    let topology = Topology::simple(&["a", "b"], &rates)?;
    let lab = Lab::temporary(&topology)?;
    for (rail, rate) in rates.iter().enumerate() {
        let to = (lab.address("b", rail)?, 9000);
        let receiver = lab.run_in("b", || UdpSocket::bind(to))??;
        let sender = lab.run_in("a", || UdpSocket::bind("0.0.0.0:0"))??;
        sender.connect(to)?;
        let mut buffer = [0; PAYLOAD_BYTES];
        let packet_us = topology.rails[rail].rate.map_or(0.0, |rate| (FRAME_BYTES * 8) as f64 / rate.mbit_s());
        let mut arrivals_us = vec![Vec::new(); PACKETS];
        // The first burst waits for address resolution and does not count.
        for burst in 0..=BURSTS {
            std::thread::sleep(Duration::from_micros(packet_us as u64 * 2) + Duration::from_millis(2));
            let start = Instant::now();
            let sending = std::thread::scope(|scope| {
                let worker =
                    scope.spawn(|| (0..PACKETS).try_for_each(|_| sender.send(&[0; PAYLOAD_BYTES]).map(|_| ())));
                for arrivals in &mut arrivals_us {
                    receiver.recv(&mut buffer)?;
                    if burst > 0 {
                        arrivals.push(start.elapsed().as_secs_f64() * 1e6);
                    }
                }
                worker.join().expect("the sender does not panic")
            });
            sending?;
        }
        println!("{rate}: one packet takes {packet_us:.0} us");
        for (n, arrivals) in arrivals_us.iter_mut().enumerate() {
            arrivals.sort_by(f64::total_cmp);
            println!(
                "  packet {}: ideal {:7.0} us, median {:7.0} us",
                n + 1,
                packet_us * (n + 1) as f64,
                arrivals[BURSTS / 2]
            );
        }
    }
    Ok(())
}
