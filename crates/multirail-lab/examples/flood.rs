//! Opens connections to a server as fast as it can, or many that stay silent.
//!
//! ```text
//! cargo run --release -p multirail-lab --example flood -- 10.80.0.2:7717 flood 5
//! cargo run --release -p multirail-lab --example flood -- 10.80.0.2:7717 hold 1000 5
//! ```
//!
//! `flood` opens connections for that many seconds and resets each at once. `hold` opens that many
//! connections, sends nothing, and opens others for those that the server ends.
//!
//! Only `scripts/flood` uses it, on a test network.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that open connections.
const THREADS: usize = 2;
/// How often a thread looks for connections that the server has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (address, hold, seconds) = match arguments[..] {
        [address, "flood", seconds] => (address, 0, seconds),
        [address, "hold", count, seconds] => (address, count.parse()?, seconds),
        _ => return Err("usage: flood ADDRESS:PORT flood SECONDS | hold CONNECTIONS SECONDS".into()),
    };
    let (address, began) = (address.parse()?, Instant::now());
    let end = began + Duration::from_secs(seconds.parse()?);
    let (opened, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (opened, failed) = (&opened, &failed);
            scope.spawn(move || {
                let held = hold / THREADS + usize::from(thread < hold % THREADS);
                run(address, held, end, opened, failed);
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let (opened, failed) = (opened.into_inner(), failed.into_inner());
    println!("{{\"opened\": {opened}, \"failed\": {failed}, \"seconds\": {seconds:.3}}}");
    Ok(())
}

/// Opens connections until `end`: holds `held` of them, or resets each at once if `held` is 0.
fn run(address: SocketAddr, held: usize, end: Instant, opened: &AtomicU64, failed: &AtomicU64) {
    let mut connections = Vec::new();
    while Instant::now() < end {
        if held > 0 && connections.len() == held {
            std::thread::sleep(LOOK_EVERY);
            connections.retain(is_open);
            continue;
        }
        match TcpStream::connect(address) {
            Ok(connection) => {
                opened.fetch_add(1, Ordering::Relaxed);
                reset_at_close(&connection);
                if held > 0 && connection.set_nonblocking(true).is_ok() {
                    connections.push(connection);
                }
            }
            Err(_) => {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn is_open(connection: &TcpStream) -> bool {
    let mut byte = [0];
    matches!((&*connection).read(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A connection that is reset leaves no state that takes a port for a minute.
fn reset_at_close(connection: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is open, and the option's value has its type and length.
    unsafe {
        libc::setsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
    }
}
